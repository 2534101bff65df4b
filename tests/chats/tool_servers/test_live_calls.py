"""Tool calls in UI message streams while the model writes them and while they run."""

import asyncio
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import OperationalError

from chats.ground.live import CALL_KINDS, Frame
from chats.models import ToolCall, ToolStep, Turn
from chats.people import keys
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.streams.follow import Beginning, CallProgress, TurnFollower, TurnRow, Update
from chats.streams.ui_tool_calls import load_asking_tools
from chats.turns.attempt_state import STOP
from chats.turns.call_frames import LONGEST_LIVE_RESULT
from contextpolicy.models import EffectivePolicy, ToolServer
from tests.chats.api.programs import Program
from tests.fakes.tool_server import FakeToolServer
from tests.support.live_events import ScriptedBus, Step
from tests.support.scripted_worker import InlineWorker
from tests.support.tool_calls import ECHO, call_echo
from tests.support.ui_streams import UI_CHATS, build_user_message, join_text_chunks, read_chunks

Connect = Callable[..., ToolServer]
Allow = Callable[..., None]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
DONE = [TextDelta("Done."), Finished("stop")]
CHAT = "front-end 1"


def build_frame(
    kind: str, text: str = "", *, attempt: int = 1, offset: int = 0, place: int = 0
) -> Frame:
    """Return a frame of the first step."""
    return Frame(kind=kind, attempt=attempt, step=1, text=text, offset=offset, place=place)


@pytest.fixture
def client(alice: User, now: datetime) -> Program:
    """A client with Alice's key."""
    _, secret = keys.create_key(owner=alice, name="front end", scopes=keys.SCOPES, now=now)
    return Program(secret)


@pytest.fixture
def play(
    client: Program, work: Callable[..., Any], bus: ScriptedBus, now: datetime
) -> Callable[..., list[dict[str, Any]]]:
    """Run a turn, then stream it as if the client had followed it from the start.

    `change` changes the frames of the worker before they are played.
    """

    def playing(
        *scripts: list[Any], change: Callable[[list[Step]], Sequence[Step]] = list
    ) -> list[dict[str, Any]]:
        message = {"id": CHAT, "messages": [build_user_message("one")]}
        assert client.post(UI_CHATS, message).status_code == 200
        turn = Turn.objects.get()
        frames = work(turn, *scripts).frames
        fields = ("status", "attempt", "step", "begun_anew", "partial_text", "awaits_consent")
        ended = {name: getattr(turn, name) for name in fields}
        lease = {"lease_token": "t", "lease_until": now}
        began = {"status": "running", "attempt": 1, "step": 1, "begun_anew": 0}
        Turn.objects.update(**began, **lease, partial_text="", awaits_consent=False)
        left = {"lease_token": "", "lease_until": None}
        last = frames.pop()
        bus.steps = [*change(list(frames)), lambda: Turn.objects.update(**ended, **left), last]
        headers = {"Accept": "text/event-stream"}
        answer = client.client.get(f"/api/v1/{UI_CHATS}/{CHAT}/stream", headers=headers)
        return read_chunks(answer)

    return playing


def describe_calls(found: list[dict[str, Any]]) -> list[str]:
    """Return the chunks about calls, with the call's id, and notices."""
    told = {"tool-input-delta": "inputTextDelta"}
    return [
        " ".join(
            [chunk["type"].removeprefix("tool-"), chunk.get("toolCallId", "")]
            + ([chunk[told[chunk["type"]]]] if chunk["type"] in told else [])
        ).strip()
        for chunk in found
        if chunk["type"].startswith("tool-") or chunk["type"] in ("data-notice", "finish-step")
    ]


def write_slowly(*pieces: str, name: str = ECHO, index: int = 0) -> list[Any]:
    """Return the deltas of a call whose arguments come in these pieces."""
    own = f"call-{index}"
    first = ToolCallDelta(index, own, name, "")
    return [first, *(ToolCallDelta(index, own, "", piece) for piece in pieces)]


@pytest.fixture
def tools(connect: Connect, allow: Allow) -> None:
    """A tool server whose tools need no consent."""
    connect()
    allow(tools=["files/*"])


