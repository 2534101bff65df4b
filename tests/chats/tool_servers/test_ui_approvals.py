"""Consent to tool calls over the UI message protocol, as `useChat` of ai 6 and 7 gives it."""

import base64
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.background.due_jobs import run_due_job
from chats.ground.live import Frame
from chats.models import ApiKey, ToolCall, ToolConsent, Turn
from chats.people import keys
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.turns.consents import list_waiting_calls
from contextpolicy.models import ToolServer
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.fakes.tool_server import FakeToolServer
from tests.support.error_codes import read_status_and_code
from tests.support.live_events import ScriptedBus
from tests.support.tool_calls import call_echo
from tests.support.ui_streams import (
    UI_CHATS,
    build_user_message,
    describe_chunks,
    join_text_chunks,
    read_chunks,
)

Connect = Callable[..., ToolServer]
Allow = Callable[..., None]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
DONE = [TextDelta("Done."), Finished("stop")]
CHAT = "front-end 1"


@pytest.fixture
def client(alice: User, now: datetime) -> Program:
    """A client with Alice's key."""
    _, secret = keys.create_key(owner=alice, name="front end", scopes=keys.SCOPES, now=now)
    return Program(secret)


@pytest.fixture
def waiting(
    connect: Connect, allow: Allow, client: Program, bus: ScriptedBus, work: Callable[..., Any]
) -> Turn:
    """A turn of a front end that waits for consent to a call."""
    connect(asks=True)
    allow(tools=["files/*"])
    assert (
        client.post(UI_CHATS, {"id": CHAT, "messages": [build_user_message("one")]}).status_code
        == 200
    )
    turn = Turn.objects.get()
    work(turn, call_echo("secret words"))
    turn.refresh_from_db()
    assert turn.awaits_consent
    return turn


def resume(client: Program) -> list[dict[str, Any]]:
    """Return the chunks of the resumed stream."""
    headers = {"Accept": "text/event-stream"}
    return read_chunks(client.client.get(f"/api/v1/{UI_CHATS}/{CHAT}/stream", headers=headers))


def answer_requests(
    turn: Turn, asked: list[dict[str, Any]], *, reason: str = "", approved: bool = True
) -> dict[str, Any]:
    """Return the request of `useChat` that answers all requests of a stream."""
    more = {"reason": reason} if reason else {}
    requests = {c["toolCallId"]: c["approvalId"] for c in asked if "approvalId" in c}
    parts: list[dict[str, Any]] = [
        {"type": "step-start"},
        {"type": "text", "text": join_text_chunks(asked)},
    ]
    parts += [
        {
            "type": f"tool-{call['toolName']}",
            "toolCallId": call["toolCallId"],
            "state": "approval-responded",
            "input": call["input"],
            "approval": {"id": requests.get(call["toolCallId"]), "approved": approved, **more},
        }
        for call in asked
        if call["type"] == "tool-input-available"
    ]
    reply = {"id": str(turn.pk), "role": "assistant", "parts": parts}
    return {"id": CHAT, "messages": [build_user_message("one"), reply], "messageId": str(turn.pk)}


REQUEST = ["tool-input-available", "tool-approval-request", "finish-step", "finish"]


@pytest.mark.requirement("S4.6", by="integrator")
@pytest.mark.parametrize(
    ("approved", "reason", "sent", "given", "result"),
    [
        (True, "", 1, 0, "tool-output-available"),
        (True, "chat", 1, 1, "tool-output-available"),
        (False, "", 0, 0, "tool-output-denied"),
    ],
)
def test_a_request_ends_the_stream_and_its_answer_continues_the_message(
    waiting: Turn,
    client: Program,
    work: Callable[..., Any],
    server: FakeToolServer,
    approved: bool,
    reason: str,
    sent: int,
    given: int,
    result: str,
) -> None:
    asked = resume(client)
    opened = ["start", "start-step", "text-start", "Let me see.", "text-end"]
    assert describe_chunks(asked) == [*opened, *REQUEST]
    call = next(c for c in asked if c["type"] == "tool-input-available")
    assert call["input"] == {"text": "secret words"}

    body = answer_requests(waiting, asked, approved=approved, reason=reason)
    response = client.post(UI_CHATS, body)
    work(waiting, DONE)
    rest = read_chunks(response)

    ended = ["text-start", "Done.", "text-end", "finish-step", "finish"]
    assert describe_chunks(rest) == ["start", result, "finish-step", "start-step", *ended]
    assert (rest[0]["messageId"], rest[1]["toolCallId"]) == (str(waiting.pk), call["toolCallId"])
    assert (len(server.calls), ToolConsent.objects.count()) == (sent, given)
    listed = client.get(f"{UI_CHATS}/{CHAT}").json()["messages"][1]["parts"]
    states = [part["state"] for part in listed if part["type"] == "tool-files__echo"]
    assert states == [result.removeprefix("tool-")]
    # A repetition of the answer follows the same turn.
    again = read_chunks(client.post(UI_CHATS, body))
    assert describe_chunks(again) == describe_chunks(rest)


