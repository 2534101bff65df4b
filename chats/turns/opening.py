"""The beginning of a turn in one go: claim it, compose its first prompt, book its first call.

Nearly every turn begins so, and each way between the loop and a database thread costs as much as
the work there. Less simple beginnings are left to `turns.run`, which takes them step by step.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime

from chats.ground.leases import LeaseLost
from chats.models import Turn
from chats.prompt import composition
from chats.turns import steps
from chats.turns.lease import Lease
from contextpolicy.engine.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class Opening:
    """A claimed turn with its open step, and the booked call if it came that far."""

    lease: Lease
    turn: Turn
    prompt: composition.Prompt | None = None
    receipt_id: uuid.UUID | None = None


def open_turn(
    *, turn_id: uuid.UUID, worker: str, counter: TokenCounter, now: datetime
) -> Opening | None:
    """Claim the turn and prepare it as far as is simple; None if another worker has it."""
    begun = steps.begin(turn_id=turn_id, worker=worker, counter=counter, now=now)
    if begun is None:
        return None
    lease, turn = begun
    try:
        prompt = composition.compose(turn=turn, counter=counter, branch=turn.branch)
        if not isinstance(prompt, composition.Prompt) or prompt.need.action == "swap":
            return Opening(lease, turn)
        receipt_id = steps.book_call(
            lease=lease, turn=turn, prompt=prompt, call=1, now=now, is_first_asking=True
        )
    except LeaseLost:
        return None
    except Exception:  # noqa: BLE001  # nothing is swallowed: `turns.run` composes again
        # `turns.run` meets the error again, and handles it. Raised from here, a broken connection
        # would have the claim tried again, which this worker already holds, and the chat would hear
        # of an unforeseen error only after the lease has run out.
        return Opening(lease, turn)
    return Opening(lease, turn, prompt, receipt_id)
