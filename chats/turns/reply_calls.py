"""The model calls that write a turn's reply, one for each step and each repetition of a step."""

from django.db.models import QuerySet

from chats.models import Receipt, Turn
from contextpolicy.engine.policy.costs import parse_reported_usage


def select_reply_calls() -> QuerySet[Receipt]:
    """Select the receipts of replies, without those of titles, states and warm-ups."""
    return Receipt.objects.filter(step__gt=Receipt.AFTERWARDS, call__gt=Receipt.BESIDE)


def sum_reply_tokens(turn: Turn) -> int:
    """Return the reported tokens of all prompts and replies of a turn. `Turn.usage` has the last.

    A call whose provider reported no usage counts 0 tokens.
    """
    calls = select_reply_calls().filter(turn=turn)
    found = [parse_reported_usage(usage) for usage in calls.values_list("usage", flat=True)]
    return sum(used.input + used.output for used in found if used is not None)
