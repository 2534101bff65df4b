"""A long tool result of an interrupted reply can be read on, because later prompts contain it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from chats.models import Chat, Message, Turn
from chats.prompt.tools.output_read import find_tool_output
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.turns import tool_calls
from contextpolicy.models import ToolServer
from tests.fakes.tool_server import FakeToolServer
from tests.support.chat_summaries import reload_branch
from tests.support.tool_calls import build_call, call_tools, list_tool_results

pytestmark = pytest.mark.django_db
READ = ToolCallDelta(
    0, "read-0", "tool_output_read", json.dumps({"id": "call-0", "search": "needle"})
)


def test_a_result_of_a_failed_step_can_be_read_on(
    chat: Chat,
    server: FakeToolServer,
    connect: Callable[..., ToolServer],
    allow: Callable[..., None],
    ask: Callable[..., tuple[Turn, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.text = f"{'word ' * 40_000}needle"
    connect()
    allow(tools=["files/*"])
    call_server = tool_calls.run_server_tool

    async def fail_at_second(attempt: Any, call: Any, index: int, request: Any) -> Any:
        if index:
            raise RuntimeError
        return await call_server(attempt, call, index, request)

    with monkeypatch.context() as patched:
        patched.setattr(tool_calls, "run_server_tool", fail_at_second)
        step = call_tools(build_call(text="a"), build_call(index=1, text="b"))
        turn, _ = ask([TextDelta("Let me see."), *step])
    turn.refresh_from_db()
    reply = Message.objects.get(turn=turn, role="assistant")
    assert (turn.status, reply.finish) == ("failed", "incomplete")
    assert "needle" in json.dumps(reply.parts)
    assert reply.kept
    assert find_tool_output("call-0", branch=reload_branch(chat)) is not None

    again, worker = ask(call_tools(READ), [TextDelta("Done."), Finished("stop")])
    assert 'read more with tool_output_read, id "call-0"' in str(
        worker.scripted.requests[0].messages
    )
    (result,) = list_tool_results(again)
    assert "needle" in result
