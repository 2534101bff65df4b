"""The audit ledger: the one writer of audit events, and their verification.

One hash chain per scope (a chat, or `instance`), so that two chats never wait for each other:
h_n = SHA-256(h_{n-1} ‖ canonical JSON of row n). The head row is locked and moved in the same
transaction, which makes seqs gap-free and shows a cut tail. Rows carry ids, numbers, names of
fields and reasons; never the text of a message, a prompt or a summary.
"""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from django.db import transaction
from django.dispatch import Signal

from contextpolicy import statements
from contextpolicy.models import AuditEvent, LedgerHead
from speed import prepared

INSTANCE = "instance"
GENESIS = "0" * 64
# The end of a chain that grows while it is verified is read again at most so often.
LOOKS = 5

# The closed vocabulary: dotted, past tense. A new kind of event begins here.
EVENT_TYPES = frozenset(
    {
        "api_key.created",
        "api_key.revoked",
        "api_key.used",
        "branch.chosen",
        "branch.created",
        "chat.created",
        "chat.deleted",
        "chat.erased",
        "chat.exported",
        "chat.imported",
        "chat.model_changed",
        "chat.preferences_asked",
        "chat.preferences_read",
        "chat.renamed",
        "chat.restored",
        "chat.system_text_changed",
        "chat.title_asked",
        "chat.titled",
        "checkpoint.key_changed",
        "checkpoint.origin_opened",
        "checkpoint.signed",
        "compaction.approved",
        "compaction.asked",
        "compaction.breaker_reset",
        "compaction.failed",
        "compaction.overtaken",
        "compaction.prepared",
        "compaction.published",
        "compaction.redone",
        "compaction.rejected",
        "compaction.resumed",
        "compaction.revised",
        "compaction.skipped",
        "compaction.started",
        "compaction.undone",
        "content.asked",
        "content.closed",
        "content.downloaded",
        "content.granted",
        "content.opened",
        "content.read",
        "content.refused",
        "context.compressed",
        "context.warmed",
        "erasure.asked",
        "erasure.withdrawn",
        "evaluation.ended",
        "evaluation.promoted",
        "evaluation.started",
        "gateway.passed_on",
        "hold.placed",
        "hold.released",
        "import.ended",
        "import.started",
        "ledger.export_started",
        "ledger.exported",
        "ledger.form_changed",
        "ledger.read",
        "login.failed",
        "login.link_created",
        "login.succeeded",
        "login.throttled",
        "logout.succeeded",
        "memory.consented",
        "memory.inferring_agreed",
        "memory.inferring_withdrawn",
        "memory.instructions_changed",
        "memory.paused",
        "memory.resumed",
        "memory.withdrawn",
        "message.erased",
        "message.excluded",
        "message.included",
        "message.kept",
        "message.pinned",
        "message.unpinned",
        "model.changed",
        "model.limit_learned",
        "model.limit_reset",
        "password.changed",
        "policy.assigned",
        "policy.changed",
        "policy.created",
        "policy.unassigned",
        "policy.version_activated",
        "policy.version_created",
        "preference.accepted",
        "preference.confirmed",
        "preference.deleted",
        "preference.noted",
        "preference.withdrawn",
        "preference.written",
        "provider.breaker_opened",
        "provider.changed",
        "provider.created",
        "provider.deleted",
        "radius.finished",
        "radius.resumed",
        "radius.started",
        "radius.stopped",
        "receipt.erased",
        "retention.ended",
        "retention.started",
        "role.changed",
        "round.ended",
        "round.started",
        "state.corrected",
        "summary.tried",
        "state.extracted",
        "state.kept",
        "search.model_chosen",
        "skill.changed",
        "skill.created",
        "state.reset",
        "state.restored",
        "team.changed",
        "team.chosen",
        "team.cleared",
        "team.created",
        "team.deleted",
        "team.imported",
        "team.message_added",
        "team.restored",
        "team.task_changed",
        "tool.called",
        "turn.absorbed",
        "turn.completed",
        "turn.failed",
        "turn.handed_back",
        "turn.requeued",
        "turn.restarted",
        "turn.started",
        "turn.stop_requested",
        "turn.stopped",
        "user.changed",
        "webhook.changed",
        "webhook.created",
        "webhook.deleted",
        "webhook.overflowed",
        "webhook.switched_off",
        "window.moved",
    }
)


# Sent with each `event` that was appended, in its transaction, which may still be rolled back.
recorded = Signal()
# Sent with each `checkpoint` that was signed, in its transaction.
checkpointed = Signal()


class UnknownEventType(Exception):
    """The type is not in the closed vocabulary."""