def test_an_image_of_an_allowed_call_continues_the_message(
    waiting: Turn, client: Program, work: Callable[..., Any], server: FakeToolServer
) -> None:
    image = base64.b64encode(make_png()).decode()
    server.content = [{"type": "image", "data": image, "mimeType": "image/png"}]
    response = client.post(UI_CHATS, answer_requests(waiting, resume(client)))
    work(waiting, DONE)
    (file,) = [chunk for chunk in read_chunks(response) if chunk["type"] == "file"]
    assert file["mediaType"] == "image/png"


def test_a_stream_that_is_open_when_the_turn_begins_to_wait(
    waiting: Turn, client: Program, bus: ScriptedBus, now: datetime
) -> None:
    before = {"status": "running", "awaits_consent": False, "begun_anew": 0}
    lease = {"lease_token": "t", "lease_until": now}
    Turn.objects.update(**before, **lease, partial_text="Let me")

    def wait() -> None:
        after = {"status": "queued", "awaits_consent": True, "begun_anew": 1}
        Turn.objects.update(**after, lease_token="", lease_until=None)

    bus.steps = [
        Frame(kind="text", attempt=1, step=1, offset=6, text=" s"),
        wait,
        Frame(kind="anew", attempt=1, step=1, anew=1),
    ]
    found = resume(client)
    opened = ["start", "start-step", "text-start", "Let me", " s", "ee.", "text-end"]
    assert describe_chunks(found) == [*opened, *REQUEST]


def test_calls_without_a_request_come_with_their_results(
    connect: Connect, allow: Allow, client: Program, bus: ScriptedBus, work: Callable[..., Any]
) -> None:
    connect(asks=True)
    allow(tools=["files/*"])
    client.post(UI_CHATS, {"id": CHAT, "messages": [build_user_message("one")]})
    turn = Turn.objects.get()
    unknown = ToolCallDelta(1, "call-1", "no_such_tool", "{}")
    work(turn, [*call_echo("x")[:-1], unknown, Finished("tool_calls")])
    asked = resume(client)
    # `useChat` sends the answers once each tool part of the step has one.
    assert [c["toolCallId"] for c in asked if c["type"] == "tool-input-available"] == ["call-0"]
    response = client.post(UI_CHATS, answer_requests(turn, asked))
    work(turn, DONE)
    kinds = [(c["type"], c["toolCallId"]) for c in read_chunks(response) if "toolCallId" in c]
    assert kinds == [
        ("tool-output-available", "call-0"),
        ("tool-input-available", "call-1"),
        ("tool-output-available", "call-1"),
    ]


def test_a_call_with_the_id_of_an_earlier_step_comes_with_its_input(
    connect: Connect, allow: Allow, client: Program, bus: ScriptedBus, work: Callable[..., Any]
) -> None:
    connect(asks=True)
    allow(tools=["files/*"])
    client.post(UI_CHATS, {"id": CHAT, "messages": [build_user_message("one")]})
    turn = Turn.objects.get()
    other = ToolCallDelta(1, "call-1", "no_such_tool", "{}")
    second = [*call_echo("x")[:-1], other, Finished("tool_calls")]
    work(turn, [other, Finished("tool_calls")], second)
    asked = resume(client)
    body = answer_requests(turn, asked)
    parts = body["messages"][1]["parts"]
    earlier = next(part for part in parts if part.get("toolCallId") == "call-1")
    # The first step has this call. `useChat` sends its parts before those of the second step.
    parts.remove(earlier)
    done = {**earlier, "state": "output-available", "output": ""}
    done.pop("approval")
    body["messages"][1]["parts"] = [{"type": "step-start"}, done, *parts]
    response = client.post(UI_CHATS, body)
    work(turn, DONE)
    kinds = [(c["type"], c["toolCallId"]) for c in read_chunks(response) if "toolCallId" in c]
    assert kinds == [
        ("tool-output-available", "call-0"),
        ("tool-input-available", "call-1"),
        ("tool-output-available", "call-1"),
    ]


