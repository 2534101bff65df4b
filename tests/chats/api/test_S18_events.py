"""S18: the event stream is exact, resumable, and closed when read access ends."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from chats.ground.live import Frame
from chats.models import ApiKey, Chat, Message, Turn
from chats.people import keys
from tests.chats.api.programs import MakeProgram, Program
from tests.support.live_events import ScriptedBus, Step
from tests.support.streamed_responses import read_stream

REPLY = "Good morning.\n\nevent: done\ndata: {}\r\n\n:x\u2028\u00e9\U0001f642"


@pytest.fixture
def running(turn: Turn, now: datetime) -> Turn:
    """Alice's turn in its first step, claimed by a worker."""
    Turn.objects.filter(pk=turn.pk).update(
        status="running", attempt=1, step=1, lease_token="t", lease_until=now
    )
    turn.refresh_from_db()
    return turn


def finish(turn: Turn, now: datetime, text: str = REPLY) -> None:
    """Write the end of a turn."""
    reply = Message.objects.create(
        branch_id=turn.branch_id,
        accepted=99,
        seq=99,
        role="assistant",
        parts=[{"type": "text", "text": text}],
        finish="stop",
        created_at=now,
    )
    Turn.objects.filter(pk=turn.pk).update(
        status="completed", reply=reply, partial_text="", lease_token="", lease_until=None
    )


def path(turn: Turn) -> str:
    """Return the path of the turn's events."""
    return f"/api/v1/chats/{turn.branch.chat_id}/turns/{turn.pk}/events"


def read(client: Program, turn: Turn, *, last: str = "") -> list[tuple[str, dict[str, Any], str]]:
    """Return every event until the stream ends: (event, data, id)."""
    headers = {"Last-Event-ID": last} if last else {}
    return events_of(client.client.get(path(turn), headers=headers))


def events_of(answer: Any) -> list[tuple[str, dict[str, Any], str]]:
    """Return every event of a response until it ends."""
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/event-stream")
    assert (answer["Cache-Control"], answer["X-Accel-Buffering"]) == ("no-store", "no")
    return list(parsed(read_stream(answer).decode()))


def parsed(text: str) -> Iterable[tuple[str, dict[str, Any], str]]:
    """Parse server-sent events strictly by the standard. Comments are ignored."""
    for block in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        fields: dict[str, list[str]] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        if "event" in fields:
            (event,), (data,) = fields["event"], fields["data"]
            yield event, json.loads(data), fields.get("id", [""])[0]


def text_of(events: list[tuple[str, dict[str, Any], str]], before: str = "") -> str:
    """Return the text of a client that applies the events. Every offset must match."""
    text = before
    for event, data, event_id in events:
        if event == "snapshot":
            text = data["text"]
        elif event == "delta":
            assert data["offset"] == len(text)
            text += data["text"]
        if event in {"snapshot", "delta", "done"}:
            place = f"{data['attempt']}.{data['step']}.{len(text)}"
            assert event_id.removesuffix(".1") == place or event_id == place
    return text


def frames(text: str, size: int = 5) -> list[Step]:
    """Return the text as the frames of a worker."""
    return [
        Frame(kind="text", attempt=1, step=1, offset=at, text=text[at : at + size])
        for at in range(0, len(text), size)
    ]


