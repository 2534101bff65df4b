"""Who may work on a turn: claim, renew, give back. Every write of a worker carries its token.

A claim makes a new random token, so a worker that was believed dead and comes back matches no row
any more: its writes change nothing (fencing). Time is the database's, the one clock all workers
share.
"""

import secrets
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import DateTimeField, Exists, ExpressionWrapper, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from chats.models import Turn


class LeaseLost(Exception):
    """The turn is no longer this worker's: it was stopped, swept or taken over. Write nothing."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one turn."""

    turn_id: uuid.UUID
    token: str


def until() -> ExpressionWrapper[Any]:
    """The end of a lease that begins now, by the database's clock."""
    length = timedelta(seconds=settings.LEASE_SECONDS)
    return ExpressionWrapper(Now() + length, output_field=DateTimeField())


def claim(*, turn_id: uuid.UUID, worker: str, now: datetime) -> Lease | None:
    """Take the turn, or None: it is over, somebody holds it, or its branch is busy.

    `now` is only what people read as the starting time.
    """
    token = secrets.token_urlsafe(32)
    running = Turn.objects.filter(branch=OuterRef("branch"), status=Turn.Status.RUNNING)
    free = Q(status=Turn.Status.QUEUED) & ~Exists(running.exclude(pk=OuterRef("pk")))
    expired = Q(status=Turn.Status.RUNNING, lease_until__lt=Now())
    try:
        with transaction.atomic():
            rows = Turn.objects.filter(free | expired, pk=turn_id).update(
                status=Turn.Status.RUNNING,
                attempt=F("attempt") + 1,
                lease_token=token,
                lease_until=until(),
                worker=worker,
                handed_back=False,
                started_at=now,
                waiting_until=None,
                partial_text="",
                partial_reasoning="",
            )
    except IntegrityError:
        # Another turn of the branch was claimed between our look and our write.
        return None
    if not rows:
        return None
    return Lease(turn_id=turn_id, token=token)


def held(lease: Lease) -> QuerySet[Turn]:
    """The turn's row, as long as the lease holds; no row after that."""
    return Turn.objects.filter(
        pk=lease.turn_id, status=Turn.Status.RUNNING, lease_token=lease.token
    )


def write(lease: Lease, **values: Any) -> None:
    """A fenced update. Raises `LeaseLost` when the turn is no longer this worker's."""
    if not held(lease).update(**values):
        raise LeaseLost(lease.turn_id)


def locked_turn(lease: Lease) -> Turn:
    """The turn with its branch, locked for the rest of the transaction. Raises `LeaseLost`."""
    try:
        return (
            held(lease).select_for_update(of=("self",), no_key=True).select_related("branch").get()
        )
    except Turn.DoesNotExist:
        raise LeaseLost(lease.turn_id) from None


def read_turn(lease: Lease) -> Turn:
    """The turn with its branch, chat, model and message; locked if this transaction wrote it."""
    related = ("branch__chat", "model", "trigger", "continues")
    return Turn.objects.select_related(*related).get(pk=lease.turn_id)


def renew(lease: Lease) -> bool:
    """Move the end of the lease on. True when a person asked the turn to stop."""
    return write_unless_stopped(lease, lease_until=until())


def write_unless_stopped(lease: Lease, **values: Any) -> bool:
    """A fenced update. True, and nothing written, when a person asked the turn to stop.

    One statement where nobody did. Raises `LeaseLost`.
    """
    if held(lease).filter(stop_requested_at=None).update(**values):
        return False
    if not held(lease).exists():
        raise LeaseLost(lease.turn_id)
    return True


RELEASED: dict[str, Any] = {"lease_token": "", "lease_until": None}
