"""The beginning of a turn in one go: claim it, compose its first prompt, book its first call.

Nearly every turn begins so, and each way between the loop and a database thread costs as much as
the work there. What is not that plain is left to the run, which takes it step by step.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime

from chats import context
from chats.models import Turn
from chats.turns import steps
from chats.turns.lease import Lease, LeaseLost
from contextpolicy.engine.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class Opening:
    """A claimed turn with its open step, and the booked call if it came that far."""

    lease: Lease
    turn: Turn
    prompt: context.Prompt | None = None
    receipt_id: uuid.UUID | None = None


def open_turn(
    *, turn_id: uuid.UUID, worker: str, counter: TokenCounter, now: datetime
) -> Opening | None:
    """Claim the turn and bring it as far as is plain; None when it is somebody else's."""
    begun = steps.begin(turn_id=turn_id, worker=worker, counter=counter, now=now)
    if begun is None:
        return None
    lease, turn = begun
    try:
        prompt = context.compose(turn=turn, counter=counter, branch=turn.branch)
        if not isinstance(prompt, context.Prompt) or prompt.need.action == "swap":
            return Opening(lease, turn)
        receipt_id = steps.book_call(
            lease=lease, turn=turn, prompt=prompt, call=1, now=now, is_first_asking=True
        )
    except LeaseLost:
        return None
    except Exception:  # noqa: BLE001  # nothing is swallowed: the run composes again
        # The run meets it again, and knows what to do about it. Raised from here, a broken
        # connection would have the claim tried again, which this worker already holds, and of
        # what nobody foresaw the chat would not hear before the lease has run out.
        return Opening(lease, turn)
    return Opening(lease, turn, prompt, receipt_id)