@pytest.mark.requirement("S4.6", by="integrator")
@pytest.mark.usefixtures("tools")
def test_a_call_is_shown_while_it_is_written_and_while_it_runs(play: Callable[..., Any]) -> None:
    script = [TextDelta("So:"), *write_slowly('{"te', 'xt": "a"}'), Finished("tool_calls")]
    found = play(script, DONE)
    assert describe_calls(found) == [
        "input-start call-0",
        'input-delta call-0 {"te',
        'input-delta call-0 xt": "a"}',
        "input-available call-0",
        # The tool runs.
        "data-notice",
        "data-notice",
        "output-available call-0",
        "finish-step",
        "finish-step",
    ]
    (call,) = [chunk for chunk in found if chunk["type"] == "tool-input-available"]
    assert (call["toolName"], call["input"]) == (ECHO, {"text": "a"})
    kinds = [chunk["type"] for chunk in found]
    assert kinds.index("text-end") < kinds.index("tool-input-start")
    assert join_text_chunks(found) == "So:Done."


@pytest.mark.usefixtures("tools")
def test_calls_in_parallel_are_shown_side_by_side(play: Callable[..., Any]) -> None:
    one, two = write_slowly('{"text":', '"a"}'), write_slowly('{"text":', '"b"}', index=1)
    mixed = [delta for pair in zip(one, two, strict=True) for delta in pair]
    found = play([*mixed, Finished("tool_calls")], DONE)
    assert [line for line in describe_calls(found) if "call-" in line] == [
        "input-start call-0",
        "input-start call-1",
        'input-delta call-0 {"text":',
        'input-delta call-1 {"text":',
        'input-delta call-0 "a"}',
        'input-delta call-1 "b"}',
        "input-available call-0",
        "input-available call-1",
        "output-available call-0",
        "output-available call-1",
    ]
    outputs = [chunk["output"] for chunk in found if "output" in chunk]
    assert [output.splitlines()[2] for output in outputs] == ["echo: a", "echo: b"]


@pytest.mark.usefixtures("tools")
def test_each_of_several_steps_has_its_own_calls(play: Callable[..., Any]) -> None:
    # Both steps use the same id.
    found = play(call_echo("a"), call_echo("b"), DONE)
    one = [
        "input-start call-0",
        "input-delta call-0",
        "input-available call-0",
        "output-available call-0",
        "finish-step",
    ]
    told = [line for line in describe_calls(found) if line != "data-notice"]
    told = [line if "delta" not in line else "input-delta call-0" for line in told]
    assert told == [*one, *one, "finish-step"]


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    "lost", ["call", "arguments", "calls", "result", "all"], ids=lambda kind: f"lost {kind}"
)
def test_the_stored_step_adds_exactly_what_was_lost(play: Callable[..., Any], lost: str) -> None:
    script = [*write_slowly('{"text":', '"a"}'), Finished("tool_calls")]
    gone = [kind for kind in CALL_KINDS if lost in (kind, "all")]

    def lose(frames: list[Step]) -> list[Step]:
        left = list(frames)
        for kind in gone:
            # The first of its kind.
            found = next(f for f in left if isinstance(f, Frame) and f.kind == kind)
            left.remove(found)
        return left

    found = play(script, DONE, change=lose)
    told = [line for line in describe_calls(found) if "call-0" in line and "delta" not in line]
    started = [] if lost in ("call", "all") else ["input-start call-0"]
    assert told == [*started, "input-available call-0", "output-available call-0"]
    (call,) = [chunk for chunk in found if chunk["type"] == "tool-input-available"]
    assert call["input"] == {"text": "a"}


@pytest.mark.usefixtures("tools")
def test_a_stream_read_again_repeats_nothing(play: Callable[..., Any]) -> None:
    script = [*write_slowly('{"text":', '"a"}'), Finished("tool_calls")]

    def repeat(frames: list[Step]) -> list[Step]:
        calls = [f for f in frames if isinstance(f, Frame) and f.kind in CALL_KINDS]
        at = frames.index(calls[-1]) + 1
        return [*frames[:at], *calls, *frames[at:]]

    found = play(script, DONE, change=repeat)
    assert [line for line in describe_calls(found) if "call-0" in line] == [
        "input-start call-0",
        'input-delta call-0 {"text":',
        'input-delta call-0 "a"}',
        "input-available call-0",
        "output-available call-0",
    ]


