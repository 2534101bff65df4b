"""Sums the tokens of the model calls that write a turn's reply."""

from chats.models import Turn
from chats.record.receipts import select_reply_calls
from contextpolicy.engine.policy.costs import parse_reported_usage


def sum_reply_tokens(turn: Turn) -> int:
    """Return the reported tokens of all prompts and replies of a turn. `Turn.usage` has the last.

    A call whose provider reported no usage counts 0 tokens.
    """
    calls = select_reply_calls().filter(turn=turn)
    found = [parse_reported_usage(usage) for usage in calls.values_list("usage", flat=True)]
    return sum(used.input + used.output for used in found if used is not None)
