"""Schedules ledger checkpoints and verifications, and reports overdue ones."""

import logging
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.utils.translation import gettext

from chats.checkpoints import external_copy, log_file, signing, timestamps
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
# A checkpoint or verification is overdue after these times.
LATE_CHECKPOINT = timedelta(hours=2)
LATE_NIGHT, LATE_WEEK = timedelta(hours=36), timedelta(days=8)


class LedgerWarning(NamedTuple):
    """A warning about the ledger: a stable code, and the sentence in the reader's language."""

    code: str
    sentence: str


def enqueue_due(*, now: datetime) -> int:
    """Enqueue the due tasks (checkpoint, verification, timestamp); return the count."""
    wanted = []
    if is_checkpoint_due(now=now) or select_due_verification(now=now):
        wanted.append(queue.KEEP_LEDGER)
    if timestamps.is_timestamp_due(now=now):
        wanted.append(queue.STAMP_LEDGER)
    for task in wanted:
        queue.enqueue(task)
    return len(wanted)


def maintain_ledger(*, now: datetime) -> None:
    """Sign the checkpoint and request the verification that are due.

    A refusal is logged. Pages and `/readyz` report it until it is resolved.
    """
    if is_checkpoint_due(now=now):
        try:
            signing.sign_checkpoint(actor="system", now=now, reason="due")
        except external_copy.CopyNotWritten as refusal:
            logger.error("checkpoint: %s", refusal.sentence)  # noqa: TRY400  # said in full
        except Refusal as refusal:
            logger.error("no checkpoint: %s", refusal.sentence)  # noqa: TRY400  # said in full
        except Exception as error:  # noqa: BLE001  # the verification is requested anyway
            databases.raise_if_passing(error)
            SkippedRow.note(job="checkpoints", row="signing", error=error, now=now)
    if (wanted := select_due_verification(now=now)) is not None:
        with transaction.atomic():
            asked = verification.request_verification(
                scope="",
                actor="system",
                now=now,
                since_leaf=None if wanted == "all" else find_first_unverified(),
            )
            queue.enqueue(queue.VERIFY_LEDGER, verification_id=asked.pk)


def sign_at_end(*, now: datetime) -> bool:
    """Sign new ledger rows when a background worker shuts down; return True if signed.

    A refusal is logged and does not stop the shutdown. A checkpoint whose copy could not be
    written is signed.
    """
    last = signing.find_newest_checkpoint()
    newest = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True).first()
    if newest is None or (last is not None and newest <= last.last_event):
        return False
    try:
        signing.sign_checkpoint(actor="system", now=now, reason="shutdown")
    except external_copy.CopyNotWritten as refusal:
        logger.error("checkpoint: %s", refusal.sentence)  # noqa: TRY400  # said in full
    except Refusal as refusal:
        logger.error("no checkpoint: %s", refusal.sentence)  # noqa: TRY400  # said in full
        return False
    return True


def is_checkpoint_due(*, now: datetime) -> bool:
    """Return True if an hour or 1,000 rows passed since the last checkpoint."""
    last = signing.find_newest_checkpoint()
    rows = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True)
    if last is not None:
        newest = rows.first() or 0
        return now - last.signed_at >= EVERY or newest - last.last_event >= ROWS
    began = find_first_event_time()
    return began is not None and (now - began >= EVERY or len(rows[:ROWS]) >= ROWS)


def select_due_verification(*, now: datetime) -> str | None:
    """Return the verification that is due now: `all` (weekly), `new` (nightly) or None."""
    began = find_first_event_time()
    if began is None or LedgerVerification.objects.filter(finished_at=None, scope="").exists():
        return None
    whole = find_verification_time(whole=True) or began
    if now - whole >= WEEKLY:
        return "all"
    since_last = now - max(whole, find_verification_time(whole=False) or began)
    is_night = now.hour in NIGHT
    return "new" if since_last >= (NIGHTLY if is_night else LATE_NIGHT - EVERY) else None


def find_verification_time(*, whole: bool) -> datetime | None:
    """Return the request time of the last completed verification; None before the first one.

    `whole`: consider only verifications of all chains, instead of only those of the chains
    that grew.
    """
    rows = LedgerVerification.objects.filter(scope="", finished_at__isnull=False, error="")
    rows = rows.filter(since_leaf__isnull=whole)
    return rows.order_by("-asked_at").values_list("asked_at", flat=True).first()


def find_first_unverified() -> int:
    """Return the index of the first log entry that no verification without errors has covered."""
    rows = LedgerVerification.objects.filter(scope="", finished_at__isnull=False, error="")
    last = rows.filter(broken=0).order_by("-asked_at").first()
    if last is None:
        return 0
    newest = signing.find_newest_checkpoint()
    heads = LedgerCheckpoint.objects.filter(signed_at__lte=last.asked_at)
    heads = heads.filter(origin=newest.origin) if newest else heads
    return heads.order_by("-size").values_list("size", flat=True).first() or 0


def find_first_event_time() -> datetime | None:
    """Return the time of the first ledger row; None for an empty ledger."""
    return AuditEvent.objects.order_by("pk").values_list("at", flat=True).first()


def list_check_warnings(*, now: datetime) -> list[LedgerWarning]:
    """Return warnings about overdue or failed checks, in the reader's language."""
    began = find_first_event_time()
    if began is None:
        return []
    found: dict[str, str] = {}
    last = signing.find_newest_checkpoint()
    if now - (last.signed_at if last else began) > LATE_CHECKPOINT:
        found["checkpoint_late"] = gettext(
            "No checkpoint of the audit log has been signed for more than two hours. Check that "
            "the background worker is running."
        )
    try:
        signing.require_last()
    except Refusal as refusal:
        found[refusal.code] = refusal.localized
    if log_file.is_log_file_behind(last):
        found["list_incomplete"] = gettext(log_file.BEHIND)
    if said := timestamps.describe_late_timestamps(now=now):
        found["timestamp_late"] = said
    whole = find_verification_time(whole=True) or began
    newest_end = max(whole, find_verification_time(whole=False) or began)
    if now - newest_end > LATE_NIGHT or now - whole > LATE_WEEK:
        found["verification_late"] = gettext(
            "The scheduled verification of the audit log is overdue. Check that the background "
            "worker is running."
        )
    newest = LedgerVerification.objects.filter(finished_at__isnull=False, error="").order_by("-pk")
    if (row := newest.first()) and row.broken:
        found["verification_failed"] = gettext(
            "The last verification of the audit log found errors. Open “Verify the audit log” "
            "for details."
        )
    return [LedgerWarning(code, sentence) for code, sentence in found.items()]


def load_last_note() -> str:
    """Return the last checkpoint as a note; empty before the first."""
    last = signing.find_newest_checkpoint()
    return last.note if last else ""
