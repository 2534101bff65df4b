"""Verifies that rows match the ledger's commitments, in both directions, chat by chat.

Every commitment in the ledger must have a receipt or summary, from whose text and salt it can be
recomputed. Every call of an ended attempt, and every finished summary, must be in a ledger entry.
Calls and summaries that an erasure made unverifiable, and those older than commitments, are counted
and reported.
"""

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db.models import F, Q, QuerySet
from django.utils.translation import gettext_noop

from chats.ground.commitments import is_commitment_valid
from chats.models import Chat, Compaction, Receipt, Turn
from chats.record.erasure_marks import EVENT as ERASURE_MARKS
from chats.record.receipts import EMPTIED, WRITTEN, recompute_commitment
from contextpolicy import ledger, rollback
from contextpolicy.ledger import Break
from contextpolicy.models import AuditEvent, LedgerHead

# Chats verified together.
PAGE = 100
SCOPE = "chat:"
ENDINGS = (
    "turn.completed",
    "turn.failed",
    "turn.handed_back",
    "turn.requeued",
    "turn.stopped",
    "turn.waiting",
)
# The entry of a call outside of attempts. It commits to the call before it is made.
BESIDE = ("chat.preferences_asked", "chat.title_asked", "context.warmed")
ERASURE = "message.erased"
# The entries that name erased receipts and summaries, each in the chain of their chat.
ERASURES = (ERASURE, ERASURE_MARKS)
ERASED_WHOLE = "chat.erased"
# In versions that could not restore chats, this was a chat's last entry. Later versions add a time
# to it.
DELETED = "chat.deleted"
UNSAID = "is marked as erased without an audit log entry"
# Other results. Verifications and the command show them in English.
OTHER_COMMITMENT = "has a different commitment from this entry"
OTHER_BODY = "has a different body hash from this entry"
OTHER_BODIES = "has different body hashes from this entry"
OTHER_CALLS = "has different calls from this entry"
CHANGED = "was changed"
ABSENT = "is missing"
CHAT_ABSENT = "the chat is missing, and no audit log entry records its erasure"
CALL_WITHOUT_ENTRY = "no audit log entry has the commitment to the call of receipt {pk}"
CALLS_WITHOUT_ENTRY = "no audit log entry has the commitments to the calls of {pk}"
SUMMARY_WITHOUT_ENTRY = "no audit log entry mentions summary {pk}"
# Value of `erased` in the entry that an upgrade wrote for marks without an entry.
UNNAMED = "unnamed"
# The columns that the checks compare or use to find rows, and those for rebuilding requests.
COMMITTED_OF_RECEIPTS = frozenset({*WRITTEN, *EMPTIED, "id", "turn", "budget", "commitment"})
COMMITTED_OF_SUMMARIES = frozenset(
    {
        "id",
        "branch",
        "kind",
        "status",
        "text",
        "calls",
        "bodies",
        "made_of",
        "salt",
        "text_commitment",
        "erased_at",
    }
)
rollback.PROTECTED.update(
    {
        ("chats", "receipt"): COMMITTED_OF_RECEIPTS,
        ("chats", "compaction"): COMMITTED_OF_SUMMARIES,
        # The entry that ends a retention run has the digest of its entries.
        ("chats", "retentionrun"): None,
        ("chats", "retentionentry"): None,
    }
)
rollback.COMMITTED_BY.update(
    {
        ("chats", "receipt"): ("calls",),
        ("chats", "compaction"): ("bodies", "calls", "text_commitment"),
    }
)
# Sorts after all rows.
LAST = 2**63
HELD = gettext_noop("Model calls and summaries that match the audit log")
ERASED = gettext_noop(
    "Model calls and summaries that cannot be rebuilt, because some of their text was erased"
)
BEFORE = gettext_noop("Model calls made before the audit log recorded commitments")


def verify_commitments(*, scope: str | None, tally: Counter[str]) -> Iterator[Break]:
    """Yield mismatches between rows and commitments. `tally` counts the results. Never writes."""
    for page in iter_ledger_chat_pages(scope):
        yield from verify_chat_page(page, tally=tally)


