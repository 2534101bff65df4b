"""The lease of a turn: claim, renew, hand back. Every write of a worker carries its token.

A claim makes a new random token, so a worker that was believed dead and comes back matches no row
any more: its writes change nothing (fencing). Time is the database's, the one clock all workers
share.
"""

import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from django.db.models import QuerySet

from chats.ground.leases import LeaseLost, length, until
from chats.models import Turn
from chats.turns import statements
from speed.commits import unflushed


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one turn."""

    turn_id: uuid.UUID
    token: str


def claim(*, turn_id: uuid.UUID, worker: str, now: datetime) -> Lease | None:
    """Take the turn; None if it is over, somebody holds it, or its branch is busy.

    `now` is only what people read as the starting time. Raises Django's IntegrityError when another
    turn of the branch was claimed between this read and this write.
    """
    token = secrets.token_urlsafe(32)
    values = (Turn.Status.RUNNING, token, worker, False, now, None, "", "")
    fields = dict(zip(statements.CLAIMED_FIELDS, values, strict=True))
    if not statements.CLAIM.run(fields, turn=turn_id, length=length()):
        return None
    return Lease(turn_id=turn_id, token=token)


def held(lease: Lease) -> QuerySet[Turn]:
    """Return the turn's row, as long as the lease holds; no row after that."""
    return statements.held_row(lambda name: {"turn": lease.turn_id, "token": lease.token}[name])


def write(lease: Lease, **values: Any) -> None:
    """Update the turn, fenced. Raises `LeaseLost` when the turn is no longer this worker's."""
    if not statements.write_held(tuple(values)).run(values, turn=lease.turn_id, token=lease.token):
        raise LeaseLost(lease.turn_id)


def extend(lease: Lease) -> None:
    """Extend the lease. Raises `LeaseLost`."""
    if not held(lease).update(lease_until=until()):
        raise LeaseLost(lease.turn_id)


def locked_turn(lease: Lease) -> Turn:
    """Return the turn with its branch, locked for the transaction. Raises `LeaseLost`."""
    turn = statements.HELD_AND_LOCKED.first(turn=lease.turn_id, token=lease.token)
    if turn is None:
        raise LeaseLost(lease.turn_id)
    return turn


def read_turn(lease: Lease) -> Turn:
    """Return the turn with its branch, chat, model and message. Raises `LeaseLost`.

    It is locked if this transaction wrote it.
    """
    turn = statements.TURN.first(turn=lease.turn_id)
    if turn is None:
        raise LeaseLost(lease.turn_id)
    return turn


class Heartbeat(Enum):
    """The state of a turn, as a heartbeat found it."""

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


@unflushed()
def renew(*, leases: Sequence[Lease]) -> list[Heartbeat]:
    """Extend each lease, and return the state of each turn. One that was lost is no error."""
    span = length()
    return [
        Heartbeat.OURS
        if statements.RENEW.run({}, turn=lease.turn_id, token=lease.token, length=span)
        else standing(lease)
        for lease in leases
    ]


@unflushed()
def save(*, texts: Sequence[Partial]) -> list[Heartbeat]:
    """Write each text so far, and return the state of each turn."""
    return [
        Heartbeat.OURS
        if statements.SAVE_TEXT.run(
            {"partial_text": partial.text, "partial_reasoning": partial.reasoning},
            turn=partial.lease.turn_id,
            token=partial.lease.token,
            step=partial.step,
            begun_anew=partial.begun_anew,
        )
        else standing(partial.lease)
        for partial in texts
    ]


def standing(lease: Lease) -> Heartbeat:
    """Return the state of a turn that a heartbeat did not write."""
    for (stop_requested_at,) in held(lease).values_list("stop_requested_at"):
        return Heartbeat.STOP if stop_requested_at else Heartbeat.OURS
    return Heartbeat.LOST


RELEASED: dict[str, Any] = {"lease_token": "", "lease_until": None}
