"""Calls the hook `on_turn_complete` of a policy's strategy when a turn is complete.

The hook runs in the background after the commit. It is skipped if the broker message is
lost. A failed hook changes nothing.
"""

import logging
import uuid

from chats.models import Message, Turn
from chats.record import history
from contextpolicy import plugins
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.budget import compute_prompt_limit, convert_provider_tokens
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.contract import call_turn_hook
from contextpolicy.resolution import load_policy_values

logger = logging.getLogger(__name__)


def tell_strategy(*, turn_id: uuid.UUID, counter: TokenCounter) -> None:
    """Call the strategy's hook with the newest messages, up to the prompt limit.

    A failed hook is logged.
    """
    turns = Turn.objects.select_related("branch", "effective_policy", "model", "reply")
    turn = turns.filter(pk=turn_id).first()
    if turn is None or turn.reply is None or turn.effective_policy is None:
        return
    values = load_policy_values(turn.effective_policy)
    messages = load_completed_messages(turn, reply=turn.reply, values=values, counter=counter)
    fault = call_turn_hook(plugins.find_strategy(values.strategy), history=messages)
    if fault:
        logger.warning("strategy %s failed after turn %s: %s", values.strategy, turn_id, fault)


def load_completed_messages(
    turn: Turn, *, reply: Message, values: PolicyValues, counter: TokenCounter
) -> tuple[engine.Message, ...]:
    """Return the messages up to and including the reply, oldest first.

    Their total is limited to the prompt limit of the turn's model.
    """
    model = turn.model
    limit = compute_prompt_limit(values, model_window=model.window if model else None)
    loaded = history.load_newest_messages(
        turn.branch,
        after=0,
        before=(reply.seq or 0) + 1,
        values=values,
        counter=counter,
        tokens=max(
            convert_provider_tokens(limit, calibration=model.calibration if model else 1.0), 1
        ),
        most=None,
    )
    return loaded.messages
