"""Finds the fields that a policy cannot use."""

from contextpolicy.engine.policy.fields import FIELDS
from contextpolicy.engine.policy.policy import PolicyValues


def find_unused_fields(values: PolicyValues) -> frozenset[str]:
    """Return the fields, set or not, that the strategy and layout of these values never read."""
    prefix = {"question_prefix"} if values.layout in ("multi_turn", "B") else set()
    return frozenset({*list_unused_fields(values.strategy), *prefix})


def list_unused_fields(strategy: str) -> list[str]:
    """Return the fields that a built-in strategy never reads, in the order of the form."""
    return [name for name, declared in FIELDS.items() if strategy in declared.unused_with]