@pytest.mark.usefixtures("tools")
def test_a_long_result_is_read_from_the_database(
    play: Callable[..., Any], server: FakeToolServer
) -> None:
    long = "x" * (LONGEST_LIVE_RESULT + 1)
    read: list[str] = []

    def stored(frames: list[Step]) -> list[Step]:
        at = next(n for n, f in enumerate(frames) if isinstance(f, Frame) and f.kind == "result")
        frame = frames[at]
        assert isinstance(frame, Frame)
        assert (frame.text, frame.offset > len(long)) == ("", True)
        content = "y" * frame.offset
        read.append(content)
        return [*frames[:at], lambda: ToolCall.objects.update(content=content), *frames[at:]]

    found = play(call_echo(long), DONE, change=stored)
    outputs = [chunk["output"] for chunk in found if "output" in chunk]
    # The stored step, which differs only here, corrects it.
    assert (len(outputs), outputs[:1]) == (2, read)


@pytest.mark.usefixtures("tools")
def test_a_step_that_is_repeated_ends_its_first_calls(play: Callable[..., Any]) -> None:
    def restart(frames: list[Step]) -> list[Step]:
        first = [
            build_frame("step"),
            build_frame("call", '["old", "files__echo"]'),
            build_frame("arguments", '{"text"'),
        ]
        started: list[Step] = [*first, lambda: Turn.objects.update(attempt=2)]
        for frame in frames:
            assert isinstance(frame, Frame)
            frame.attempt = 2
        return [*started, build_frame("restarted", attempt=2), *frames]

    found = play(call_echo("a"), DONE, change=restart)
    told = [line for line in describe_calls(found) if "-notice" not in line]
    assert told[:3] == ["input-start old", 'input-delta old {"text"', "output-error old"]
    assert [line for line in told[3:] if "delta" not in line] == [
        "input-start call-0",
        "input-available call-0",
        "output-available call-0",
        "finish-step",
        "finish-step",
    ]


@pytest.mark.usefixtures("tools")
def test_a_resumed_step_does_not_repeat_its_calls(play: Callable[..., Any]) -> None:
    # The worker was lost while the tool ran. The next one has the stored reply.
    def resume(frames: list[Step]) -> list[Step]:
        at = next(n for n, f in enumerate(frames) if isinstance(f, Frame) and f.kind == "calls")
        parts = [{"type": "tool_call", "call_id": "call-0", "name": ECHO, "arguments": "{}"}]
        turn = Turn.objects.get()

        def lose_worker() -> None:
            Turn.objects.update(attempt=2)
            row = {"usage": {}, "receipt_id": turn.pk, "body_sha256": ""}
            ToolStep.objects.create(turn=turn, step=1, parts=parts, **row)

        again = [replace(frame, attempt=2) for frame in frames if isinstance(frame, Frame)]
        restarted = build_frame("restarted", attempt=2)
        return [*frames[: at + 1], lose_worker, restarted, *again, ToolStep.objects.all().delete]

    found = play(call_echo("a"), DONE, change=resume)
    told = [line for line in describe_calls(found) if "call-0" in line and "delta" not in line]
    assert told[:2] == ["input-start call-0", "input-available call-0"]
    assert "output-error call-0" not in told
    assert told[-1] == "output-available call-0"
    assert "input-start call-0" not in told[2:]


