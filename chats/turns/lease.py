"""Who may work on a turn: claim, renew, give back. Every write of a worker carries its token.

A claim makes a new random token, so a worker that was believed dead and comes back matches no row
any more: its writes change nothing (fencing). Time is the database's, the one clock all workers
share.
"""

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import (
    DateTimeField,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    QuerySet,
)
from django.db.models.functions import Now

from chats.models import Turn
from contextpolicy import prepared


class LeaseLost(Exception):
    """The turn is no longer this worker's: it was stopped, swept or taken over. Write nothing."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one turn."""

    turn_id: uuid.UUID
    token: str


def until() -> ExpressionWrapper[Any]:
    """The end of a lease that begins now, by the database's clock."""
    return from_now(timedelta(seconds=settings.LEASE_SECONDS))


def from_now(length: Any) -> ExpressionWrapper[Any]:
    """So much later by the database's clock."""
    return ExpressionWrapper(Now() + length, output_field=DateTimeField())


def claimable(at: prepared.At) -> QuerySet[Turn]:
    """The turn, if it waits and its branch is free, or if its lease ran out."""
    running = Turn.objects.filter(branch=OuterRef("branch"), status=Turn.Status.RUNNING)
    free = Q(status=Turn.Status.QUEUED) & ~Exists(running.exclude(pk=OuterRef("pk")))
    expired = Q(status=Turn.Status.RUNNING, lease_until__lt=Now())
    return Turn.objects.filter(free | expired, pk=at("turn"))


_CLAIMED = (
    "status",
    "lease_token",
    "worker",
    "handed_back",
    "started_at",
    "waiting_until",
    "partial_text",
    "partial_reasoning",
)
_CLAIM = prepared.Update(
    claimable,
    _CLAIMED,
    lambda at: {
        "attempt": F("attempt") + 1,
        "lease_until": from_now(at("length", DurationField())),
    },
)


def claim(*, turn_id: uuid.UUID, worker: str, now: datetime) -> Lease | None:
    """Take the turn, or None: it is over, somebody holds it, or its branch is busy.

    `now` is only what people read as the starting time.
    """
    token = secrets.token_urlsafe(32)
    values = (Turn.Status.RUNNING, token, worker, False, now, None, "", "")
    length = timedelta(seconds=settings.LEASE_SECONDS)
    try:
        with transaction.atomic():
            rows = _CLAIM.run(dict(zip(_CLAIMED, values, strict=True)), turn=turn_id, length=length)
    except IntegrityError:
        # Another turn of the branch was claimed between our look and our write.
        return None
    if not rows:
        return None
    return Lease(turn_id=turn_id, token=token)


def held(lease: Lease) -> QuerySet[Turn]:
    """The turn's row, as long as the lease holds; no row after that."""
    return held_row(lambda name: {"turn": lease.turn_id, "token": lease.token}[name])


def held_row(at: prepared.At) -> QuerySet[Turn]:
    """The same of a turn and a token."""
    return Turn.objects.filter(pk=at("turn"), status=Turn.Status.RUNNING, lease_token=at("token"))


@cache
def _write(fields: tuple[str, ...]) -> prepared.Update:
    return prepared.Update(held_row, fields)


def write(lease: Lease, **values: Any) -> None:
    """A fenced update. Raises `LeaseLost` when the turn is no longer this worker's."""
    if not _write(tuple(values)).run(values, turn=lease.turn_id, token=lease.token):
        raise LeaseLost(lease.turn_id)


def extend(lease: Lease) -> None:
    """Move the end of the lease on. Raises `LeaseLost`."""
    if not held(lease).update(lease_until=until()):
        raise LeaseLost(lease.turn_id)


_LOCKED = prepared.Select(
    lambda at: held_row(at).select_for_update(of=("self",), no_key=True).select_related("branch")
)
_TURN = prepared.Select(
    lambda at: Turn.objects.select_related("branch__chat", "model", "trigger", "continues").filter(
        pk=at("turn")
    )
)


def locked_turn(lease: Lease) -> Turn:
    """The turn with its branch, locked for the rest of the transaction. Raises `LeaseLost`."""
    turn = _LOCKED.first(turn=lease.turn_id, token=lease.token)
    if turn is None:
        raise LeaseLost(lease.turn_id)
    return turn


def read_turn(lease: Lease) -> Turn:
    """The turn with its branch, chat, model and message; locked if this transaction wrote it."""
    turn = _TURN.first(turn=lease.turn_id)
    if turn is None:
        raise LeaseLost(lease.turn_id)
    return turn


def renew(lease: Lease) -> bool:
    """Move the end of the lease on. True when a person asked the turn to stop."""
    length = timedelta(seconds=settings.LEASE_SECONDS)
    return unless_stopped(lease, _RENEW, {}, length=length)


def save_partial(*, lease: Lease, text: str, reasoning: str) -> bool:
    """Write the text so far. True when a stop was asked for. Raises `LeaseLost`."""
    values = {"partial_text": text, "partial_reasoning": reasoning}
    return unless_stopped(lease, _SAVE_PARTIAL, values)


def wanted_row(at: prepared.At) -> QuerySet[Turn]:
    """The turn that is held, as long as nobody asked it to stop."""
    return held_row(at).filter(stop_requested_at=None)


_RENEW = prepared.Update(
    wanted_row, (), lambda at: {"lease_until": from_now(at("length", DurationField()))}
)
_SAVE_PARTIAL = prepared.Update(wanted_row, ("partial_text", "partial_reasoning"))


def unless_stopped(
    lease: Lease, update: prepared.Update, values: Mapping[str, Any], **where: Any
) -> bool:
    """A fenced update. True, and nothing written, when a person asked the turn to stop.

    One statement where nobody did, but in a transaction: those queue where the database has one
    writer. Raises `LeaseLost`.
    """
    with transaction.atomic():
        if update.run(values, turn=lease.turn_id, token=lease.token, **where):
            return False
        if not held(lease).exists():
            raise LeaseLost(lease.turn_id)
    return True


RELEASED: dict[str, Any] = {"lease_token": "", "lease_until": None}
