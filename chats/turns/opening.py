"""Opens a turn in one database call.

The call claims the turn, composes its first prompt and records its first model call. Most turns
start this way, because each switch between the event loop and a database thread costs as much as
the query. `turns.attempt` handles the other cases step by step.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime

from chats.ground.leases import LeaseLost
from chats.models import ToolStep, Turn
from chats.prompt import built_prompt, composition
from chats.prompt.tail import TailRequired
from chats.turns import call_receipts, writes
from chats.turns.lease import Lease
from contextpolicy.engine.messages.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class ClaimedTurn:
    """A claimed turn with its open step.

    `prompt` and `receipt_id` are set if the first call was recorded. `due` lists the parts
    of the tail to build before the first prompt. `stored` is the reply that an earlier
    attempt stored before it called tool servers.
    """

    lease: Lease
    turn: Turn
    prompt: built_prompt.Prompt | None = None
    receipt_id: uuid.UUID | None = None
    due: TailRequired | None = None
    stored: ToolStep | None = None


def open_turn(
    *, turn_id: uuid.UUID, worker: str, counter: TokenCounter, now: datetime
) -> ClaimedTurn | None:
    """Claim the turn and prepare its first call if possible.

    None if the turn has ended, another worker holds it, its branch is busy, or the lease was lost
    again.
    """
    begun = writes.claim_and_open(turn_id=turn_id, worker=worker, counter=counter, now=now)
    if begun is None:
        return None
    lease, turn, stored = begun
    if stored is not None:
        return ClaimedTurn(lease, turn, stored=stored)
    try:
        prompt = composition.compose_prompt(turn=turn, counter=counter, branch=turn.branch)
        if isinstance(prompt, TailRequired):
            return ClaimedTurn(lease, turn, due=prompt)
        if not isinstance(prompt, built_prompt.Prompt) or prompt.need.action == "swap":
            return ClaimedTurn(lease, turn)
        receipt_id = call_receipts.create_receipt(
            lease=lease, turn=turn, prompt=prompt, call=1, now=now, is_first_asking=True
        )
    except LeaseLost:
        return None
    except Exception:  # noqa: BLE001  # nothing is swallowed: `turns.attempt` composes again
        # `turns.attempt` encounters the error again and handles it. If it were raised here, a
        # connection error would retry the claim, which this worker already holds, and the chat
        # would show the error only after the lease expires.
        return ClaimedTurn(lease, turn)
    return ClaimedTurn(lease, turn, prompt, receipt_id)