def repeat_step(
    frames: list[Step], *, first: Sequence[Frame], lost: Sequence[str] = ()
) -> list[Step]:
    """Return the frames as those of a second attempt, whose reply is stored when it is noticed.

    `first`: the frames of the first attempt. `lost`: the kinds of the second one's that are lost.
    """
    again = [replace(frame, attempt=2) for frame in frames if isinstance(frame, Frame)]
    written = "".join(frame.text for frame in again if frame.kind == "arguments")
    parts = [{"type": "tool_call", "call_id": "call-0", "name": ECHO, "arguments": written}]
    turn = Turn.objects.get()

    def store_reply() -> None:
        Turn.objects.update(attempt=2)
        row = {"usage": {}, "receipt_id": turn.pk, "body_sha256": ""}
        ToolStep.objects.create(turn=turn, step=1, parts=parts, **row)

    left = [frame for frame in again if frame.kind not in lost]
    restarted = build_frame("restarted", attempt=2)
    return [*first, store_reply, restarted, *left, ToolStep.objects.all().delete]


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    "lost", [(), ("call",), ("call", "calls"), ("arguments",), ("result",)], ids="-".join
)
@pytest.mark.parametrize("is_complete", [False, True])
def test_two_attempts_with_one_call_id_are_not_mixed(
    play: Callable[..., Any], place: int, lost: tuple[str, ...], is_complete: bool
) -> None:
    # As long as the input of the second attempt.
    old = '{"text": "b"}'
    first = [
        build_frame("step"),
        build_frame("call", json.dumps(["call-0", ECHO]), place=place),
        build_frame("arguments", old if is_complete else old[:-2], place=place),
    ]
    if is_complete:
        first.append(build_frame("calls", json.dumps([[place, len(old)]])))
        first.append(build_frame("result", "old", offset=3, place=place))

    found = play(
        call_echo("a"), DONE, change=lambda frames: repeat_step(frames, first=first, lost=lost)
    )

    told = [chunk for chunk in found if chunk.get("toolCallId") == "call-0"]
    # The client's partial input starts again with each `tool-input-start`.
    text, inputs, outputs = "", [], []
    for chunk in told:
        if chunk["type"] == "tool-input-start":
            text = ""
        text += chunk.get("inputTextDelta", "")
        assert old.startswith(text) or '{"text": "a"}'.startswith(text)
        inputs += [chunk["input"]] if "input" in chunk else []
        outputs += [chunk["output"]] if "output" in chunk else []
    assert inputs == [{"text": "b"}] * is_complete + [{"text": "a"}]
    assert [("echo: a" in output) for output in outputs] == [False] * is_complete + [True]
    assert told[-1]["type"] == "tool-output-available"


@pytest.mark.usefixtures("tools")
def test_a_call_at_the_place_of_an_earlier_attempt_is_shown(play: Callable[..., Any]) -> None:
    # The first attempt made the calls in another order.
    first = [
        build_frame("step"),
        build_frame("call", json.dumps(["call-0", ECHO]), place=1),
        build_frame("call", json.dumps(["other", ECHO])),
        build_frame("arguments", '{"text": "o"}'),
    ]
    found = play(call_echo("a"), DONE, change=lambda frames: repeat_step(frames, first=first))
    told = [line for line in describe_calls(found) if "call-0" in line or "other" in line]
    assert told == [
        "input-start call-0",
        "input-start other",
        'input-delta other {"text": "o"}',
        "output-error other",
        "input-start call-0",
        'input-delta call-0 {"text": "a"}',
        "input-available call-0",
        "output-available call-0",
    ]


