"""Erases what is older than policies let it be: one run each night, in small steps.

A run goes through the chats by their ids. Each step is a transaction of its own: it erases through
the erasure of every message and chat, which asks for legal holds, and writes down how far the run
has come. A run that was killed goes on behind its last step; nothing is done twice or left out.
"""

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from chats.actions import ages, erasure
from chats.ground import databases, leases, queue
from chats.ground.computing import alone, give_way
from chats.ground.leases import LeaseLost
from chats.models import Chat, RetentionEntry, RetentionRun
from chats.record.ageing import free, is_due
from chats.record.holds import UnderHold
from chats.record.locking import chat_to_erase_in
from contextpolicy import ledger
from contextpolicy.models import AuditEvent, LedgerHead

logger = logging.getLogger(__name__)
# Messages erased in one transaction, which others wait for under SQLite (some 30 ms each), and
# seconds that one task takes.
AT_ONCE = 10
SECONDS = 20.0
# Between two transactions: who waits for SQLite's only writer looks every tenth of a second.
REST = 0.15
GENESIS = "0" * 64
CERTIFICATES = ("message.erased", "chat.erased")


@dataclass(frozen=True, slots=True)
class RetentionLease:
    """The right to work on a run, and the number of its entries so far."""

    run_id: uuid.UUID
    token: uuid.UUID


def begin(*, actor: str, now: datetime) -> RetentionRun:
    """Begin a run, or return the one that is not over; it is worked on in the background."""
    try:
        with transaction.atomic():
            run = RetentionRun.objects.create(started_at=now, digest=GENESIS)
            data = {"run": str(run.pk)}
            ledger.record("retention.started", actor=actor, now=now, data=data)
            queue.enqueue(queue.RETAIN)
    except IntegrityError:
        return RetentionRun.objects.get(is_open=True)
    return run


def go_on(*, clock: Callable[[], datetime], is_closing: Callable[[], bool]) -> None:
    """Work on the run that is due for some seconds, and ask for the next task if more is left."""
    if is_due(now=clock()):
        begin(actor="system", now=clock())
    lease = claim()
    if lease is None:
        return
    until = time.monotonic() + SECONDS
    try:
        for _ in steps(lease, clock=clock):
            if is_closing() or time.monotonic() > until:
                RetentionRun.objects.filter(lease_token=lease.token).update(lease_until=None)
                queue.enqueue(queue.RETAIN)
                return
            give_way(REST)
    except LeaseLost:
        return


def claim() -> RetentionLease | None:
    """Take the open run; None if there is none, or somebody works on it."""
    run = RetentionRun.objects.filter(free(), is_open=True).first()
    if run is None:
        return None
    token = uuid.uuid4()
    mine = RetentionRun.objects.filter(free(), pk=run.pk, is_open=True)
    taken = mine.update(lease_token=token, lease_until=leases.until())
    return RetentionLease(run.pk, token) if taken else None


def steps(lease: RetentionLease, *, clock: Callable[[], datetime]) -> Iterator[None]:
    """Do a run in steps, a transaction each, from its place to its end. Raises `LeaseLost`."""
    run = RetentionRun.objects.get(pk=lease.run_id)
    place = run.place
    while page := ages.page_after(place):
        place, seen = page[-1].pk, 0
        due = ages.due_in(page, now=clock())
        for number, chat in enumerate(page, start=1):
            if chat.pk in due:
                yield from erase_in(chat, lease=lease, passed=number - seen, clock=clock)
                seen = number
        book(lease, place=place, chats=len(page) - seen)
        yield
    finish(lease, now=clock())


def erase_in(
    chat: Chat, *, lease: RetentionLease, passed: int, clock: Callable[[], datetime]
) -> Iterator[None]:
    """Erase what is due in a chat, in steps; with the last one it counts as `passed` chats.

    What is held, or is part of a reply that is being written, is left to the next night, and so is
    what fails: one chat holds up no other. Raises `LeaseLost`.
    """
    ending: dict[str, Any] = {"place": chat.pk, "chats": passed}
    busy = (erasure.StillAnswering, erasure.StillReferred)
    more = True
    while more:
        try:
            with alone, transaction.atomic():
                more = erase_some(chat.pk, lease=lease, ending=ending, now=clock())
        except UnderHold:
            more = False
            book(lease, **ending, chats_held=1)
        except busy:
            more = False
            book(lease, **ending, chats_busy=1)
        except LeaseLost:
            raise
        except Exception as error:
            if databases.may_pass(error):
                # The database's trouble, not this chat's: a later task begins here again.
                raise
            # Never its text: a database puts the row's values into it.
            logger.error("no retention in chat %s: %s", chat.pk, type(error).__name__)  # noqa: TRY400
            more = False
            book(lease, **ending, chats_failed=1)
        yield


