"""Rebuild the requests of past calls from rows, and report differences."""

from collections.abc import Iterator

from chats.compaction.reconstruction import rebuild_summary_request
from chats.models import Compaction, Receipt
from chats.prompt.reconstruction import rebuild_request


def not_rebuilt(*, some: bool = True) -> list[str]:
    """Return the calls whose rebuilt request differs from their receipt."""
    rows = Receipt.objects.select_related("effective_policy", "turn__branch__chat__owner")
    assert rows or not some, "no call was made"
    found = [(row, rebuild_request(row)) for row in rows]
    return [f"{row.purpose} {row}: {one.fault}" for row, one in found if one.fault]


def summaries_not_rebuilt() -> Iterator[str]:
    """Yield the summary calls whose rebuilt request differs from the committed one."""
    for row in Compaction.objects.select_related("effective_policy", "branch"):
        for number in range(1, len(row.calls) + 1):
            fault = rebuild_summary_request(row, number=number).fault
            if fault not in ("", "erased"):
                yield f"call {number} of {row}: {fault}"