@pytest.mark.usefixtures("tools")
def test_a_viewer_of_calls_stores_no_policy(
    client: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.post(UI_CHATS, {"id": "x", "messages": [build_user_message("1")]}).status_code
    turn = Turn.objects.get()
    before = load_asking_tools(turn.pk)
    EffectivePolicy.objects.all().delete()

    def refuse_to_write(**_: Any) -> Any:
        raise OperationalError("database is locked")

    monkeypatch.setattr(EffectivePolicy.objects, "get_or_create", refuse_to_write)

    assert load_asking_tools(turn.pk) == before
    assert not EffectivePolicy.objects.exists()


def test_a_step_that_waits_has_requests_only(
    connect: Connect, allow: Allow, play: Callable[..., Any]
) -> None:
    connect(asks=True)
    allow(tools=["files/*"])
    unknown = ToolCallDelta(1, "call-1", "no_such_tool", "{}")
    found = play([*call_echo("x")[:-1], unknown, Finished("tool_calls")])
    assert describe_calls(found) == [
        "input-start call-0",
        'input-delta call-0 {"text": "x"}',
        "input-available call-0",
        "approval-request call-0",
        "finish-step",
    ]


def test_a_tool_that_needs_no_consent_is_shown_when_the_calls_run(
    connect: Connect, allow: Allow, play: Callable[..., Any]
) -> None:
    connect(asks=True)
    allow(tools=["files/*"])
    script = [ToolCallDelta(0, "call-0", "no_such_tool", "{}"), Finished("tool_calls")]
    assert describe_calls(play(script, DONE)) == [
        "input-available call-0",
        "output-available call-0",
        "finish-step",
        "finish-step",
    ]


@pytest.mark.usefixtures("tools")
def test_a_stopped_reply_leaves_no_call_in_progress(play: Callable[..., Any]) -> None:
    async def stop(worker: InlineWorker) -> None:
        (attempt,) = worker.runs.values()
        attempt.interrupt(STOP)
        await asyncio.sleep(30)

    found = play([*write_slowly('{"te'), stop, Finished("tool_calls")])
    assert describe_calls(found) == [
        "input-start call-0",
        'input-delta call-0 {"te',
        # As in the stored reply: the call has no valid arguments and no result.
        "input-available call-0",
    ]
    assert found[-1] == {"type": "abort"}


@pytest.mark.usefixtures("tools")
def test_two_calls_with_one_id_are_not_mixed(play: Callable[..., Any]) -> None:
    twice = [
        ToolCallDelta(0, "same", ECHO, '{"text": "a"}'),
        ToolCallDelta(1, "same", ECHO, '{"text": "b"}'),
    ]
    found = play([*twice, Finished("tool_calls")], DONE)
    told = [line for line in describe_calls(found) if "same" in line and "delta" not in line]
    first = ["input-start same", "input-available same", "output-available same"]
    assert told == [*first, "input-available same", "output-available same"]
    outputs = [chunk["output"] for chunk in found if "output" in chunk]
    assert [output.splitlines()[2] for output in outputs] == ["echo: a", "echo: b"]


@pytest.mark.usefixtures("tools")
def test_a_call_that_only_the_stream_has_ends_with_an_error(play: Callable[..., Any]) -> None:
    # The worker was lost, and the next one replied without a call. Its frames were lost too.
    def lose(frames: list[Step]) -> list[Step]:
        old = build_frame("call", '["old", "files__echo"]')
        Turn.objects.update(attempt=1)
        return [build_frame("step"), old]

    found = play(DONE, change=lose)
    assert describe_calls(found) == ["input-start old", "output-error old", "finish-step"]
    assert join_text_chunks(found) == "Done."


@pytest.mark.usefixtures("tools")
def test_only_replies_with_calls_publish_frames_about_them(
    client: Program, work: Callable[..., Any]
) -> None:
    assert client.post(UI_CHATS, {"id": "x", "messages": [build_user_message("1")]}).status_code
    worker = work(Turn.objects.get(), DONE)
    assert [frame.kind for frame in worker.frames] == ["step", "text", "end"]
    assert json.dumps([frame.fields() for frame in worker.frames]).count('"c"') == 0


def test_only_streams_that_ask_for_calls_get_them() -> None:
    row = TurnRow(status="running", is_over=False, beginning=Beginning(1, 1), text="")
    frame = build_frame("call", '["call-0", "files__echo"]')

    async def read(_turn: uuid.UUID) -> TurnRow:
        return row

    def hear(*, with_calls: bool) -> list[Update]:
        follower = TurnFollower(turn_id=uuid.uuid4(), read=read, with_calls=with_calls)
        follower.begin(row, seen=None, whole=False)
        return async_to_sync(follower.hear)(frame)

    # Pages, REST and the gateway.
    assert hear(with_calls=False) == []
    assert hear(with_calls=True) == [CallProgress(frame)]


def test_pieces_of_one_call_become_one_entry_of_the_bus() -> None:
    first = build_frame("arguments", "a", place=1)
    assert not first.absorbs(build_frame("arguments", "b", offset=1, place=2))
    assert first.absorbs(build_frame("arguments", "b", offset=1, place=1))
    assert Frame.from_fields({k: str(v) for k, v in first.fields().items()}, key="") == first
    assert (first.text, first.is_urgent) == ("ab", False)