def test_each_of_two_requests_can_be_answered_alone(
    connect: Connect, allow: Allow, client: Program, bus: ScriptedBus, work: Callable[..., Any]
) -> None:
    connect(asks=True)
    allow(tools=["files/*"])
    client.post(UI_CHATS, {"id": CHAT, "messages": [build_user_message("one")]})
    turn = Turn.objects.get()
    work(turn, call_echo("one", "two"))
    body = answer_requests(turn, resume(client))
    second = body["messages"][1]["parts"][3]
    second["state"] = "approval-requested"
    left = read_chunks(client.post(UI_CHATS, body))
    assert describe_chunks(left) == ["start", "tool-approval-request", "finish-step", "finish"]
    assert left[1]["toolCallId"] == second["toolCallId"]
    second["state"] = "approval-responded"
    response = client.post(UI_CHATS, body)
    work(turn, DONE)
    assert join_text_chunks(read_chunks(response)) == "Done."


def test_an_expired_request_is_denied(
    waiting: Turn, client: Program, work: Callable[..., Any], now: datetime
) -> None:
    body = answer_requests(waiting, resume(client))
    until = list_waiting_calls(waiting)[0].expires_at
    assert until is not None
    assert run_due_job("tool_consents", now=until + timedelta(seconds=1)) == 1
    response = client.post(UI_CHATS, body)
    work(waiting, DONE)
    assert "tool-output-denied" in describe_chunks(read_chunks(response))
    (part,) = [
        part
        for part in client.get(f"{UI_CHATS}/{CHAT}").json()["messages"][1]["parts"]
        if part["type"] == "tool-files__echo"
    ]
    assert part["approval"] == {"id": "call-0", "approved": False, "reason": "consent_expired"}
    assert "output" not in part


def test_a_session_needs_the_csrf_token(
    waiting: Turn, alice: User, client: Program, work: Callable[..., Any], server: FakeToolServer
) -> None:
    body = json.dumps(answer_requests(waiting, resume(client)))
    page = Client(enforce_csrf_checks=True)
    page.force_login(alice)
    page.get("/settings/")
    sent = page.post(f"/api/v1/{UI_CHATS}", body, content_type="application/json")
    assert sent.status_code == 403
    waiting.refresh_from_db()
    assert waiting.awaits_consent
    token = {"X-CSRFToken": page.cookies["csrftoken"].value}
    sent = page.post(f"/api/v1/{UI_CHATS}", body, content_type="application/json", headers=token)
    assert sent.status_code == 200
    work(waiting, DONE)
    assert len(server.calls) == 1


def test_others_and_unknown_requests_are_not_found(
    waiting: Turn, client: Program, charlie: User, now: datetime
) -> None:
    body = answer_requests(waiting, resume(client))
    _, secret = keys.create_key(owner=charlie, name="other", scopes=keys.SCOPES, now=now)
    assert read_status_and_code(Program(secret).post(UI_CHATS, body)) == (404, "not_found")
    # Another chat of the same person.
    assert (
        client.post(UI_CHATS, {"id": "other", "messages": [build_user_message("two")]}).status_code
        == 200
    )
    assert read_status_and_code(client.post(UI_CHATS, {**body, "id": "other"})) == (
        404,
        "not_found",
    )
    approval = body["messages"][1]["parts"][2]["approval"]
    for unknown in ("x", str(ToolCall.objects.get().pk + 1), None):
        approval["id"] = unknown
        assert read_status_and_code(client.post(UI_CHATS, body)) == (404, "not_found")
    waiting.refresh_from_db()
    assert waiting.awaits_consent


def test_a_reply_without_answers_is_refused(waiting: Turn, client: Program) -> None:
    body = answer_requests(waiting, resume(client))
    body["messages"][1]["parts"][2]["state"] = "approval-requested"
    assert read_status_and_code(client.post(UI_CHATS, body)) == (422, "unsupported_ui_message")
    ApiKey.objects.update(scopes=["chats:read"])
    body["messages"][1]["parts"][2]["state"] = "approval-responded"
    assert read_status_and_code(client.post(UI_CHATS, body)) == (403, "insufficient_scope")