def iter_ledger_chat_pages(scope: str | None) -> Iterator[list[uuid.UUID]]:
    """Yield the chats that exist or have a chain, one page at a time.

    With a scope, yields only its chat, if it has a chain.
    """
    heads = LedgerHead.objects.filter(scope__startswith=SCOPE)
    if scope is not None:
        heads = heads.filter(scope=scope)
    names = heads.values_list("scope", flat=True).iterator(chunk_size=2000)
    known = {uuid.UUID(name.removeprefix(SCOPE)) for name in names}
    if scope is None:
        # Rows of a chat whose chain is missing have no commitment.
        known |= set(Chat.objects.values_list("pk", flat=True).iterator(chunk_size=2000))
    ordered = sorted(known)
    for start in range(0, len(ordered), PAGE):
        yield ordered[start : start + PAGE]


class EndedCall(NamedTuple):
    """A model call whose attempt has ended: its receipt and the commitment to compare."""

    chat: uuid.UUID
    receipt: uuid.UUID
    turn: uuid.UUID
    attempt: int
    commitment: str


@dataclass(slots=True)
class LedgerClaims:
    """The commitments of the ledger to the calls and summaries of one chat."""

    scope: str
    # The commitment of each receipt, and the number of its ledger entry.
    calls: dict[str, tuple[str, int]] = field(default_factory=dict)
    # The commitment of each receipt to the hash of the body as sent.
    bodies: dict[str, str] = field(default_factory=dict)
    # The attempts whose end lists their calls, as (turn, number).
    ended: set[tuple[uuid.UUID | None, int]] = field(default_factory=set)
    # The ledger entries of each summary.
    summaries: dict[str, list[tuple[int, Mapping[str, Any]]]] = field(default_factory=dict)
    # The receipts and summaries that entries name as erased.
    erased: set[str] = field(default_factory=set)
    gone: bool = False

    def hear(self, event: AuditEvent) -> None:
        if event.type in ENDINGS and "calls" in event.data:
            self.ended.add((event.turn_id, event.data["attempt"]))
            self.hear_calls(event)
        elif event.type in BESIDE:
            self.hear_calls(event)
        elif event.type.startswith("compaction.") and event.data.get("compaction"):
            rows = self.summaries.setdefault(event.data["compaction"], [])
            rows.append((event.seq, event.data))
        if event.type in ERASURES:
            self.erased |= collect_erased_ids(event.data)
        self.gone |= event.type == ERASED_WHOLE
        self.gone |= event.type == DELETED and "erase_at" not in event.data

    def hear_calls(self, event: AuditEvent) -> None:
        """Add the model calls to which an entry commits, to compare receipts with them."""
        for receipt, committed in event.data["calls"]:
            self.calls[receipt] = (committed, event.seq)
        self.bodies |= event.data.get("bodies", {})

    def is_erased(self, pk: uuid.UUID) -> bool:
        """Return True if an entry lists this receipt or summary as erased.

        Before returning False, reads the entries again: the erasure may be newer than the last
        read.
        """
        if str(pk) not in self.erased:
            # The row may have been erased after the chain was read.
            rows = AuditEvent.objects.filter(scope=self.scope, type__in=ERASURES)
            for data in rows.values_list("data", flat=True).iterator(chunk_size=2000):
                self.erased |= collect_erased_ids(data)
        return str(pk) in self.erased


def collect_erased_ids(data: Mapping[str, Any]) -> set[str]:
    """Return the ids of the receipts and summaries that an erasure entry lists."""
    return {*data.get("receipts", ()), *data.get("summaries", ())}


def describe_unnamed_marks(scope: str | None) -> Iterator[str]:
    """Yield a sentence for each ledger entry about erasure marks from before an upgrade.

    The entry lists calls and summaries that were marked as erased without a separate event, so they
    cannot be compared.
    """
    rows = AuditEvent.objects.filter(type=ERASURE_MARKS, data__erased=UNNAMED)
    if scope is not None:
        rows = rows.filter(scope=scope)
    for event in rows.order_by("scope", "seq").iterator(chunk_size=2000):
        count = len(collect_erased_ids(event.data))
        yield (
            f"{event.scope}: entry {event.seq} names {count} model calls and summaries that were "
            "marked as erased before each chain recorded that. They cannot be compared."
        )


