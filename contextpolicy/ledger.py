"""The audit ledger: the only writer of audit events, and their verification.

There is one hash chain per scope (a chat, or `instance`), so that two chats never block each other:
h_n = SHA-256(h_{n-1} ‖ canonical JSON of row n). The head row is locked and moved in the same
transaction, so seqs have no gaps and a truncated chain is detected. Rows contain ids, numbers,
field names and reasons; never the text of a message, a prompt or a summary.
"""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol

from django.db import transaction
from django.dispatch import Signal

from contextpolicy import statements
from contextpolicy.event_types import EVENT_TYPES
from contextpolicy.models import AuditEvent, LedgerHead
from speed import prepared

INSTANCE = "instance"


GENESIS = "0" * 64


# Maximum number of times that the end of a growing chain is read again during verification.
LOOKS = 5


# Sent with each appended `event`, in its transaction, which may still be rolled back.
recorded = Signal()


# Sent with each signed `checkpoint`, in its transaction.
checkpointed = Signal()


class UnknownEventType(Exception):
    """The type is not in the closed list."""


def record_event(
    event_type: str,
    *,
    actor: str,
    now: datetime,
    chat_id: uuid.UUID | None = None,
    turn_id: uuid.UUID | None = None,
    data: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Append one event to its scope's chain, in the caller's transaction.

    `actor` is `user:<id>`, `system`, or `worker`; `data` must be JSON-serialisable. The event
    commits or rolls back with the change that it records. Raises `UnknownEventType`, ValueError for
    NaN and infinity in `data`, and Django's TransactionManagementError if no transaction is open.
    """
    head = lock_chain_head(f"chat:{chat_id}" if chat_id else INSTANCE)
    event = AuditEvent(
        type=event_type,
        at=now.astimezone(UTC),
        actor=actor,
        chat_id=chat_id,
        turn_id=turn_id,
        data=normalise_event_data(data or {}),
    )
    append_event(event, head=head)
    return event


def count_chat_events(chat_id: uuid.UUID) -> int:
    """Return the number of a chat's events, which increases with every change to it."""
    rows = statements.EVENT_COUNT.tuples(scope=f"chat:{chat_id}")
    return int(rows[0][0]) if rows else 0


def begin_chain(event_type: str, *, actor: str, now: datetime, chat_id: uuid.UUID) -> AuditEvent:
    """Append the first event of a chat created in this transaction. No lock is needed.

    Raises `UnknownEventType`, and Django's TransactionManagementError if no transaction is open.
    """
    check_transaction_open()
    head = LedgerHead(scope=f"chat:{chat_id}", count=0, last_hash=GENESIS)
    event = AuditEvent(
        type=event_type, at=now.astimezone(UTC), actor=actor, chat_id=chat_id, data={}
    )
    prepared.insert_row(head)
    append_event(event, head=head)
    return event


def append_event(event: AuditEvent, *, head: LedgerHead) -> None:
    """Insert the event after `head`, and move the head. Raises `UnknownEventType`."""
    if event.type not in EVENT_TYPES:
        raise UnknownEventType(event.type)
    event.scope, event.seq, event.previous_hash = head.scope, head.count + 1, head.last_hash
    event.hash = compute_event_hash(event)
    prepared.insert_row(event)
    head.count, head.last_hash = event.seq, event.hash
    prepared.save_row_fields(head, "count", "last_hash")
    recorded.send(sender=AuditEvent, event=event)


def lock_chain_head(scope: str) -> LedgerHead:
    """Lock the head of a chain until the transaction ends, and return it.

    The head is created with the first event. SQLite has no row locks; there the IMMEDIATE
    transaction is the lock. Raises Django's TransactionManagementError if no transaction is open.
    """
    check_transaction_open()
    head = statements.LEDGER_HEAD.first(scope=scope)
    if head is None:
        # If two transactions start a chain at once, the second waits here for the first.
        new = LedgerHead(scope=scope, count=0, last_hash=GENESIS)
        LedgerHead.objects.bulk_create([new], ignore_conflicts=True)
        head = LedgerHead.objects.select_for_update().get(pk=scope)
    return head


def check_transaction_open() -> None:
    """Raise Django's TransactionManagementError if no transaction is open."""
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("An audit event needs an open transaction.")


def normalise_event_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data in a form that every database returns unchanged, so that hashes match.

    PostgreSQL stores JSON numbers by value: 1e+22 is returned as an integer. Whole floats are
    therefore stored as integers. Raises ValueError for NaN and infinity, which are not JSON.
    """
    text = json.dumps(dict(data), allow_nan=False)
    stored: dict[str, Any] = json.loads(text, parse_float=_whole_if_it_is)
    return stored


def _whole_if_it_is(text: str) -> float | int:
    number = float(text)
    # From the digits, like PostgreSQL: int(1e23) differs from 10**23.
    return int(Decimal(text)) if number.is_integer() else number


def compute_event_hash(event: AuditEvent) -> str:
    """Hash the previous hash and the row's line with SHA-256."""
    return hashlib.sha256((event.previous_hash + format_event_line(event)).encode()).hexdigest()


def format_event_line(event: AuditEvent) -> str:
    """Return the row as canonical JSON (sorted keys, no spaces, ASCII), for hash and export."""
    content = {
        "scope": event.scope,
        "seq": event.seq,
        "type": event.type,
        "at": event.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": event.actor,
        "chat_id": str(event.chat_id) if event.chat_id else None,
        "turn_id": str(event.turn_id) if event.turn_id else None,
        "data": event.data,
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


@dataclass(frozen=True, slots=True)
class Break:
    """A row that does not pass verification. Seq 0: the fault is not in a single row."""

    scope: str
    seq: int
    reason: str


class Check(Protocol):
    """Compares stored rows with the hashes that the ledger recorded."""

    def __call__(self, *, scope: str | None, tally: Counter[str]) -> Iterator[Break]:
        """Yield mismatching rows; `tally` counts the results by sentence."""


# Apps of higher layers register their checks when they are loaded.
CHECKS: list[Check] = []


class AnchorCheck(Protocol):
    """Compares the ledger with data stored outside the database."""

    def __call__(self, *, tally: Counter[str]) -> Iterator[Break]:
        """Yield the differences; `tally` counts the comparisons by sentence."""


# Nightly verifications of single chains run these. For all chains, a registered check does.
ANCHORS: list[AnchorCheck] = []


class ContentCheck(Protocol):
    """A slow comparison of stored content with the hashes in the ledger."""

    def __call__(
        self, *, scopes: Sequence[str | None], tally: Counter[str], is_late: Callable[[], bool]
    ) -> Iterator[Break]:
        """Yield differences until the time is up.

        If `scopes` contains None, the check covers a part of the content of all chains. `tally`
        counts the comparisons by sentence.
        """


# Run with a time limit, in background verifications and for small ledgers.
CONTENTS: list[ContentCheck] = []


def find_ledger_breaks(
    *, scope: str | None = None, tally: Counter[str] | None = None
) -> Iterator[Break]:
    """Yield the first break of every chain, and rows that do not match their recorded hashes.

    Yields nothing if everything is valid. `tally` counts the results by sentence. Read-only.
    """
    yield from find_chain_breaks(scope=scope)
    for check in CHECKS:
        yield from check(scope=scope, tally=Counter() if tally is None else tally)


def find_chain_breaks(*, scope: str | None = None) -> Iterator[Break]:
    """Yield every chain's first break; nothing if all chains are valid.

    Chains may grow during verification: if a head row and the rows differ, both are read again.
    """
    heads = LedgerHead.objects.order_by("scope")
    events = AuditEvent.objects.order_by("scope", "seq")
    if scope is not None:
        heads, events = heads.filter(scope=scope), events.filter(scope=scope)
    expected = {head.scope: head for head in heads}
    chain = Chain()
    for event in events.iterator(chunk_size=2000):
        if event.scope != chain.scope:
            yield from chain.end(expected.pop(chain.scope, None))
            chain = Chain(event.scope)
        chain.follow(event)
    yield from chain.end(expected.pop(chain.scope, None))
    for head in expected.values():
        yield from Chain(head.scope).end(head)


class Chain:
    """One chain of the ledger, whose rows are read in order to verify their hashes."""

    def __init__(self, scope: str = "") -> None:
        self.scope = scope
        self.seq = 0
        self.last_hash = GENESIS
        self.broken: Break | None = None

    def follow(self, event: AuditEvent) -> None:
        """Check one row against the previous row; only the first break counts."""
        self.seq += 1
        if self.broken is None:
            reason = self.fault(event)
            if reason:
                self.broken = Break(self.scope, self.seq, reason)
        self.last_hash = event.hash

    def fault(self, event: AuditEvent) -> str:
        """Return the reason why a row does not continue the chain; empty if it does."""
        if event.seq != self.seq:
            return f"row {self.seq} is missing"
        if event.previous_hash != self.last_hash:
            return "the row does not continue the previous row"
        if event.hash != compute_event_hash(event):
            return "the content of the row was changed"
        return ""

    def end(self, head: LedgerHead | None) -> Iterator[Break]:
        """Yield the chain's first break, or a mismatch with its head row (a truncated chain)."""
        if not self.scope:
            return
        for _ in range(LOOKS):
            if self.broken or not self.misfit(head):
                break
            head = self.look_again()
        if found := self.broken or self.misfit(head):
            yield found

    def misfit(self, head: LedgerHead | None) -> Break | None:
        """Return the mismatch between the head row and the end of the chain, or None."""
        if head is None:
            return Break(self.scope, self.seq, "the stored length of the audit log is missing")
        if head.count > self.seq:
            return Break(
                self.scope, self.seq + 1, f"later rows are missing: {head.count} rows were written"
            )
        if head.count < self.seq:
            reason = "the stored length of the audit log does not include this row"
            return Break(self.scope, head.count + 1, reason)
        if head.last_hash != self.last_hash:
            return Break(self.scope, self.seq, "the stored hash of the last row is different")
        return None

    def look_again(self) -> LedgerHead | None:
        """Check the rows written since the last read, and return the current head row.

        None if the chain has no head row.
        """
        head = LedgerHead.objects.filter(scope=self.scope).first()
        for event in AuditEvent.objects.filter(scope=self.scope, seq__gt=self.seq).order_by("seq"):
            self.follow(event)
        return head
