"""Erases messages older than their retention period: one run each night, in small steps.

A run visits the chats by id. Each step is one transaction: it erases through the usual erasure of
messages and chats, which checks legal holds, and stores the run's progress. A killed run continues
after its last step, without repeating or skipping anything.
"""

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from chats.actions import erasure, retention_rules, running_replies
from chats.actions.retention_quotes import ExpiredQuotes
from chats.actions.retention_schedule import RUNS, is_retention_due
from chats.ground import databases, queue
from chats.ground.background_lock import alone
from chats.ground.jobs import JobLease, PacedRenewal
from chats.ground.leases import LeaseLost
from chats.models import Chat, RetentionEntry, RetentionRun
from chats.record.holds import UnderHold
from contextpolicy import ledger
from contextpolicy.models import AuditEvent, LedgerHead

logger = logging.getLogger(__name__)
# Messages erased per transaction, which blocks others under SQLite (about 30 ms each), and time
# limit of one task in seconds.
AT_ONCE = 10
SECONDS = 20.0
# Pause between two transactions: processes waiting for SQLite's writer lock retry every 0.1
# seconds.
REST = 0.15
GENESIS = "0" * 64
CERTIFICATES = ("message.erased", "chat.erased")


RetentionLease = JobLease[RetentionRun]


def start_retention_run(*, actor: str, now: datetime) -> RetentionRun:
    """Start a run in the background. If one is open, return it."""
    try:
        with transaction.atomic():
            run = RetentionRun.objects.create(started_at=now, digest=GENESIS)
            data = {"run": str(run.pk)}
            ledger.record_event("retention.started", actor=actor, now=now, data=data)
            queue.enqueue(queue.RETAIN)
    except IntegrityError:
        return RetentionRun.objects.get(is_open=True)
    return run


def continue_retention_run(
    *, clock: Callable[[], datetime], is_closing: Callable[[], bool]
) -> None:
    """Start a run if one is due, then work on the open run for a few seconds.

    Enqueues the next task if messages remain.
    """
    if is_retention_due(now=clock()):
        start_retention_run(actor="system", now=clock())
    lease = claim_retention_run()
    if lease is None:
        return
    steps = run_retention_steps(lease, clock=clock)
    lease.run_steps(steps, seconds=SECONDS, is_closing=is_closing, pause=REST)


def claim_retention_run() -> RetentionLease | None:
    """Claim the open run. None if there is none, or another worker holds it."""
    run = RUNS.select_free_rows().first()
    return RUNS.claim(run.pk) if run else None


def run_retention_steps(lease: RetentionLease, *, clock: Callable[[], datetime]) -> Iterator[None]:
    """Erase the due messages of all chats after the stored position, one step at a time.

    Each step stores the progress under the lease. Raises `LeaseLost`.
    """
    run = RetentionRun.objects.get(pk=lease.key)
    place = run.place
    while page := retention_rules.list_next_chats(place):
        place, seen = page[-1].pk, 0
        due = retention_rules.count_due_messages(page, now=clock())
        for number, chat in enumerate(page, start=1):
            if chat.pk in due:
                yield from erase_due_messages(chat, lease=lease, passed=number - seen, clock=clock)
                seen = number
        save_retention_progress(lease, place=place, chats=len(page) - seen)
        yield
    finish_retention_run(lease, now=clock())


def erase_due_messages(
    chat: Chat, *, lease: RetentionLease, passed: int, clock: Callable[[], datetime]
) -> Iterator[None]:
    """Erase the due messages of a chat in steps.

    The last step adds `passed` to the run's number of processed chats. Messages under a
    hold or in a running reply are left to the next night. A chat that fails is skipped too,
    so that it does not block the others. Raises `LeaseLost`.
    """
    ending: dict[str, Any] = {"place": chat.pk, "chats": passed}
    quotes = ExpiredQuotes(chat, pace=PacedRenewal(lease))
    busy = (running_replies.StillAnswering, running_replies.StillReferred)
    more = True
    while more:
        try:
            quotes.prepare(now=clock())
            with alone, transaction.atomic():
                more = erase_message_batch(quotes, lease=lease, ending=ending, now=clock())
        except UnderHold:
            more = False
            save_retention_progress(lease, **ending, chats_held=1)
        except busy:
            more = False
            save_retention_progress(lease, **ending, chats_busy=1)
        except LeaseLost:
            raise
        except Exception as error:
            if databases.is_retryable_error(error):
                # Database error, not this chat's fault: let a later task retry.
                raise
            # The message is not logged, because databases include the row's values in it.
            logger.error("retention failed in chat %s: %s", chat.pk, type(error).__name__)  # noqa: TRY400  # no values in logs
            more = False
            save_retention_progress(lease, **ending, chats_failed=1)
        yield