def verify_chat_page(chat_ids: Sequence[uuid.UUID], *, tally: Counter[str]) -> Iterator[Break]:
    """Yield the first break of each chat on a page.

    Rows that must be in the ledger are read before it, and rows to which it commits are read after
    it. A call that ends or is erased during the check is therefore not reported.
    """
    done, summaries = list_ended_calls(chat_ids), list(list_finished_summaries(chat_ids))
    said = load_ledger_claims(chat_ids)
    breaks = [
        *find_uncommitted_rows(done, summaries, said=said, tally=tally),
        *find_changed_receipts(said, tally=tally),
        *find_changed_summaries(said, tally=tally),
    ]
    existing = set(Chat.objects.filter(pk__in=chat_ids).values_list("pk", flat=True))
    found: dict[str, Break] = {}
    for chat_id, each in sorted(breaks, key=lambda pair: pair[1].seq or LAST):
        # A chat erased during the check has no rows. The ledger records its erasure.
        if chat_id in existing:
            found.setdefault(each.scope, each)
    yield from found.values()
    for chat_id in said.keys() - existing:
        one = said[chat_id]
        if (one.calls or one.summaries) and not one.gone and not is_gone(one.scope):
            yield Break(one.scope, 0, CHAT_ABSENT)


def is_gone(scope: str) -> bool:
    """Return True if an entry records that the whole chat was erased."""
    return AuditEvent.objects.filter(scope=scope, type=ERASED_WHOLE).exists()


def load_ledger_claims(chat_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, LedgerClaims]:
    said = {chat_id: LedgerClaims(f"{SCOPE}{chat_id}") for chat_id in chat_ids}
    rows = AuditEvent.objects.filter(scope__in=[one.scope for one in said.values()])
    telling = Q(type__in=[*ENDINGS, *BESIDE, *ERASURES, DELETED, ERASED_WHOLE]) | Q(
        type__startswith="compaction."
    )
    for event in rows.filter(telling).order_by("scope", "seq").iterator(chunk_size=2000):
        said[uuid.UUID(event.scope.removeprefix(SCOPE))].hear(event)
    return said


def list_ended_calls(chat_ids: Sequence[uuid.UUID]) -> list[EndedCall]:
    rows = Receipt.objects.filter(turn__branch__chat__in=chat_ids)
    over = rows.exclude(turn__status=Turn.Status.RUNNING, attempt=F("turn__attempt"))
    read = over.values_list("turn__branch__chat", "pk", "turn", "attempt", "commitment")
    return [EndedCall(*row) for row in read]


def list_finished_summaries(
    chat_ids: Sequence[uuid.UUID],
) -> QuerySet[Compaction, tuple[uuid.UUID, Any, Any]]:
    """Return the summaries that are no longer in progress, as (chat, id, calls)."""
    rows = Compaction.objects.filter(branch__chat__in=chat_ids, kind=Compaction.Kind.SUMMARY)
    done = rows.exclude(status=Compaction.Status.PREPARING)
    return done.values_list("branch__chat", "pk", "calls")


def find_uncommitted_rows(
    calls: Iterable[EndedCall],
    summaries: Iterable[tuple[uuid.UUID, Any, Any]],
    *,
    said: Mapping[uuid.UUID, LedgerClaims],
    tally: Counter[str],
) -> Iterator[tuple[uuid.UUID, Break]]:
    """Yield calls and summaries that no ledger entry commits to."""
    for call in calls:
        one = said[call.chat]
        if not call.commitment and (call.turn, call.attempt) not in one.ended:
            tally[BEFORE] += 1
        elif str(call.receipt) not in one.calls:
            reason = CALL_WITHOUT_ENTRY.format(pk=call.receipt)
            yield call.chat, Break(one.scope, 0, reason)
    for chat_id, pk, booked in summaries:
        rows = said[chat_id].summaries.get(str(pk), [])
        if not rows:
            yield chat_id, Break(said[chat_id].scope, 0, SUMMARY_WITHOUT_ENTRY.format(pk=pk))
        elif booked and not any("calls" in data for _, data in rows):
            yield chat_id, Break(said[chat_id].scope, 0, CALLS_WITHOUT_ENTRY.format(pk=pk))


