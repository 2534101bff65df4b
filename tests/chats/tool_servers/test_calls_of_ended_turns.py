"""Calls that have not ended when their turn ends: refused if not started, otherwise unknown."""

from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection
from pytest_django import Settings

from chats.models import Chat, ToolCall, ToolStep, Turn
from chats.providers.base import Finished, TextDelta
from chats.record import messages
from chats.turns import attempt
from chats.turns.consents import decide_tool_call, list_waiting_calls
from chats.turns.recover import release_lost_turn
from chats.turns.start import start_turn
from chats.turns.stop import stop_turn
from contextpolicy import ledger
from contextpolicy.models import AuditEvent, ToolServer
from tests.fakes.tool_server import FakeToolServer
from tests.support.tool_calls import call_echo

Connect = Callable[..., ToolServer]
Allow = Callable[..., None]
Work = Callable[..., Any]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
UPGRADE = import_module("chats.migrations.0088_end_calls_of_ended_turns")
LOST = ("unknown", "worker_lost")
NOT_STARTED = ("refused", "stopped")


class WorkerDied(BaseException):
    """The process ends here."""


def die(*_args: Any, **_named: Any) -> None:
    raise WorkerDied


def list_outcomes(turn: Turn) -> list[tuple[str, str]]:
    """Return the outcomes and codes of a turn's calls, which the ledger must have too."""
    rows = list(ToolCall.objects.filter(turn=turn).order_by("place"))
    assert not ToolStep.objects.filter(turn=turn).exists()
    events = AuditEvent.objects.filter(turn_id=turn.pk, type="tool.called").order_by("seq")
    recorded = [(each.data["outcome"], each.data.get("code", "")) for each in events]
    found = [(row.outcome, row.code) for row in rows]
    assert sorted(recorded) == sorted(found)
    return found


@pytest.fixture
def begin(
    connect: Connect, allow: Allow, alice: User, chat: Chat, now: datetime
) -> Callable[..., Turn]:
    """Start a turn that may call tools of a server; `asks`: with consent."""

    def beginning(*, asks: bool = False) -> Turn:
        connect(asks=asks)
        allow(tools=["files/*"])
        return start_turn(user=alice, chat=chat, text="Do it", now=now).turn

    return beginning


@pytest.fixture
def interrupted(
    begin: Callable[..., Turn], work: Work, server: FakeToolServer, monkeypatch: pytest.MonkeyPatch
) -> Turn:
    """A turn whose worker died after its call reached the server."""
    turn = begin()
    with monkeypatch.context() as patch:
        patch.setattr("chats.turns.tool_steps.store_call_ending", die)
        with pytest.raises(WorkerDied):
            work(turn, call_echo("a"))
    assert len(server.calls) == 1
    turn.refresh_from_db()
    return turn


def test_a_turn_that_loses_its_last_worker(
    interrupted: Turn, now: datetime, settings: Settings
) -> None:
    settings.MAX_ATTEMPTS = 1
    release_lost_turn(interrupted, now=now)
    interrupted.refresh_from_db()
    assert interrupted.status == "failed"
    assert list_outcomes(interrupted) == [LOST]


@pytest.mark.parametrize("is_released", [False, True])
def test_a_turn_that_is_stopped_while_it_has_no_worker(
    interrupted: Turn, alice: User, now: datetime, *, is_released: bool
) -> None:
    if is_released:
        release_lost_turn(interrupted, now=now)
        interrupted.refresh_from_db()
    stop_turn(user=alice, turn=interrupted, now=now)
    if not is_released:
        interrupted.refresh_from_db()
        release_lost_turn(interrupted, now=now)
    interrupted.refresh_from_db()
    assert interrupted.status == "stopped"
    assert list_outcomes(interrupted) == [LOST]