def erase_message_batch(
    quotes: ExpiredQuotes, *, lease: RetentionLease, ending: dict[str, Any], now: datetime
) -> bool:
    """Erase a few messages of a chat, or the whole chat. Returns True if messages are left.

    The retention period is checked again under the chat's lock. The certificate of a message names
    the messages that quote it. Raises `UnderHold`, `StillAnswering`, `StillReferred` and
    `LeaseLost`.
    """
    chat_id = quotes.chat.pk
    try:
        chat = erasure.lock_for_erasure(chat_id)
    except Chat.DoesNotExist:
        save_retention_progress(lease, **ending)
        return False
    days = retention_rules.find_retention_days(chat)
    if days is None:
        save_retention_progress(lease, **ending)
        return False
    old = retention_rules.select_expired_messages([chat.pk], days=days, now=now)
    rows = list(old.select_related("branch").order_by("accepted")[: AT_ONCE + 1])
    if not rows:
        save_retention_progress(lease, **ending)
        return False
    running_replies.check_chat_over(chat)
    before = LedgerHead.objects.filter(scope=f"chat:{chat_id}").values_list("count", flat=True)
    known = before.first() or 0
    run = str(lease.key)
    if not retention_rules.has_younger(chat, days=days, now=now):
        counted, is_whole, is_more = old.count(), True, False
        erasure.erase_locked_chat(
            chat, by="system", reason="retention", now=now, run=run, days=days, erased=counted
        )
    else:
        counted, is_whole, is_more = min(len(rows), AT_ONCE), False, len(rows) > AT_ONCE
        more = {"reason": "retention", "run": run, "days": days}
        named = quotes.name(rows[:AT_ONCE])
        erased = {row: {**more, "quoted_by": named[row.pk]} for row in rows[:AT_ONCE]}
        erasure.erase_locked_messages(erased, chat=chat, by="system", now=now)
    entry = create_retention_entry(lease, chat_id=chat_id, messages=counted, days=days, after=known)
    save_retention_progress(
        lease,
        **({} if is_more else ending),
        messages_erased=counted,
        chats_erased=int(is_whole),
        digest=extend_run_digest(entry),
    )
    return is_more


def create_retention_entry(
    lease: RetentionLease, *, chat_id: uuid.UUID, messages: int, days: int, after: int
) -> RetentionEntry:
    """Store the range of ledger entries that certify this transaction's erasures in a chat.

    `after` is the seq of the chat's last ledger entry before these erasures. The transaction holds
    the lock on the chain's head, so all later entries belong to this run.
    """
    scope = f"chat:{chat_id}"
    rows = AuditEvent.objects.filter(scope=scope, seq__gt=after, type__in=CERTIFICATES)
    first = rows.filter(data__run=str(lease.key)).order_by("seq").values_list("seq", flat=True)
    head = LedgerHead.objects.get(scope=scope)
    return RetentionEntry.objects.create(
        run_id=lease.key,
        number=RetentionEntry.objects.filter(run=lease.key).count() + 1,
        chat_id=chat_id,
        messages=messages,
        days=days,
        first_seq=first[0],
        last_seq=head.count,
        last_hash=head.last_hash,
    )


def serialize_retention_entry(entry: RetentionEntry) -> str:
    """Return an entry as canonical JSON (sorted keys, no spaces, ASCII) for hashing."""
    content = {
        "number": entry.number,
        "chat": str(entry.chat_id),
        "messages": entry.messages,
        "days": entry.days,
        "first_seq": entry.first_seq,
        "last_seq": entry.last_seq,
        "last_hash": entry.last_hash,
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def hash_entry_lines(lines: Sequence[str], *, start: str = GENESIS) -> str:
    """Return the chained hash of the lines in hex. Each step is SHA-256(previous digest + line)."""
    digest = start
    for line in lines:
        digest = sha256((digest + line).encode()).hexdigest()
    return digest


def extend_run_digest(entry: RetentionEntry) -> str:
    """Return the next digest of a run: SHA-256 of the previous digest and the entry, in hex."""
    before = RetentionRun.objects.values_list("digest", flat=True).get(pk=entry.run_id)
    return hash_entry_lines([serialize_retention_entry(entry)], start=before)


def save_retention_progress(
    lease: RetentionLease,
    *,
    place: uuid.UUID | None = None,
    digest: str = "",
    **counts: int,
) -> None:
    """Store a run's position and digest, and renew its lease. Raises `LeaseLost`."""
    changes: dict[str, Any] = {name: F(name) + more for name, more in counts.items()}
    if place is not None:
        changes["place"] = place
    if digest:
        changes["digest"] = digest
    lease.renew(**changes)


def finish_retention_run(lease: RetentionLease, *, now: datetime) -> None:
    """End a run and certify it in the ledger. Raises `LeaseLost`."""
    with transaction.atomic():
        lease.finish(finished_at=now, is_open=False)
        run = RetentionRun.objects.get(pk=lease.key)
        ledger.record_event("retention.ended", actor="system", now=now, data=build_run_totals(run))


def build_run_totals(run: RetentionRun) -> dict[str, Any]:
    """Return the ledger data of an ended run: counts, and the digest of its entries."""
    return {
        "run": str(run.pk),
        "chats": run.chats,
        "chats_erased": run.chats_erased,
        "messages_erased": run.messages_erased,
        "chats_held": run.chats_held,
        "chats_busy": run.chats_busy,
        "chats_failed": run.chats_failed,
        "entries": run.entries.count(),
        "digest": run.digest,
    }
