"""Verifies that stored messages are those that prompts had.

A receipt has the hash of its prompt, and the ledger commits to the receipt. The prompt is built
again from the messages as they are now. Of the receipts of a chat, the newest first, only those are
built again that have a message which no other one showed yet. What no prompt had, such as the last
reply of a chat, cannot be compared.
"""

import uuid
from collections import Counter
from collections.abc import Iterator

from chats.models import Message, Receipt
from chats.prompt.rebuilt import rebuilt
from chats.record.witness import SCOPE, pages
from contextpolicy.ledger import Break

PAGE = 100
FITS = "prompts were built again from stored messages, and are as they were sent"
NOT_BUILT = "prompts could not be built again, so their messages were not compared"


def verify(*, scope: str | None, told: Counter[str]) -> Iterator[Break]:
    """Yield the first prompt of each chat whose messages are not those that were sent."""
    for page in pages(scope):
        for chat_id in page:
            yield from of_chat(chat_id, told=told)


def of_chat(chat_id: uuid.UUID, *, told: Counter[str]) -> Iterator[Break]:
    """Yield the first such prompt of one chat."""
    rows = Receipt.objects.filter(turn__branch__chat=chat_id, erased_at=None)
    rows = rows.exclude(commitment="").order_by("-created_at", "-pk").only("segments")
    shown: set[str] = set()
    for row in rows.iterator(chunk_size=PAGE):
        ids = {str(segment[1]) for segment in row.segments if is_id(segment[1])}
        if ids <= shown:
            continue
        fault = fault_of(row.pk, ids=ids)
        if fault == "":
            shown |= ids
            told[FITS] += 1
        elif fault == "missing":
            told[NOT_BUILT] += 1
        elif fault != "erased":
            yield Break(f"{SCOPE}{chat_id}", 0, f"the prompt of receipt {row.pk} {fault}")
            return


def is_id(text: object) -> bool:
    """Return True if a segment names a message."""
    try:
        uuid.UUID(str(text))
    except ValueError:
        return False
    return True


def fault_of(receipt_id: uuid.UUID, *, ids: set[str]) -> str:
    """Say what is wrong with the messages of a prompt; `missing` where it cannot be built again."""
    related = ("effective_policy", "turn__branch__chat__owner")
    receipt = Receipt.objects.select_related(*related).filter(pk=receipt_id).first()
    if receipt is None:
        return "erased"
    found = rebuilt(receipt).fault
    if found in {"", "erased"}:
        return found
    # An erasure may have come meanwhile: it marks the receipt in its own transaction.
    if not Receipt.objects.filter(pk=receipt_id, erased_at=None).exists():
        return "erased"
    there = Message.objects.filter(pk__in=ids, erased_at=None).count()
    if there < len(ids):
        return "had messages that are gone or erased, and no row says so"
    return "had other words than its messages have now" if found == "differs" else found
