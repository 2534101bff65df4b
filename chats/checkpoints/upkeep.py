"""Signs and verifies the ledger by itself as it falls due, and says what is late."""

import logging
from datetime import datetime, timedelta

from django.db import transaction

from chats.checkpoints import listed, signing, stamps
from chats.ground import databases, queue
from chats.ground.refusals import Refusal
from chats.models import SkippedRow
from contextpolicy import verification
from contextpolicy.models import AuditEvent, LedgerCheckpoint, LedgerVerification

logger = logging.getLogger(__name__)
EVERY = timedelta(hours=1)
ROWS = 1_000
NIGHT = range(1, 5)
NIGHTLY, WEEKLY = timedelta(hours=20), timedelta(days=7)
# So late something is wrong.
LATE_CHECKPOINT = timedelta(hours=2)
LATE_NIGHT, LATE_WEEK = timedelta(hours=36), timedelta(days=8)


def enqueue_due(*, now: datetime) -> int:
    """Send the tasks for what is due: checkpoint, verification, timestamp; return how many."""
    wanted = []
    if checkpoint_due(now=now) or verification_due(now=now):
        wanted.append(queue.KEEP_LEDGER)
    if stamps.is_due(now=now):
        wanted.append(queue.STAMP_LEDGER)
    for task in wanted:
        queue.enqueue(task)
    return len(wanted)


def keep(*, now: datetime) -> None:
    """Sign the checkpoint and ask for the verification that are due.

    A refusal is logged: pages and `/readyz` say it as long as it holds.
    """
    if checkpoint_due(now=now):
        try:
            signing.sign(actor="system", now=now, reason="due")
        except Refusal as refusal:
            logger.error("no checkpoint: %s", refusal.sentence)  # noqa: TRY400  # said in full
        except Exception as error:  # noqa: BLE001  # the verification is asked for all the same
            databases.raise_if_passing(error)
            SkippedRow.note(job="checkpoints", row="signing", error=error, now=now)
    if (wanted := verification_due(now=now)) is not None:
        with transaction.atomic():
            asked = verification.ask(
                scope="", actor="system", now=now, since_leaf=None if wanted == "all" else since()
            )
            queue.enqueue(queue.VERIFY_LEDGER, verification_id=asked.pk)


def sign_at_end(*, now: datetime) -> bool:
    """Sign what the ledger has grown by, as a process of upkeep ends; return whether it was.

    A refusal is logged: the process ends all the same.
    """
    last = signing.newest()
    newest = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True).first()
    if newest is None or (last is not None and newest <= last.last_event):
        return False
    try:
        signing.sign(actor="system", now=now, reason="shutdown")
    except Refusal as refusal:
        logger.error("no checkpoint: %s", refusal.sentence)  # noqa: TRY400  # said in full
        return False
    return True


def checkpoint_due(*, now: datetime) -> bool:
    """Tell whether an hour, or a thousand rows, have passed since the last checkpoint."""
    last = signing.newest()
    rows = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True)
    if last is not None:
        newest = rows.first() or 0
        return now - last.signed_at >= EVERY or newest - last.last_event >= ROWS
    began = first_event()
    return began is not None and (now - began >= EVERY or len(rows[:ROWS]) >= ROWS)


def verification_due(*, now: datetime) -> str | None:
    """Say what is to be verified now: `all` each week, `new` each night; None: nothing."""
    began = first_event()
    if began is None or LedgerVerification.objects.filter(finished_at=None, scope="").exists():
        return None
    whole = asked_at(whole=True) or began
    if now - whole >= WEEKLY:
        return "all"
    since_last = now - max(whole, asked_at(whole=False) or began)
    is_night = now.hour in NIGHT
    return "new" if since_last >= (NIGHTLY if is_night else LATE_NIGHT - EVERY) else None


def asked_at(*, whole: bool) -> datetime | None:
    """Return when a verification was begun last that came to an end."""
    rows = LedgerVerification.objects.filter(scope="", finished_at__isnull=False, error="")
    rows = rows.filter(since_leaf__isnull=whole)
    return rows.order_by("-asked_at").values_list("asked_at", flat=True).first()


def since() -> int:
    """Return the first entry of the log that no verification has seen."""
    rows = LedgerVerification.objects.filter(scope="", finished_at__isnull=False, error="")
    last = rows.filter(broken=0).order_by("-asked_at").first()
    if last is None:
        return 0
    newest = signing.newest()
    heads = LedgerCheckpoint.objects.filter(signed_at__lte=last.asked_at)
    heads = heads.filter(origin=newest.origin) if newest else heads
    return heads.order_by("-size").values_list("size", flat=True).first() or 0


def first_event() -> datetime | None:
    """Return when the ledger began."""
    return AuditEvent.objects.order_by("pk").values_list("at", flat=True).first()


def warnings(*, now: datetime) -> list[str]:
    """Say what is late or wrong with checkpoints and verifications; nothing when nothing is."""
    began = first_event()
    if began is None:
        return []
    found = []
    last = signing.newest()
    if now - (last.signed_at if last else began) > LATE_CHECKPOINT:
        found.append("No checkpoint of the ledger was signed for more than two hours.")
    try:
        signing.require_last()
    except Refusal as refusal:
        found.append(refusal.sentence)
    if listed.is_behind(last):
        found.append(listed.BEHIND)
    if said := stamps.late(now=now):
        found.append(said)
    whole = asked_at(whole=True) or began
    newest_end = max(whole, asked_at(whole=False) or began)
    if now - newest_end > LATE_NIGHT or now - whole > LATE_WEEK:
        found.append("The ledger was not verified when it should have been.")
    newest = LedgerVerification.objects.filter(finished_at__isnull=False, error="").order_by("-pk")
    if (row := newest.first()) and row.broken:
        found.append("The last verification of the ledger found what does not hold.")
    return found


def last_note() -> str:
    """Return the last checkpoint as a note; empty before the first."""
    last = signing.newest()
    return last.note if last else ""
