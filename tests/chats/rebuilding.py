"""Prompts of past calls, built again."""

from chats.models import Receipt
from chats.prompt.rebuilt import rebuilt


def not_rebuilt(*, some: bool = True) -> list[str]:
    """Each call whose request, built again from rows, is not the one of its receipt."""
    rows = Receipt.objects.select_related("effective_policy", "turn__branch__chat__owner")
    assert rows or not some, "no call was made"
    found = [(row, rebuilt(row)) for row in rows]
    return [f"{row.purpose} {row}: {one.fault}" for row, one in found if one.fault]
