"""Impossible numbers in stored rows, and rows that fail in a job, do not stop other rows."""

import importlib
import io
import uuid
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import DatabaseError, DataError, OperationalError, connection, transaction
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone

from chats import tasks
from chats.background import due_jobs, ledger_export_lines
from chats.checkpoints import signing, upkeep
from chats.compaction import indexing
from chats.counts import keeping, telling
from chats.ground import databases
from chats.models import Chat, DailyCount, Receipt, SkippedRow
from chats.providers.base import Finished, TextDelta, UsageReport
from chats.turns.start import start_turn
from contextpolicy.engine.policy.costs import UsedTokens, parse_reported_usage
from contextpolicy.models import AuditEvent, LedgerReader, LedgerVerification
from contextpolicy.roles import OPERATOR
from project.middleware import ForeseenErrorsMiddleware
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_summaries import Work

pytestmark = pytest.mark.django_db

ABSURD = [2**64 - 1, 2**63 - 1, 10**9 + 1, -5, True, "many"]


@pytest.mark.parametrize("count", ABSURD, ids=str)
@pytest.mark.parametrize("name", ["input", "output"])
def test_impossible_count_is_an_unknown_use(name: str, count: Any) -> None:
    assert parse_reported_usage({"input": 9, "output": 2, name: count}) is None


def test_impossible_part_from_the_cache_is_not_believed() -> None:
    assert parse_reported_usage({"input": 9, "cached": 2**64, "written": -1}) == UsedTokens(input=9)


def replied(alice: User, chat: Chat, work: Work, tokens: int) -> None:
    """Create a reply that reports this usage."""
    turn = start_turn(user=alice, chat=chat, text="And?", now=timezone.now()).turn
    work(turn, [TextDelta("So."), UsageReport(tokens, 3, 0, 0), Finished("stop")])


def count_all() -> None:
    """Count until no row is left. Fails after five rounds."""
    for _ in range(5):
        if not keeping.count_next_events(now=timezone.now()):
            return
    raise AssertionError("the counts never end")


