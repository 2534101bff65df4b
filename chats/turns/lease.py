"""The lease of a turn: claim, renew, release. Each write by the worker carries its token.

A claim creates a new random token (fencing), so writes by a worker that was presumed dead match no
row. All times come from the database, the one clock that all workers share.
"""

import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from django.db.models import QuerySet

from chats.ground.leases import LeaseLost, compute_lease_end, get_lease_duration
from chats.models import Turn
from chats.turns import statements
from speed.commits import unflushed_transaction


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's claim on one turn."""

    turn_id: uuid.UUID
    token: str


def claim_turn(*, turn_id: uuid.UUID, worker: str, now: datetime) -> Lease | None:
    """Claim the turn. None if it has ended, another worker holds it, or its branch is busy.

    `now` is used only as the displayed start time. Raises Django's IntegrityError if another turn
    of the branch was claimed between this read and this write.
    """
    token = secrets.token_urlsafe(32)
    values = (Turn.Status.RUNNING, token, worker, False, now, None, "", "")
    fields = dict(zip(statements.CLAIMED_FIELDS, values, strict=True))
    if not statements.CLAIM.run(fields, turn=turn_id, length=get_lease_duration()):
        return None
    return Lease(turn_id=turn_id, token=token)


def select_held_turn(lease: Lease) -> QuerySet[Turn]:
    """Return a queryset with the turn's row, or an empty queryset if the lease is lost."""
    return statements.select_leased_turn(
        lambda name: {"turn": lease.turn_id, "token": lease.token}[name]
    )


def update_held_turn(lease: Lease, **values: Any) -> None:
    """Update columns of the turn if its lease is still held.

    Raises `LeaseLost` if another worker claimed the turn or the turn ended.
    """
    if not statements.write_held(tuple(values)).run(values, turn=lease.turn_id, token=lease.token):
        raise LeaseLost(lease.turn_id)


def extend_lease(lease: Lease) -> None:
    """Extend the lease to its full duration from now. Raises `LeaseLost`."""
    if not select_held_turn(lease).update(lease_until=compute_lease_end()):
        raise LeaseLost(lease.turn_id)


def lock_held_turn(lease: Lease) -> Turn:
    """Return the turn with its branch, locked for the transaction. Raises `LeaseLost`."""
    turn = statements.HELD_AND_LOCKED.first(turn=lease.turn_id, token=lease.token)
    if turn is None:
        raise LeaseLost(lease.turn_id)
    return turn


def read_turn(lease: Lease) -> Turn:
    """Return the turn with its branch, chat, model and message, without checking the lease.

    If this transaction wrote the row, it is locked. Raises `LeaseLost` if the turn was deleted.
    """
    turn = statements.TURN.first(turn=lease.turn_id)
    if turn is None:
        raise LeaseLost(lease.turn_id)
    return turn


class Heartbeat(Enum):
    """The state of a turn, as read by a heartbeat."""

    OURS = "ours"
    STOP = "stop"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Partial:
    """The partial text of the current step since its last restart."""

    lease: Lease
    step: int
    begun_anew: int
    text: str
    reasoning: str


@unflushed_transaction()
def renew_leases(*, leases: Sequence[Lease]) -> list[Heartbeat]:
    """Extend each lease and return each turn's state. A lost lease raises no error.

    The lease of a turn that was asked to stop is not extended.
    """
    span = get_lease_duration()
    return [
        Heartbeat.OURS
        if statements.RENEW.run({}, turn=lease.turn_id, token=lease.token, length=span)
        else find_turn_state(lease)
        for lease in leases
    ]


@unflushed_transaction()
def save_partial_texts(*, texts: Sequence[Partial]) -> list[Heartbeat]:
    """Save each partial text and return each turn's state.

    Skips turns that were asked to stop, and text from an earlier step or restart.
    """
    return [
        Heartbeat.OURS
        if statements.SAVE_TEXT.run(
            {"partial_text": partial.text, "partial_reasoning": partial.reasoning},
            turn=partial.lease.turn_id,
            token=partial.lease.token,
            step=partial.step,
            begun_anew=partial.begun_anew,
        )
        else find_turn_state(partial.lease)
        for partial in texts
    ]


def find_turn_state(lease: Lease) -> Heartbeat:
    """Return the state of a turn that a heartbeat could not update."""
    for (stop_requested_at,) in select_held_turn(lease).values_list("stop_requested_at"):
        return Heartbeat.STOP if stop_requested_at else Heartbeat.OURS
    return Heartbeat.LOST


RELEASED: dict[str, Any] = {"lease_token": "", "lease_until": None}