def find_changed_receipts(
    said: Mapping[uuid.UUID, LedgerClaims], *, tally: Counter[str]
) -> Iterator[tuple[uuid.UUID, Break]]:
    """Yield receipts that are missing or differ from the ledger's commitment."""
    rows = Receipt.objects.filter(turn__branch__chat__in=said.keys())
    left = {chat_id: dict(one.calls) for chat_id, one in said.items()}
    for row in rows.annotate(chat=F("turn__branch__chat")).iterator(chunk_size=PAGE):
        committed, seq = left[row.chat].pop(str(row.pk), ("", 0))
        if not committed:
            continue
        if reason := explain_receipt_mismatch(row, committed, said[row.chat]):
            yield row.chat, Break(said[row.chat].scope, seq, f"receipt {row.pk} {reason}")
        else:
            tally[ERASED if row.erased_at else HELD] += 1
    for chat_id, calls in left.items():
        for pk, (_, seq) in calls.items():
            yield chat_id, Break(said[chat_id].scope, seq, f"receipt {pk} {ABSENT}")


def explain_receipt_mismatch(row: Receipt, committed: str, said: LedgerClaims) -> str:
    """Return the difference between a receipt and the ledger's commitment. Empty if it matches."""
    if row.commitment != committed:
        return OTHER_COMMITMENT
    if row.erased_at is not None:
        return "" if said.is_erased(row.pk) else UNSAID
    if not row.salt or recompute_commitment(row) != committed:
        return CHANGED
    body = said.bodies.get(str(row.pk))
    if body is not None and not is_commitment_valid(body, row.body_sha256, salt=row.salt):
        return OTHER_BODY
    return ""


def find_changed_summaries(
    said: Mapping[uuid.UUID, LedgerClaims], *, tally: Counter[str]
) -> Iterator[tuple[uuid.UUID, Break]]:
    """Yield summaries that are missing or differ from the ledger's commitments."""
    rows = Compaction.objects.filter(branch__chat__in=said.keys())
    left = {chat_id: dict(one.summaries) for chat_id, one in said.items()}
    for row in rows.annotate(chat=F("branch__chat")).iterator(chunk_size=PAGE):
        for seq, data in left[row.chat].pop(str(row.pk), []):
            if reason := explain_summary_mismatch(row, data, said[row.chat]):
                yield row.chat, Break(said[row.chat].scope, seq, f"summary {row.pk} {reason}")
                break
        else:
            tally[ERASED if row.erased_at else HELD] += 1
    for chat_id, summaries in left.items():
        for pk, ((seq, _), *_others) in summaries.items():
            yield chat_id, Break(said[chat_id].scope, seq, f"summary {pk} {ABSENT}")


def explain_summary_mismatch(row: Compaction, data: Mapping[str, Any], said: LedgerClaims) -> str:
    """Return the difference between a summary and an entry's commitment. Empty if it matches.

    Entries written before commitments existed contain a hash of the text instead.
    """
    if data.get("calls", row.calls) != row.calls:
        return OTHER_CALLS
    if row.erased_at is not None:
        return "" if said.is_erased(row.pk) else UNSAID
    said_bodies, bodies = data.get("bodies", []), row.bodies or []
    if len(bodies) < len(said_bodies) or not all(
        is_commitment_valid(committed, body, salt=row.salt)
        for committed, body in zip(said_bodies, bodies, strict=False)
    ):
        return OTHER_BODIES
    committed, hashed = data.get("text_commitment"), data.get("text_sha256")
    if committed and not is_commitment_valid(committed, row.text, salt=row.salt):
        return CHANGED
    if hashed and hashlib.sha256(row.text.encode("utf-8", "surrogatepass")).hexdigest() != hashed:
        return CHANGED
    return ""


ledger.CHECKS.append(verify_commitments)
