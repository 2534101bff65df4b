"""Who may work on a turn: claim, renew, give back. Every write of a worker carries its token.

A claim makes a new random token, so a worker that was believed dead and comes back matches no row
any more: its writes change nothing (fencing). Time is the database's, the one clock all workers
share.
"""

import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any

from django.conf import settings
from django.db.models import (
    DateTimeField,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    QuerySet,
)
from django.db.models.functions import Now

from chats.models import Turn
from contextpolicy import prepared
from contextpolicy.durability import unflushed


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
    """The turn, if it waits and its branch is free.

    One whose lease ran out is left to the sweep, which counts the loss: a second task does nothing.
    """
    running = Turn.objects.filter(branch=OuterRef("branch"), status=Turn.Status.RUNNING)
    waiting = Turn.objects.filter(pk=at("turn"), status=Turn.Status.QUEUED)
    return waiting.filter(~Exists(running))


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

    `now` is only what people read as the starting time. Raises Django's IntegrityError when another
    turn of the branch was claimed between this look and this write.
    """
    token = secrets.token_urlsafe(32)
    values = (Turn.Status.RUNNING, token, worker, False, now, None, "", "")
    length = timedelta(seconds=settings.LEASE_SECONDS)
    if not _CLAIM.run(dict(zip(_CLAIMED, values, strict=True)), turn=turn_id, length=length):
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


class Beat(Enum):
    """What a write beside the stream learned of the turn."""

    OURS = "ours"
    STOP = "stop"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Partial:
    """The text so far of a turn's step, since it last began anew."""

    lease: Lease
    step: int
    begun_anew: int
    text: str
    reasoning: str


def wanted_row(at: prepared.At) -> QuerySet[Turn]:
    """The turn that is held, as long as nobody asked it to stop."""
    return held_row(at).filter(stop_requested_at=None)


_RENEW = prepared.Update(
    wanted_row, (), lambda at: {"lease_until": from_now(at("length", DurationField()))}
)
# By step, too: a text that comes late must not stand in the next one's place.
_SAVE = prepared.Update(
    lambda at: wanted_row(at).filter(step=at("step"), begun_anew=at("begun_anew")),
    ("partial_text", "partial_reasoning"),
)


@unflushed()
def renew(*, leases: Sequence[Lease]) -> list[Beat]:
    """Move the end of each lease on, and say how each stands. One that was lost is no error."""
    length = timedelta(seconds=settings.LEASE_SECONDS)
    return [
        Beat.OURS
        if _RENEW.run({}, turn=lease.turn_id, token=lease.token, length=length)
        else standing(lease)
        for lease in leases
    ]


@unflushed()
def save(*, texts: Sequence[Partial]) -> list[Beat]:
    """Write each text so far, and say how each turn stands."""
    return [
        Beat.OURS
        if _SAVE.run(
            {"partial_text": partial.text, "partial_reasoning": partial.reasoning},
            turn=partial.lease.turn_id,
            token=partial.lease.token,
            step=partial.step,
            begun_anew=partial.begun_anew,
        )
        else standing(partial.lease)
        for partial in texts
    ]


def standing(lease: Lease) -> Beat:
    """How it is with a turn that a beat did not write."""
    for (stop_requested_at,) in held(lease).values_list("stop_requested_at"):
        return Beat.STOP if stop_requested_at else Beat.OURS
    return Beat.LOST


RELEASED: dict[str, Any] = {"lease_token": "", "lease_until": None}
