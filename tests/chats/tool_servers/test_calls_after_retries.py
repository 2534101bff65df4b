"""After a retry, the model sees the calls that the failed attempt made, so that none runs twice."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from pytest_django import Settings

from chats.models import Chat, Message, ToolStep, Turn
from chats.providers.base import Finished, ProviderRequest, TextDelta
from chats.tool_servers import results
from chats.turns import attempt, server_tools, tool_calls, tool_steps
from chats.turns.follow_up_turns import retry_turn
from chats.turns.recover import release_lost_turn
from chats.turns.start import start_turn
from chats.turns.stop import stop_turn
from contextpolicy.models import AuditEvent, ToolServer
from tests.fakes.tool_server import FakeToolServer
from tests.support.tool_calls import build_call, call_tools

Work = Callable[..., Any]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
DONE = [TextDelta("Done."), Finished("stop")]
UNKNOWN = results.UNKNOWN.partition("{")[0]
TWO_CALLS = call_tools(build_call(text="first"), build_call(index=1, text="second"))


class WorkerDied(BaseException):
    """The process ends here."""


@pytest.fixture
def turn(
    connect: Callable[..., ToolServer],
    allow: Callable[..., None],
    alice: User,
    chat: Chat,
    now: datetime,
) -> Turn:
    """A turn that may call tools of a server."""
    connect()
    allow(tools=["files/*"])
    return start_turn(user=alice, chat=chat, text="Do it", now=now).turn


@pytest.fixture
def lose_worker(turn: Turn, work: Work, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Run the turn with two calls. Its worker ends after the server carried out call `number`."""

    def losing(number: int) -> None:
        end_call, ended = tool_steps.store_call_ending, []

        def end_or_die(*args: Any, **named: Any) -> None:
            ended.append(1)
            if len(ended) == number:
                raise WorkerDied
            end_call(*args, **named)

        with monkeypatch.context() as patch:
            patch.setattr(tool_steps, "store_call_ending", end_or_die)
            with pytest.raises(WorkerDied):
                work(turn, TWO_CALLS)
        turn.refresh_from_db()

    return losing


def list_results(request: ProviderRequest) -> list[str]:
    """Return the tool results of a request, one for each of its calls."""
    calls = [call.call_id for wire in request.messages for call in wire.tool_calls]
    results = [(wire.tool_call_id, wire.content) for wire in request.messages if wire.tool_call_id]
    assert [call_id for call_id, _ in results] == calls
    return [content for _, content in results]


def retry(turn: Turn, *, alice: User, work: Work, now: datetime) -> list[str]:
    """Retry a turn, and return the tool results that the model gets. The ledger must match."""
    turn.refresh_from_db()
    assert not ToolStep.objects.exists()
    again = retry_turn(user=alice, turn=turn, now=now)
    worker = work(again, DONE)
    assert again.status == "completed"
    call_command("ledger_verify", scope=f"chat:{turn.branch.chat_id}")
    (sent,) = worker.scripted.requests
    return list_results(sent)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_the_last_worker_is_lost_during_the_second_call(
    turn: Turn,
    lose_worker: Callable[[int], None],
    alice: User,
    work: Work,
    now: datetime,
    settings: Settings,
    *,
    is_stopped: bool,
) -> None:
    lose_worker(2)
    settings.MAX_ATTEMPTS = 1
    if is_stopped:
        stop_turn(user=alice, turn=turn, now=now)
        turn.refresh_from_db()
    release_lost_turn(turn, now=now)
    turn.refresh_from_db()
    reply = Message.objects.get(turn=turn, role="assistant")
    assert turn.reply == reply
    assert (reply.finish, reply.kept) == (
        ("stopped", False) if is_stopped else ("incomplete", True)
    )
    ended = AuditEvent.objects.get(turn_id=turn.pk, type=f"turn.{turn.status}")
    assert [each[0] for each in ended.data["stored"]] == [str(reply.pk)]
    first, second = retry(turn, alice=alice, work=work, now=now)
    assert "echo: first" in first
    assert second.startswith(UNKNOWN)


def test_a_call_that_was_not_reached_was_not_called(
    turn: Turn,
    lose_worker: Callable[[int], None],
    alice: User,
    work: Work,
    now: datetime,
    settings: Settings,
    server: FakeToolServer,
) -> None:
    lose_worker(1)
    settings.MAX_ATTEMPTS = 1
    release_lost_turn(turn, now=now)
    first, second = retry(turn, alice=alice, work=work, now=now)
    assert first.startswith(UNKNOWN)
    assert second == results.format_failure("not_reached", is_unknown=False)
    assert len(server.calls) == 1


def test_a_person_stops_the_reply_while_no_worker_has_it(
    turn: Turn, lose_worker: Callable[[int], None], alice: User, work: Work, now: datetime
) -> None:
    lose_worker(1)
    release_lost_turn(turn, now=now)
    stop_turn(user=alice, turn=turn, now=now)
    turn.refresh_from_db()
    reply = Message.objects.get(turn=turn, role="assistant")
    assert (turn.status, turn.reply, reply.finish) == ("stopped", reply, "stopped")
    first, second = retry(turn, alice=alice, work=work, now=now)
    assert first.startswith(UNKNOWN)
    assert second == results.format_failure("stopped", is_unknown=False)


def test_the_next_attempt_fails_before_its_calls(
    turn: Turn,
    lose_worker: Callable[[int], None],
    alice: User,
    work: Work,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lose_worker(2)
    release_lost_turn(turn, now=now)

    async def fail(*_args: Any, **_named: Any) -> None:
        raise RuntimeError("no prompt")

    with monkeypatch.context() as patch:
        patch.setattr(attempt, "compose_step_prompt", fail)
        work(turn, DONE)
    reply = Message.objects.get(turn=turn, role="assistant")
    assert (reply.finish, reply.kept) == ("incomplete", True)
    first, second = retry(turn, alice=alice, work=work, now=now)
    assert "echo: first" in first
    assert second.startswith(UNKNOWN)


@pytest.mark.parametrize("text", ["", "Let me see."])
def test_a_fault_of_this_server_during_the_second_call(
    turn: Turn,
    alice: User,
    work: Work,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
) -> None:
    call_server = server_tools.run_ready_call

    async def call_and_fail(ready: Any, **named: Any) -> Any:
        ending = await call_server(ready, **named)
        if ready.arguments["text"] == "second":
            raise RuntimeError("a fault of this server")
        return ending

    with monkeypatch.context() as patch:
        patch.setattr(tool_calls, "run_ready_call", call_and_fail)
        work(turn, [*([TextDelta(text)] if text else []), *TWO_CALLS])
    turn.refresh_from_db()
    assert (turn.status, turn.error_code) == ("failed", "internal_error")
    reply = Message.objects.get(turn=turn, role="assistant")
    assert (reply.finish, reply.kept) == ("incomplete", True)
    first, second = retry(turn, alice=alice, work=work, now=now)
    assert "echo: first" in first
    assert second.startswith(UNKNOWN)


def test_an_interrupted_reply_without_calls_is_still_left_out(
    turn: Turn, alice: User, work: Work, now: datetime
) -> None:
    work(turn, [TextDelta("Let me")])
    turn.refresh_from_db()
    assert not Message.objects.get(turn=turn, role="assistant").kept
    assert retry(turn, alice=alice, work=work, now=now) == []
