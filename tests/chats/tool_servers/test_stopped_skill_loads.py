"""A skill that a stopped step loaded before a tool of a server stays loaded, and moves."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.core.management import call_command

from chats.models import Chat, Message, Turn
from chats.prompt.moved_skills import find_moved_skills
from chats.prompt.tokenizer import O200kCounter
from chats.prompt.tools import skill_load
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.turns import tool_calls
from chats.turns.attempt_state import STOP, AttemptState
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import Skill, ToolServer
from contextpolicy.skills import save_skill
from tests.support.chat_summaries import reload_branch

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
LOAD = ToolCallDelta(0, "call-1", "skill_load", json.dumps({"name": "mail"}))
ECHO = ToolCallDelta(1, "call-2", "files__echo", json.dumps({"text": "a"}))
DONE = [TextDelta("Done."), Finished("stop")]


def test_a_skill_of_a_stopped_step_is_in_prompts_and_moves(
    chat: Chat,
    connect: Callable[..., ToolServer],
    allow: Callable[..., None],
    ask: Callable[..., tuple[Turn, Any]],
    monkeypatch: pytest.MonkeyPatch,
    now: datetime,
) -> None:
    connect()
    skill = Skill(slug="mail", name="Mail", description="Write mails.", text="Sign with regards.")
    save_skill(skill=skill, actor="system", now=now)
    allow(tools=["files/*"], skills=["mail"])
    call_server = tool_calls.run_server_tool

    async def call_and_stop(attempt: AttemptState, *given: Any) -> str:
        result = await call_server(attempt, *given)
        attempt.interrupt(STOP)
        return result

    with monkeypatch.context() as patched:
        patched.setattr(tool_calls, "run_server_tool", call_and_stop)
        turn, _ = ask([LOAD, ECHO, Finished("tool_calls")])
    turn.refresh_from_db()
    reply = Message.objects.get(turn=turn, role="assistant")
    assert (turn.status, reply.finish) == ("stopped", "stopped")
    assert "Sign with regards." in json.dumps(reply.parts)
    _, worker = ask([LOAD, Finished("tool_calls")], DONE)
    sent = worker.scripted.requests
    assert "Sign with regards." in str(sent[0].messages)
    assert skill_load.LOADED in str(sent[1].messages)
    branch = reload_branch(chat)
    moved = find_moved_skills(
        branch,
        after=0,
        to_seq=reply.seq or 0,
        values=PolicyValues(skills=("mail",)),
        counter=O200kCounter(),
    )
    assert moved == ["mail"]
    call_command("ledger_verify", scope=f"chat:{chat.pk}")