@pytest.fixture
def broken_row(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Make the counting fail for events that the test selects."""
    real = telling.sum_events

    def breaking(is_bad: Any, error: Exception | None = None) -> None:
        def sums_of(events: Any) -> Any:
            if any(is_bad(event) for event in events):
                raise error or OverflowError("Python int too large")
            return real(events)

        monkeypatch.setattr(keeping, "sum_events", sums_of)

    return breaking


def test_event_that_cannot_be_counted_is_skipped_and_shown(
    alice: User, chat: Chat, work: Work, broken_row: Any, client: Client
) -> None:
    replied(alice, chat, work, 5)
    replied(alice, chat, work, 6)
    bad = AuditEvent.objects.filter(type="turn.completed").order_by("pk").first()
    assert bad is not None
    broken_row(lambda event: event.pk == bad.pk)
    count_all()
    row = DailyCount.objects.get()
    assert (row.replies, row.input) == (1, 6)
    skipped = SkippedRow.objects.get()
    assert (skipped.job, skipped.row, skipped.times) == ("counts", f"ledger event {bad.pk}", 1)
    warning = f"In the last 7 days, the job “counts” skipped ledger event {bad.pk} (OverflowError)."
    assert warning in client.get("/readyz").json()["warnings"]
    operator = signed_in(person("olga", OPERATOR))
    assert warning in operator.get("/admin/chats/dailycount/").content.decode()
    assert signed_in(person("cleo")).get("/admin/chats/dailycount/").status_code in {302, 403}
    SkippedRow.objects.update(last_at=timezone.now() - timedelta(days=8))
    assert warning not in client.get("/readyz").json()["warnings"]


def test_database_that_is_away_skips_no_event(
    alice: User, chat: Chat, work: Work, broken_row: Any
) -> None:
    replied(alice, chat, work, 5)
    broken_row(lambda _event: True, OperationalError("database is locked"))
    with pytest.raises(OperationalError):
        keeping.count_next_events(now=timezone.now())
    assert not SkippedRow.objects.exists()


def test_absurd_usage_in_a_receipt_is_counted_as_unreported(
    alice: User, chat: Chat, work: Work
) -> None:
    for _ in range(2):
        replied(alice, chat, work, 5)
    Receipt.objects.update(usage={"input": 2**63 - 1, "output": 2**63 - 1})
    replied(alice, chat, work, 6)
    count_all()
    row = DailyCount.objects.get()
    assert (row.replies, row.input, row.unreported) == (3, 6, 2)
    assert not SkippedRow.objects.exists()


def test_upgrade_takes_absurd_sums_out_of_the_counts(
    alice: User, chat: Chat, work: Work, client: Client
) -> None:
    now = timezone.now()
    DailyCount.objects.create(day=now.date(), input=2**63 - 1, output=4, replies=1, calls=1)
    DailyCount.objects.create(day=now.date(), model="other", input=8, cost=3, calls=1)
    module = importlib.import_module("chats.migrations.0048_impossible_counts")
    module.repair(apps, None)
    told = DailyCount.objects.order_by("model").values_list("input", "output", "unreported", "cost")
    assert [tuple(row) for row in told] == [(0, 4, 1, 0), (8, 0, 0, 3)]
    assert signed_in(person("olga", OPERATOR)).get("/admin/chats/dailycount/").status_code == 200


def test_every_due_job_runs_although_one_fails(
    monkeypatch: pytest.MonkeyPatch, alice: User, chat: Chat, work: Work
) -> None:
    def fails(_now: Any) -> int:
        raise ValueError("row 7")

    done: list[str] = []

    def send(_now: Any) -> int:
        done.append("webhooks")
        return 1

    steps = {"titles": fails, "webhooks": send}
    monkeypatch.setattr(due_jobs, "DUE_JOBS", steps)
    assert due_jobs.run_all_due_jobs(now=timezone.now()) == 1
    assert due_jobs.run_all_due_jobs(now=timezone.now()) == 1
    assert done == ["webhooks"] * 2
    row = SkippedRow.objects.get()
    assert (row.job, row.row, row.problem, row.times) == (
        "chats.due.titles",
        "all of it",
        "ValueError",
        2,
    )


def test_event_without_a_line_is_skipped_by_the_shipping(
    monkeypatch: pytest.MonkeyPatch, settings: Any, chat: Chat
) -> None:
    first = AuditEvent.objects.earliest("pk")

    def own_line(event: AuditEvent) -> str:
        if event.pk == first.pk:
            raise ValueError(event.pk)
        return str(event.pk)

    monkeypatch.setattr(ledger_export_lines, "FORMS", {"own": own_line})
    settings.LEDGER_LINES = "own"
    out = io.StringIO()
    ledger_export_lines.ship_events(clock=timezone.now, is_closing=lambda: False, out=out)
    assert str(first.pk) not in out.getvalue().split()
    place = LedgerReader.objects.get(pk=ledger_export_lines.READER)
    assert place.last == AuditEvent.objects.order_by("-pk").values_list("pk", flat=True)[0]
    assert SkippedRow.objects.get().job == "ledger lines"


@pytest.mark.parametrize(
    ("error", "busy"),
    [
        (OperationalError("database is locked"), True),
        (OperationalError("disk I/O error"), True),
        (OperationalError("integer overflow"), False),
        (OperationalError("string or blob too big"), False),
    ],
)
def test_overflow_is_not_reported_as_a_busy_database(error: Exception, busy: bool) -> None:
    assert databases.is_retryable_error(error) == busy
    middleware = ForeseenErrorsMiddleware(lambda _request: HttpResponse())
    request = RequestFactory().get("/api/v1/usage", headers={"accept": "application/json"})
    answer = middleware.process_exception(request, error)
    assert answer is not None
    assert (answer.status_code == databases.DatabaseBusy.status) == busy


def test_only_an_overflow_of_the_database_is_a_bad_request() -> None:
    middleware = ForeseenErrorsMiddleware(lambda _request: HttpResponse())
    request = RequestFactory().get("/api/v1/usage", headers={"accept": "application/json"})
    with pytest.raises((OverflowError, DataError)) as caught, transaction.atomic():
        list(Chat.objects.extra(where=["%s > 1"], params=[10**400]))
    answer = middleware.process_exception(request, caught.value)
    assert answer is not None
    assert (answer.status_code, b"bad_request" in answer.content) == (400, True)
    # A fault in the arithmetic of the application stays a server error.
    with pytest.raises(OverflowError) as caught_date:
        _ = date.min - timedelta(days=1)
    assert middleware.process_exception(request, caught_date.value) is None


def test_overflow_of_a_real_database_is_recognised() -> None:
    with (
        pytest.raises(DatabaseError) as caught,
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT ABS(CAST(-9223372036854775808 AS bigint))")
    assert not databases.is_retryable_error(caught.value)


@pytest.mark.parametrize(
    ("error", "shown"),
    [(ValueError("words of a person"), True), (OperationalError("database is locked"), False)],
)
def test_background_task_that_fails_is_shown_to_the_operator(
    monkeypatch: pytest.MonkeyPatch, client: Client, error: Exception, shown: bool
) -> None:
    def fails(*, chat_id: uuid.UUID) -> None:
        raise error

    monkeypatch.setattr(indexing, "update_chat_index", fails)
    chat_id = uuid.uuid4()
    tasks.index_chat.apply(kwargs={"chat_id": str(chat_id)}, throw=False)
    warnings = client.get("/readyz").json()["warnings"]
    assert any(f"chat_id {chat_id} (ValueError)" in warning for warning in warnings) == shown
    assert "words of a person" not in str(warnings)


def test_verification_is_asked_for_although_no_checkpoint_can_be_signed(
    monkeypatch: pytest.MonkeyPatch, chat: Chat
) -> None:
    def fails(**_named: Any) -> None:
        raise ValueError("row 7")

    monkeypatch.setattr(signing, "sign_checkpoint", fails)
    monkeypatch.setattr(upkeep, "is_checkpoint_due", lambda **_named: True)
    monkeypatch.setattr(upkeep, "select_due_verification", lambda **_named: "all")
    upkeep.maintain_ledger(now=timezone.now())
    assert LedgerVerification.objects.exists()
    assert SkippedRow.objects.get().row == "signing"
