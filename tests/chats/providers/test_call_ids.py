"""Ids of tool calls that another server gave: sent as stored, until a server refuses them."""

import asyncio
import json
from typing import Any

import pytest

from chats.ground.texts import sanitise_text
from chats.prompt.sent_request import serialise_request_forms
from chats.providers.anthropic_chunks import MessageReader
from chats.providers.base import Finished, ProviderRequest, ToolCallDelta
from chats.providers.call_ids import ID_FORMS, find_required_form, format_call_id, has_other_ids
from chats.providers.failures import parse_response_failure
from contextpolicy.engine.messages.messages import ToolCallPart, WireMessage
from contextpolicy.engine.messages.segments import compute_text_ref
from tests.fakes.calls import adapter_to, asked, call, collect
from tests.fakes.fake_server import FakeServer
from tests.fakes.replies import LONG_ID, OTHER_ID

LONG = "toolu_" + "x" * 58
SIGNED = "call_1__thought__" + "QUJD+/==" * 40
NINE = "aB3dE6gH9"


def build_messages(*ids: str) -> tuple[WireMessage, ...]:
    """Return a question, calls with these ids, and their results."""
    calls = tuple(ToolCallPart(each, "search", "{}") for each in ids)
    results = (WireMessage("tool", f"Found {each}.", (), each) for each in ids)
    return (WireMessage("user", "Find it."), WireMessage("assistant", "", calls), *results)


def list_sent_ids(body: dict[str, Any]) -> list[str]:
    """Return the ids of the calls of a body, which its results have in the same order."""
    found: list[str] = []
    results: list[str] = []
    for message in body["messages"]:
        found += [each["id"] for each in message.get("tool_calls", ())]
        results += [message["tool_call_id"]] if "tool_call_id" in message else []
    assert results == found
    return found


@pytest.mark.parametrize(
    ("rule", "form", "changed"), [("long_ids", "plain", 1), ("other_ids", "nine", 2)]
)
def test_a_server_that_refuses_ids_gets_others(
    openai_server: FakeServer, rule: str, form: Any, changed: int
) -> None:
    openai_server.configure(reject=rule)
    requests = [asked("", messages=build_messages(LONG, "call_short", NINE)) for _ in range(2)]

    async def send_twice() -> None:
        provider = adapter_to(openai_server)
        for request in requests:
            assert (await collect(provider, request))[-1] == Finished("stop")
        await provider.aclose()

    asyncio.run(send_twice())
    # Refused once. Later calls have the form at once.
    given = (LONG, "call_short", NINE)
    first, *others = openai_server.requests()
    assert list_sent_ids(first["body"]) == [*given]
    assert len(others) == 2
    for record in others:
        sent = list_sent_ids(record["body"])
        assert sent == [format_call_id(each, form=form) for each in given]
        assert sum(new != old for new, old in zip(sent, given, strict=True)) == changed
    # The receipt's hash is that of one of the rebuilt forms.
    forms = map(compute_text_ref, serialise_request_forms(requests[0], is_anthropic=False))
    assert requests[0].sent.sha256 in set(forms)


def test_ids_that_a_server_accepts_are_unchanged(openai_server: FakeServer) -> None:
    """Some servers keep a signature in their ids."""
    call(adapter_to(openai_server), asked("", messages=build_messages(SIGNED)))
    (record,) = openai_server.requests()
    assert list_sent_ids(record["body"]) == [SIGNED]


@pytest.mark.parametrize(
    ("error", "form"),
    [
        (str(LONG_ID), "plain"),
        (str(OTHER_ID), "nine"),
        ("Tool call id was call_a but must be a-z, A-Z, 0-9, with a length of 9.", "nine"),
        (
            "messages.1.content.1.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
            "plain",
        ),
        ("Value 'a.b' at 'messages.2.member.content.1.member.toolUse.toolUseId' failed", "plain"),
        ("Invalid 'messages[0].content': string too long.", None),
        ("Unsupported parameter: 'max_tokens'.", None),
    ],
)
def test_errors_of_servers(error: str, form: Any) -> None:
    messages = build_messages(LONG)
    assert find_required_form(error, form="stored", messages=messages) == form
    if form:
        # Not repeated in the same form, nor for ids that have it.
        assert find_required_form(error, form=form, messages=messages) is None
        assert find_required_form(error, form="stored", messages=build_messages(NINE)) is None


@pytest.mark.parametrize("form", ID_FORMS)
@pytest.mark.parametrize("call_id", ["", LONG, SIGNED, NINE, "functions.search:0", "é", "\ud800"])
def test_an_id_has_one_text_in_each_form(call_id: str, form: Any) -> None:
    given = format_call_id(call_id, form=form)
    assert given == format_call_id(call_id, form=form)
    assert format_call_id(given, form=form) == given
    if form != "stored":
        assert given == sanitise_text(given)
        assert len(given) <= 40
        assert given.replace("_", "").replace("-", "").isalnum()
    assert len(given) == 9 or form != "nine"
    request = ProviderRequest("m", build_messages(call_id))
    assert has_other_ids(request.messages, form=form) is (bool(call_id) and given != call_id)


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("messages[1].tool_calls[0].id", "provider_rejected"),
        ("tools[0].function.name", "provider_rejected"),
        ("messages[0].content", "context_overflow"),
        ("", "context_overflow"),
    ],
)
def test_a_long_id_is_no_long_prompt(field: str, code: str) -> None:
    body = f'{{"error": {{"code": "string_above_max_length", "param": "{field}"}}}}'
    assert parse_response_failure(status=400, headers={}, body=body).code == code


@pytest.mark.parametrize(("given", "is_kept"), [("toolu_01", True), ("call_0", False), ("", False)])
def test_numbers_as_ids_are_replaced(given: str, *, is_kept: bool) -> None:
    block = {"type": "tool_use", "id": given, "name": "search", "input": {}}
    event = {"type": "message", "content": [block], "stop_reason": "tool_use"}
    events = list(MessageReader().read(json.dumps(event).encode()))
    (call_id,) = {each.call_id for each in events if isinstance(each, ToolCallDelta)}
    assert (call_id == given) is is_kept