def test_S18_text_arrives_whole_and_cannot_make_events(
    of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    bus.steps = [*frames(REPLY), lambda: finish(running, now), Frame("end", 1, 1)]
    events = read(of_alice, running)
    assert text_of(events) == REPLY
    assert [event for event, _, _ in events].count("done") == 1
    assert events[-1][0] == "done"
    assert events[-1][1]["status"] == "completed"
    assert {data["turn"] for _, data, _ in events} == {str(running.pk)}


def test_S18_frames_that_the_bus_lost_come_from_the_stored_reply(
    of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    bus.steps = [*frames(REPLY)[:2], lambda: finish(running, now), Frame("end", 1, 1)]
    assert text_of(read(of_alice, running)) == REPLY


@pytest.mark.parametrize("seen", range(0, len(REPLY), 7))
def test_F07_stream_resumes_without_a_lost_or_doubled_character(
    seen: int, of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    Turn.objects.filter(pk=running.pk).update(partial_text=REPLY[:20])
    bus.steps = [*frames(REPLY), lambda: finish(running, now), Frame("end", 1, 1)]
    events = read(of_alice, running, last=f"1.1.{seen}")
    assert text_of(events, before=REPLY[:seen]) == REPLY
    if seen <= 20:
        assert "snapshot" not in [event for event, _, _ in events]


@pytest.mark.parametrize("last", ["", "0.0.0", "1.1.4", "9.9.9", "x", "1.1.99999999999999999"])
def test_finished_turn_gives_its_text_and_ends(
    last: str, of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    finish(running, now)
    events = read(of_alice, running, last=last)
    assert text_of(events, before=REPLY[:4] if last == "1.1.4" else "") == REPLY
    assert events[-1][0] == "done"


def test_turn_that_ended_without_a_text_ends_the_stream(
    of_alice: Program, running: Turn, bus: ScriptedBus
) -> None:
    Turn.objects.filter(pk=running.pk).update(
        status="failed", error_code="content_filtered", lease_token="", lease_until=None
    )
    events = read(of_alice, running)
    assert text_of(events) == ""
    assert (events[-1][1]["status"], events[-1][1]["code"]) == ("failed", "content_filtered")


def test_new_attempt_replaces_the_text(
    of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    def again() -> None:
        Turn.objects.filter(pk=running.pk).update(attempt=2)

    second: list[Step] = [Frame("text", 2, 1, 0, "New")]
    bus.steps = [*frames("Old text"), again, *second, lambda: finish(running, now, "New"), None]
    events = read(of_alice, running)
    assert text_of(events) == "New"
    assert "reshaped" in [event for event, _, _ in events]


def test_text_of_a_call_that_does_not_count_is_taken_back(
    of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    second: list[Step] = [Frame("anew", 1, 1, anew=1), Frame("text", 1, 1, 0, "New", anew=1)]
    late: list[Step] = [Frame("text", 1, 1, 8, " of before"), None]
    bus.steps = [*frames("Old text"), anew(running), *second, *late, end(running, now, "New text")]
    events = read(of_alice, running)
    assert text_of(events) == "New text"
    assert [event for event, _, _ in events].count("reshaped") == 1


def anew(turn: Turn, text: str = "") -> Callable[[], object]:
    """Write the restarted text of a step, as a worker does."""
    rows = Turn.objects.filter(pk=turn.pk)
    return lambda: rows.update(begun_anew=1, partial_text=text)


def end(turn: Turn, now: datetime, text: str) -> Callable[[], object]:
    """Return a step that ends the turn."""
    return lambda: finish(turn, now, text)


LONG = "".join(f"{number:04d};" for number in range(40))


@pytest.mark.parametrize("stored", [0, 10, 90, 99])
def test_F07_who_resumes_past_the_checkpoint_on_a_wiped_bus_keeps_its_text(
    stored: int, of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    rows = Turn.objects.filter(pk=running.pk)
    rows.update(partial_text=LONG[:stored])
    # The bus lost the first 95 code points. This client already has 100.
    after: list[Step] = [
        Frame("text", 1, 1, 95, LONG[95:120]),
        None,
        lambda: rows.update(partial_text=LONG[:150]),
        None,
    ]
    bus.steps = [None, None, *after, end(running, now, LONG), Frame("end", 1, 1)]
    events = read(of_alice, running, last="1.1.100")
    assert text_of(events, before=LONG[:100]) == LONG
    assert [event for event, _, _ in events] == ["delta", "delta", "delta", "done"]


@pytest.mark.parametrize("wiped", [False, True])
def test_F07_who_resumes_in_a_text_that_was_taken_back_is_told_so(
    wiped: bool, of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    anew(running, "New te")()
    known: list[Step] = [
        *frames("Old text"),
        Frame("anew", 1, 1, anew=1),
        Frame("text", 1, 1, 0, "New text", anew=1),
    ]
    bus.steps = [*known * (not wiped), None, end(running, now, "New text"), None]
    events = read(of_alice, running, last="1.1.8")
    names = [event for event, _, _ in events]
    assert names[:2] == ["reshaped", "snapshot"]
    assert (names.count("reshaped"), text_of(events, before="Old text")) == (1, "New text")
    # From here on, ids refer to the restarted text.
    place = events[1][2]
    assert place == "1.1.6.1"
    assert text_of(read(of_alice, running, last=place), before="New te") == "New text"


def test_F07_who_knows_more_than_was_stored_is_told_so(
    of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    bus.steps = [*frames("Good morning"), end(running, now, "Good"), Frame("end", 1, 1)]
    events = read(of_alice, running)
    assert [event for event, _, _ in events][-3:] == ["reshaped", "snapshot", "done"]
    assert text_of(events) == "Good"


def test_F07_who_resumes_in_an_earlier_step_is_told_so(
    of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    Turn.objects.filter(pk=running.pk).update(step=2, partial_text="Two")
    bus.steps = [end(running, now, "Two."), None]
    events = read(of_alice, running, last="1.1.50")
    assert [event for event, _, _ in events] == ["reshaped", "snapshot", "delta", "done"]
    assert text_of(events, before="x" * 50) == "Two."


def test_state_is_told(of_alice: Program, running: Turn, bus: ScriptedBus, now: datetime) -> None:
    sentence = "Next attempt at 10:41:30."
    waits = Frame("state", 1, 1, 0, sentence)
    bus.steps = [waits, lambda: finish(running, now), Frame("end", 1, 1)]
    states = [data["text"] for event, data, _ in read(of_alice, running) if event == "state"]
    assert states == [sentence]


def test_S18_revoked_key_closes_the_stream(
    of_alice: Program, running: Turn, bus: ScriptedBus, settings: Settings, now: datetime
) -> None:
    settings.STREAM_RECHECK_SECONDS = 0
    bus.steps = [lambda: ApiKey.objects.update(revoked_at=now), *frames(REPLY)]
    events = read(of_alice, running)
    assert text_of(events) == ""
    assert "done" not in [event for event, _, _ in events]


def test_S18_logout_closes_the_stream(
    alice: User, running: Turn, bus: ScriptedBus, settings: Settings
) -> None:
    settings.STREAM_RECHECK_SECONDS = 0
    browser = Program("")
    browser.client.force_login(alice)
    bus.steps = [lambda: browser.client.session.flush(), *frames(REPLY)]
    assert text_of(read(browser, running)) == ""


def test_S18_deleted_chat_closes_the_stream(
    of_alice: Program, running: Turn, bus: ScriptedBus, settings: Settings
) -> None:
    settings.STREAM_RECHECK_SECONDS = 0
    bus.steps = [lambda: Chat.objects.all().delete(), *frames(REPLY)]
    assert REPLY not in text_of(read(of_alice, running))


def test_session_of_the_owner_may_follow(
    alice: User, running: Turn, bus: ScriptedBus, now: datetime
) -> None:
    browser = Program("")
    browser.client.force_login(alice)
    bus.steps = [*frames("Hi"), lambda: finish(running, now, "Hi"), Frame("end", 1, 1)]
    assert text_of(read(browser, running)) == "Hi"


def test_S18_stream_is_refused_before_it_begins(
    alice: User,
    charlie: User,
    program: MakeProgram,
    running: Turn,
    bus: ScriptedBus,
    settings: Settings,
) -> None:
    def refused(client: Program, **options: Any) -> tuple[int, str]:
        answer = client.client.get(path(running), **options)
        return answer.status_code, answer.json()["error"]["code"]

    session = Program("")
    session.client.force_login(alice)
    writer = program(alice, scopes=("chats:write",))
    assert refused(program(charlie)) == (404, "not_found")
    assert refused(Program("")) == (401, "not_authenticated")
    assert refused(writer) == (403, "insufficient_scope")
    assert refused(session, headers={"Authorization": "Bearer plm_x"}) == (401, "invalid_api_key")
    assert refused(session, query_params={"key": "plm_x"}) == (400, "key_in_address")
    settings.STREAMS_PER_USER = 0
    assert refused(session) == (429, "too_many_streams")
    assert session.client.post(path(running)).status_code == 405


def send(client: Program, chat: Chat, **options: Any) -> Any:
    """Return the streaming response to a new message."""
    body = {"text": "Good morning", "stream": True}
    return client.post(f"chats/{chat.pk}/messages", body, **options)


def begin_and_end(now: datetime) -> list[Step]:
    """Claim the only turn, reply and end it."""

    def begin() -> None:
        Turn.objects.update(status="running", attempt=1, step=1, lease_token="t", lease_until=now)

    return [begin, *frames(REPLY), lambda: finish(Turn.objects.get(), now), Frame("end", 1, 1)]


@pytest.mark.parametrize("door", ["key", "session"])
def test_S18_message_and_its_reply_in_one_request(
    door: str, of_alice: Program, alice: User, chat: Chat, bus: ScriptedBus, now: datetime
) -> None:
    client = of_alice if door == "key" else Program("")
    client.client.force_login(alice)
    bus.steps = begin_and_end(now)
    (event, accepted, _), *events = events_of(send(client, chat))
    assert event == "accepted"
    assert accepted["message"]["text"] == "Good morning"
    assert accepted["turn"]["id"] == str(Turn.objects.get().pk)
    assert text_of(events) == REPLY
    assert [event for event, _, _ in events][-1] == "done"


def test_S18_a_client_that_accepts_events_alone_gets_them(
    of_alice: Program, chat: Chat, bus: ScriptedBus, now: datetime
) -> None:
    bus.steps = begin_and_end(now)
    path, alone = f"chats/{chat.pk}/messages", {"Accept": "text/event-stream; charset=utf-8"}
    refused = of_alice.post(path, {"text": 7}, headers=alone)
    assert (refused.status_code, refused["Content-Type"]) == (400, "application/json")
    (event, _, _), *events = events_of(of_alice.post(path, {"text": "Hello"}, headers=alone))
    assert (event, text_of(events)) == ("accepted", REPLY)
    either = {"Accept": "application/json, text/event-stream"}
    assert of_alice.post(path, {"text": "Again"}, headers=either).status_code == 202
    assert of_alice.client.get(f"/api/v1/{path}", headers=alone).status_code == 406


def test_S18_repeated_message_follows_the_turn_of_the_first(
    of_alice: Program, chat: Chat, bus: ScriptedBus, now: datetime
) -> None:
    bus.steps = begin_and_end(now)
    key = {"Idempotency-Key": "one"}
    first, second = (events_of(send(of_alice, chat, headers=key)) for _ in range(2))
    for part in ("message", "turn"):
        assert second[0][1][part]["id"] == first[0][1][part]["id"]
    assert text_of(second[1:]) == text_of(first[1:]) == REPLY
    assert Turn.objects.count() == Message.objects.filter(role="user").count() == 1


def test_S18_who_may_not_follow_sends_nothing(
    alice: User,
    charlie: User,
    of_alice: Program,
    program: MakeProgram,
    chat: Chat,
    bus: ScriptedBus,
    settings: Settings,
) -> None:
    def refused(client: Program) -> tuple[int, str]:
        answer = send(client, chat)
        return answer.status_code, answer.json()["error"]["code"]

    assert refused(program(alice, scopes=("chats:write",))) == (403, "insufficient_scope")
    assert refused(program(alice, scopes=("chats:read",))) == (403, "insufficient_scope")
    assert refused(program(charlie)) == (404, "not_found")
    settings.STREAMS_PER_USER = 0
    assert refused(of_alice) == (429, "too_many_streams")
    assert not Message.objects.exists()


def test_S18_what_was_accepted_is_told_when_there_is_no_room_to_follow(
    of_alice: Program, chat: Chat, bus: ScriptedBus, settings: Settings
) -> None:
    answer = send(of_alice, chat)
    settings.STREAMS_PER_USER = 0
    events = events_of(answer)
    assert [event for event, _, _ in events] == ["accepted", "server.resume"]
    assert events[0][1]["message"]["id"] == str(Message.objects.get().pk)


def test_S18_revoked_key_closes_the_stream_of_a_message(
    of_alice: Program, chat: Chat, bus: ScriptedBus, settings: Settings, now: datetime
) -> None:
    settings.STREAM_RECHECK_SECONDS = 0
    bus.steps = [lambda: ApiKey.objects.update(revoked_at=now), *begin_and_end(now)]
    events = events_of(send(of_alice, chat))
    assert "done" not in [event for event, _, _ in events]


def test_key_without_any_scope_of_the_list_does_not_exist(alice: User, now: datetime) -> None:
    with pytest.raises(keys.UnknownScope):
        keys.create_key(owner=alice, name="x", scopes=["chats:everything"], now=now)
