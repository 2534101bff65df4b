"""Prompts of past calls, built again."""

from collections.abc import Iterator

from chats.compaction.rebuilt import summary_request_of
from chats.models import Compaction, Receipt
from chats.prompt.rebuilt import rebuilt


def not_rebuilt(*, some: bool = True) -> list[str]:
    """Each call whose request, built again from rows, is not the one of its receipt."""
    rows = Receipt.objects.select_related("effective_policy", "turn__branch__chat__owner")
    assert rows or not some, "no call was made"
    found = [(row, rebuilt(row)) for row in rows]
    return [f"{row.purpose} {row}: {one.fault}" for row, one in found if one.fault]


def summaries_not_rebuilt() -> Iterator[str]:
    """Each call of a summary whose request, built again from rows, is not what was committed to."""
    for row in Compaction.objects.select_related("effective_policy", "branch"):
        for number in range(1, len(row.calls) + 1):
            fault = summary_request_of(row, number=number).fault
            if fault not in ("", "erased"):
                yield f"call {number} of {row}: {fault}"
