"""The writer of audit events: rows are chained and gap-free, in the transaction of the change."""

import json
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError

from contextpolicy.event_types import EVENT_TYPES
from contextpolicy.ledger import (
    GENESIS,
    UnknownEventType,
    compute_event_hash,
    find_ledger_breaks,
    normalise_event_data,
    record_event,
)
from contextpolicy.models import AuditEvent, LedgerHead
from contextpolicy.models.audit import AppendOnly

CHAT = uuid.UUID("018f0000-0000-7000-8000-000000000001")

pytestmark = pytest.mark.django_db


def test_each_event_continues_the_one_before_it_in_its_scope(now: datetime) -> None:
    first = record_event("chat.created", actor="user:1", now=now, chat_id=CHAT)
    other = record_event("policy.created", actor="user:2", now=now)
    second = record_event("turn.started", actor="user:1", now=now, chat_id=CHAT, data={"n": 1})

    assert (first.scope, first.seq, first.previous_hash) == (f"chat:{CHAT}", 1, GENESIS)
    assert (second.scope, second.seq, second.previous_hash) == (first.scope, 2, first.hash)
    assert (other.scope, other.seq) == ("instance", 1)
    head = LedgerHead.objects.get(pk=first.scope)
    assert (head.count, head.last_hash) == (2, second.hash)
    assert list(find_ledger_breaks()) == []


def test_the_vocabulary_is_closed(now: datetime) -> None:
    with pytest.raises(UnknownEventType, match=r"^chat\.exploded$"):
        record_event("chat.exploded", actor="system", now=now)

    assert all(event == event.lower() and "." in event for event in EVENT_TYPES)


def test_an_event_falls_with_the_change_it_reports(now: datetime) -> None:
    def change_that_fails() -> None:
        with transaction.atomic():
            record_event("policy.created", actor="user:1", now=now)
            raise RuntimeError("the change failed")

    with pytest.raises(RuntimeError):
        change_that_fails()

    assert not AuditEvent.objects.exists()
    assert not LedgerHead.objects.exists()


def test_an_event_outside_a_transaction_is_refused(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction.get_connection(), "in_atomic_block", False)

    with pytest.raises(TransactionManagementError):
        record_event("policy.created", actor="user:1", now=now)


def test_a_time_of_another_zone_is_hashed_as_the_same_instant(now: datetime) -> None:
    there = now.astimezone(timezone(timedelta(hours=5, minutes=45)))

    record_event("policy.created", actor="user:1", now=there)

    assert AuditEvent.objects.get().at == now
    assert list(find_ledger_breaks()) == []


@pytest.mark.parametrize(
    "data",
    [
        {"share": 0.7, "whole": 2.0, "huge": 1e22, "huger": 1.1e30, "tiny": 1.5e-7, "zero": -0.0},
        {"nested": {"b": [1, None, True], "a": ("x", "ä", "\U0001f600")}},
        {10: "ten", 2: "two"},
    ],
    ids=["numbers", "nesting", "number keys"],
)
@pytest.mark.policy_case(16)
def test_what_a_database_gives_back_has_the_hash_that_was_stored(
    data: dict[str, object], now: datetime
) -> None:
    event = record_event("policy.created", actor="user:1", now=now, data=data)

    reread = AuditEvent.objects.get(pk=event.pk)

    assert compute_event_hash(reread) == event.hash
    assert list(find_ledger_breaks()) == []


def test_numbers_are_stored_as_a_database_that_keeps_them_by_value_would() -> None:
    stored = normalise_event_data({"huge": 1e22, "whole": 3.0, "share": 0.45})

    assert json.dumps(stored) == '{"huge": 10000000000000000000000, "whole": 3, "share": 0.45}'


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=["nan", "inf"])
def test_numbers_that_are_no_json_are_refused(number: float, now: datetime) -> None:
    with pytest.raises(ValueError, match="JSON"):
        record_event("policy.created", actor="user:1", now=now, data={"n": number})


def test_the_orm_refuses_changes_and_deletions(now: datetime) -> None:
    event = record_event("policy.created", actor="user:1", now=now)

    for attempt in (
        event.save,
        event.delete,
        AuditEvent.objects.all().delete,
        lambda: AuditEvent.objects.update(actor="user:9"),
        lambda: AuditEvent.objects.bulk_update([event], ["actor"]),
        lambda: AuditEvent.objects.bulk_create([event]),
    ):
        with pytest.raises(AppendOnly):
            attempt()


def test_one_scope_can_be_verified_alone(now: datetime) -> None:
    record_event("chat.created", actor="user:1", now=now, chat_id=CHAT)
    record_event("policy.created", actor="user:1", now=now)

    assert list(find_ledger_breaks(scope="instance")) == []
    assert list(find_ledger_breaks(scope=f"chat:{CHAT}")) == []


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("scope", [None, "instance", f"chat:{CHAT}"])
def test_a_chain_that_grows_while_it_is_verified_is_not_broken(
    scope: str | None, times: int, now: datetime
) -> None:
    record_event("policy.created", actor="user:1", now=now)
    left = [times]

    def meanwhile(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Extend both chains each time after a head was read and before the rows are."""
        if sql.startswith("SELECT") and 'FROM "contextpolicy_auditevent"' in sql and left[0]:
            left[0] -= 1
            record_event("policy.assigned", actor="user:1", now=now)
            record_event("turn.started", actor="user:1", now=now, chat_id=CHAT)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(meanwhile):
        found = list(find_ledger_breaks(scope=scope))

    assert found == []
    assert left == [0]
    assert AuditEvent.objects.count() > 2


def test_recording_takes_a_bounded_number_of_queries(
    now: datetime, django_assert_num_queries: object
) -> None:
    record_event("policy.created", actor="user:1", now=now)

    with django_assert_num_queries(3):  # type: ignore[operator]  # pytest-django gives no type
        record_event("policy.created", actor="user:1", now=now)