def test_a_turn_whose_next_attempt_fails_before_its_calls(
    interrupted: Turn, now: datetime, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    release_lost_turn(interrupted, now=now)

    async def fail(*_args: Any, **_named: Any) -> None:
        raise RuntimeError("no prompt")

    monkeypatch.setattr(attempt, "compose_step_prompt", fail)
    work(interrupted, [TextDelta("Done."), Finished("stop")])
    interrupted.refresh_from_db()
    assert interrupted.status == "failed"
    assert list_outcomes(interrupted) == [LOST]


def test_a_turn_that_fails_while_its_call_runs(
    begin: Callable[..., Turn],
    work: Work,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn = begin()

    def fail(*_args: Any, **_named: Any) -> str:
        raise RuntimeError("a fault in the format")

    monkeypatch.setattr("chats.turns.server_tools.format_result", fail)
    work(turn, call_echo("a"))
    turn.refresh_from_db()
    assert (turn.status, turn.error_code) == ("failed", "internal_error")
    assert list_outcomes(turn) == [("unknown", "internal_error")]


def test_locks_of_the_branch_and_the_memory_come_before_the_ledger(
    begin: Callable[..., Turn],
    alice: User,
    work: Work,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise an erasure or a summary can deadlock with the end of the turn."""
    turn = begin(asks=True)
    work(turn, call_echo("a", "b"))
    turn.refresh_from_db()
    call = list_waiting_calls(turn)[0]
    decide_tool_call(user=alice, turn=turn, call_id=call.id, decision="once", now=now)
    turn.refresh_from_db()
    stop_turn(user=alice, turn=turn, now=now)
    steps: list[str] = []
    for module, name in ((messages, "append_step"), (ledger, "record_event")):
        function = getattr(module, name)

        def note(*args: Any, step: str = name, run: Any = function, **named: Any) -> Any:
            steps.append(step)
            return run(*args, **named)

        monkeypatch.setattr(module, name, note)
    work(turn, [TextDelta("Done."), Finished("stop")])
    assert "record_event" in steps
    assert "append_step" not in steps[steps.index("record_event") :]


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_turn_that_is_stopped_while_it_waits_for_consent(
    begin: Callable[..., Turn],
    alice: User,
    work: Work,
    now: datetime,
    server: FakeToolServer,
    allowed: int,
) -> None:
    turn = begin(asks=True)
    work(turn, call_echo("a", "b"))
    turn.refresh_from_db()
    for call in list_waiting_calls(turn)[:allowed]:
        decide_tool_call(user=alice, turn=turn, call_id=call.id, decision="once", now=now)
    turn.refresh_from_db()
    stop_turn(user=alice, turn=turn, now=now)
    work(turn, [TextDelta("Done."), Finished("stop")])
    turn.refresh_from_db()
    assert turn.status == "stopped"
    assert list_outcomes(turn) == [NOT_STARTED, NOT_STARTED]
    assert server.calls == []


def test_an_upgrade_ends_calls_that_earlier_versions_left_in_progress(
    interrupted: Turn, now: datetime, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (started,) = ToolCall.objects.all()
    for place, consent in ((8, "waiting"), (9, "")):
        values = {"consent": consent, "attempt": 0, "started_at": started.started_at}
        ToolCall.objects.create(turn=interrupted, step=1, place=place, **values)
    upgrade = SimpleNamespace(connection=connection)
    UPGRADE.end_open_calls(apps, upgrade)
    assert set(ToolCall.objects.values_list("outcome", flat=True)) == {"open"}
    settings.MAX_ATTEMPTS = 1
    monkeypatch.setattr("chats.turns.tool_steps.close_tool_steps", lambda *_args, **_named: None)
    release_lost_turn(interrupted, now=now)
    assert ToolStep.objects.exists()
    UPGRADE.end_open_calls(apps, upgrade)
    assert not ToolStep.objects.exists()
    rows = ToolCall.objects.order_by("place").values_list("outcome", "code", "consent")
    assert list(rows) == [(*LOST, ""), (*NOT_STARTED, "denied"), (*NOT_STARTED, "")]