def record(
    event_type: str,
    *,
    actor: str,
    now: datetime,
    chat_id: uuid.UUID | None = None,
    turn_id: uuid.UUID | None = None,
    data: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Append one event to its scope's chain, in the caller's transaction.

    `actor` is `user:<id>`, `system`, or `worker`; `data` is JSON-ready. Raises
    `UnknownEventType`, and Django's TransactionManagementError when no transaction is open: an
    event stands or falls with the change it reports.
    """
    head = locked_head(f"chat:{chat_id}" if chat_id else INSTANCE)
    event = AuditEvent(
        type=event_type,
        at=now.astimezone(UTC),
        actor=actor,
        chat_id=chat_id,
        turn_id=turn_id,
        data=as_stored(data or {}),
    )
    append(event, head=head)
    return event


def begin_chain(event_type: str, *, actor: str, now: datetime, chat_id: uuid.UUID) -> AuditEvent:
    """Append the first event of a chat that this transaction makes: nobody else knows the chain."""
    check_open()
    head = LedgerHead(scope=f"chat:{chat_id}", count=0, last_hash=GENESIS)
    event = AuditEvent(
        type=event_type, at=now.astimezone(UTC), actor=actor, chat_id=chat_id, data={}
    )
    prepared.insert(head)
    append(event, head=head)
    return event


def append(event: AuditEvent, *, head: LedgerHead) -> None:
    """Write the event as the next one behind `head`, and move the head.

    Raises `UnknownEventType`.
    """
    if event.type not in EVENT_TYPES:
        raise UnknownEventType(event.type)
    event.scope, event.seq, event.previous_hash = head.scope, head.count + 1, head.last_hash
    event.hash = event_hash(event)
    prepared.insert(event)
    head.count, head.last_hash = event.seq, event.hash
    prepared.save(head, "count", "last_hash")
    recorded.send(sender=AuditEvent, event=event)


def locked_head(scope: str) -> LedgerHead:
    """Return the head of a chain, locked until the transaction ends; made at the first event.

    Where the database has no row locks (SQLite), its IMMEDIATE transaction is the lock.
    """
    check_open()
    head = statements.LEDGER_HEAD.first(scope=scope)
    if head is None:
        # When two transactions start a chain at once, the second waits here for the first.
        new = LedgerHead(scope=scope, count=0, last_hash=GENESIS)
        LedgerHead.objects.bulk_create([new], ignore_conflicts=True)
        head = LedgerHead.objects.select_for_update().get(pk=scope)
    return head


def check_open() -> None:
    """Raise Django's TransactionManagementError when no transaction is open."""
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("An audit event needs an open transaction.")


def as_stored(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data as every database gives it back, so that the hash can be computed again.

    PostgreSQL keeps JSON numbers by value: 1e+22 returns as a whole number. Whole floats are
    therefore stored as integers. Raises ValueError for NaN and infinity, which are no JSON.
    """
    text = json.dumps(dict(data), allow_nan=False)
    stored: dict[str, Any] = json.loads(text, parse_float=_whole_if_it_is)
    return stored


def _whole_if_it_is(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


def event_hash(event: AuditEvent) -> str:
    """Hash the previous hash and the row's line with SHA-256."""
    return hashlib.sha256((event.previous_hash + line_of(event)).encode()).hexdigest()


def line_of(event: AuditEvent) -> str:
    """Write the row as canonical JSON (sorted keys, no spaces, ASCII): what is hashed, exported."""
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
    """The first place where a chain does not hold; seq 0: no single row is at fault."""

    scope: str
    seq: int
    reason: str


class Check(Protocol):
    """A verification of rows that the ledger commits to."""

    def __call__(self, *, scope: str | None, told: Counter[str]) -> Iterator[Break]:
        """Yield where the rows do not fit; `told` counts, by a sentence, what was found."""


# The apps above add their checks when they are loaded.
CHECKS: list[Check] = []


class AnchorCheck(Protocol):
    """A comparison of the ledger with something outside the database."""

    def __call__(self, *, told: Counter[str]) -> Iterator[Break]:
        """Yield the differences of the ledger; `told` counts the comparisons by a sentence."""


# `verify` runs them for all chains; a verification of single chains runs them separately.
ANCHORS: list[AnchorCheck] = []


def verify(*, scope: str | None = None, told: Counter[str] | None = None) -> Iterator[Break]:
    """Yield the first break of every chain, and rows that do not fit what the ledger commits to.

    Yields nothing when all holds. `told` gets what was found, counted by sentences. Reads, never
    writes.
    """
    yield from chains(scope=scope)
    for check in CHECKS:
        yield from check(scope=scope, told=Counter() if told is None else told)


def chains(*, scope: str | None = None) -> Iterator[Break]:
    """Yield every chain's first break; nothing when all chains hold.

    Chains grow meanwhile: where a head row and the rows do not fit, both are read again.
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
    """One chain while it is being read in order."""

    def __init__(self, scope: str = "") -> None:
        self.scope = scope
        self.seq = 0
        self.last_hash = GENESIS
        self.broken: Break | None = None

    def follow(self, event: AuditEvent) -> None:
        """Check one row against the row before it; only the first break counts."""
        self.seq += 1
        if self.broken is None:
            reason = self.fault(event)
            if reason:
                self.broken = Break(self.scope, self.seq, reason)
        self.last_hash = event.hash

    def fault(self, event: AuditEvent) -> str:
        """Say why the row does not continue the chain; empty when it does."""
        if event.seq != self.seq:
            return f"row {self.seq} is missing"
        if event.previous_hash != self.last_hash:
            return "it does not continue the row before it"
        if event.hash != event_hash(event):
            return "its content was changed"
        return ""

    def end(self, head: LedgerHead | None) -> Iterator[Break]:
        """Yield the chain's first break, or what its head row says about a cut tail."""
        if not self.scope:
            return
        for _ in range(LOOKS):
            if self.broken or not self.misfit(head):
                break
            head = self.look_again()
        if found := self.broken or self.misfit(head):
            yield found

    def misfit(self, head: LedgerHead | None) -> Break | None:
        """Say how the head row contradicts the end of the chain; None when it does not."""
        if head is None:
            return Break(self.scope, self.seq, "its head row is missing")
        if head.count > self.seq:
            return Break(self.scope, self.seq + 1, f"{head.count} rows were written")
        if head.count < self.seq:
            return Break(self.scope, head.count + 1, "the head row does not count it")
        if head.last_hash != self.last_hash:
            return Break(self.scope, self.seq, "the head row names another last row")
        return None

    def look_again(self) -> LedgerHead | None:
        """Return the head row as it is now, and follow the rows written since the last look."""
        head = LedgerHead.objects.filter(scope=self.scope).first()
        for event in AuditEvent.objects.filter(scope=self.scope, seq__gt=self.seq).order_by("seq"):
            self.follow(event)
        return head