def erase_some(
    chat_id: uuid.UUID, *, lease: RetentionLease, ending: dict[str, Any], now: datetime
) -> bool:
    """Erase a few messages of a chat, or all of it; return whether some are left.

    The age that holds is asked for again under the chat's lock. Raises `UnderHold`,
    `StillAnswering`, `StillReferred` and `LeaseLost`.
    """
    try:
        chat = chat_to_erase_in(chat_id)
    except Chat.DoesNotExist:
        book(lease, **ending)
        return False
    days = ages.days_for(chat)
    if days is None:
        book(lease, **ending)
        return False
    old = ages.too_old([chat.pk], days=days, now=now)
    rows = list(old.select_related("branch").order_by("accepted")[: AT_ONCE + 1])
    if not rows:
        book(lease, **ending)
        return False
    erasure.check_chat_over(chat)
    before = LedgerHead.objects.filter(scope=f"chat:{chat_id}").values_list("count", flat=True)
    known = before.first() or 0
    run = str(lease.run_id)
    if not ages.has_younger(chat, days=days, now=now):
        counted, is_whole, is_more = old.count(), True, False
        erasure.erase_locked(
            chat, by="system", reason="retention", now=now, run=run, days=days, erased=counted
        )
    else:
        counted, is_whole, is_more = min(len(rows), AT_ONCE), False, len(rows) > AT_ONCE
        more = {"reason": "retention", "run": run, "days": days}
        for row in rows[:AT_ONCE]:
            erasure.take_words(row, chat=chat, by="system", now=now, more=more)
    entry = enter(lease, chat_id=chat_id, messages=counted, days=days, after=known)
    book(
        lease,
        **({} if is_more else ending),
        messages_erased=counted,
        chats_erased=int(is_whole),
        digest=following(entry),
    )
    return is_more


def enter(
    lease: RetentionLease, *, chat_id: uuid.UUID, messages: int, days: int, after: int
) -> RetentionEntry:
    """Store which rows of the ledger certify what this transaction erased in a chat.

    The chain's head is locked since the first of them, so all up to its end are of this run.
    """
    scope = f"chat:{chat_id}"
    rows = AuditEvent.objects.filter(scope=scope, seq__gt=after, type__in=CERTIFICATES)
    first = rows.filter(data__run=str(lease.run_id)).order_by("seq").values_list("seq", flat=True)
    head = LedgerHead.objects.get(scope=scope)
    return RetentionEntry.objects.create(
        run_id=lease.run_id,
        number=RetentionEntry.objects.filter(run=lease.run_id).count() + 1,
        chat_id=chat_id,
        messages=messages,
        days=days,
        first_seq=first[0],
        last_seq=head.count,
        last_hash=head.last_hash,
    )


def line_of(entry: RetentionEntry) -> str:
    """Write an entry as canonical JSON (sorted keys, no spaces, ASCII): what is hashed."""
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


def digest_of(lines: Sequence[str], *, start: str = GENESIS) -> str:
    """Hash lines one after the other: SHA-256, in hex, of the digest before and the line."""
    digest = start
    for line in lines:
        digest = sha256((digest + line).encode()).hexdigest()
    return digest


def following(entry: RetentionEntry) -> str:
    """Return the digest of a run after its newest entry."""
    before = RetentionRun.objects.values_list("digest", flat=True).get(pk=entry.run_id)
    return digest_of([line_of(entry)], start=before)


def book(
    lease: RetentionLease,
    *,
    place: uuid.UUID | None = None,
    digest: str = "",
    **counts: int,
) -> None:
    """Write down how far a run has come, and renew its lease. Raises `LeaseLost`."""
    changes: dict[str, Any] = {name: F(name) + more for name, more in counts.items()}
    if place is not None:
        changes["place"] = place
    if digest:
        changes["digest"] = digest
    mine = RetentionRun.objects.filter(pk=lease.run_id, lease_token=lease.token, is_open=True)
    if not mine.update(**changes, lease_until=leases.until()):
        raise LeaseLost(lease.run_id)


def finish(lease: RetentionLease, *, now: datetime) -> None:
    """End a run and certify it in the ledger. Raises `LeaseLost`."""
    with transaction.atomic():
        book(lease)
        run = RetentionRun.objects.get(pk=lease.run_id)
        run.finished_at, run.is_open, run.lease_until = now, False, None
        run.save(update_fields=["finished_at", "is_open", "lease_until"])
        ledger.record("retention.ended", actor="system", now=now, data=certified(run))


def certified(run: RetentionRun) -> dict[str, Any]:
    """Return what the ledger says of a run that ended: counts, and the digest of its entries."""
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
