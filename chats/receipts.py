"""What the ledger holds of a model call: a commitment to its receipt, by the row that ends it.

A receipt is sealed when it is written, before the call. Whoever ends an attempt lists its calls.
When a part of a prompt is erased, its receipt keeps the commitment but no salt and no hash, neither
of the part nor of the whole: with all the rest known, either would be a way to guess the part.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from chats.models import PromptText, Receipt
from chats.seals import commitment, new_salt
from contextpolicy import ledger, prepared

# What was known before the call; never written again, but for an erasure.
WRITTEN = (
    "attempt",
    "step",
    "call",
    "model_name",
    "effective_policy_id",
    "segments",
    "left_out",
    "prompt_tokens",
    "prompt_sha256",
    "last_seq",
    "notes",
)
# Texts that are no words of a chat: kept once, however many chats send them.
SHARED = {("system", "policy"), ("system", "state-v1"), ("tools", ""), ("tail", "schema")}
PAGE = 200
# One piece of a prompt as its receipt has it.
Segment = Sequence[Any]

_CALLS = prepared.Select(
    lambda at: (
        Receipt.objects.filter(turn=at("turn"), attempt=at("attempt"))
        .order_by("step", "call")
        .values_list("pk", "commitment")
    )
)


def seal(receipt: Receipt) -> Receipt:
    """Give a receipt that is about to be written its salt and its commitment."""
    receipt.salt = new_salt()
    receipt.commitment = recomputed(receipt)
    return receipt


def recomputed(receipt: Receipt) -> str:
    """The commitment to what the receipt says now."""
    said = {name: getattr(receipt, name) for name in WRITTEN}
    said |= {"id": str(receipt.pk), "turn": str(receipt.turn_id)}
    # The one part with fractions, which databases may give back in another form.
    said["budget"] = ledger.as_stored(receipt.budget)
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return commitment(text, salt=receipt.salt)


def calls_of(*, turn_id: uuid.UUID, attempt: int) -> list[list[str]]:
    """The calls of an attempt for the ledger row that ends it: [[receipt, commitment], …].

    Runs in the transaction of that row. A receipt from before there were commitments gets one.
    """
    return [
        [str(pk), committed or late(pk)]
        for pk, committed in _CALLS.tuples(turn=turn_id, attempt=attempt)
    ]


def late(pk: uuid.UUID) -> str:
    """Seal a receipt that was written by a version of the product which did not do it."""
    receipt = Receipt.objects.get(pk=pk)
    if receipt.erased_at is None:
        seal(receipt).save(update_fields=["salt", "commitment"])
    return receipt.commitment


def own_ref(ref: str, *, origin: str, label: str, chat_id: uuid.UUID) -> str:
    """The digest under which a text of a prompt is kept.

    A chat's own words are kept for this chat alone: an erasure here takes nothing from another.
    """
    if not ref or not is_of_one_chat((origin, label)):
        return ref
    return commitment(ref, salt=chat_id.hex)


def is_of_one_chat(segment: Segment) -> bool:
    """Whether the text of a piece is kept for its chat alone."""
    return (segment[0], segment[1]) not in SHARED


def without(
    rows: QuerySet[Receipt], *, gone: Callable[[Segment], bool], now: datetime
) -> tuple[int, int]:
    """Mark the receipts that have an erased part; how many there were, and how many texts went.

    `gone` says whether a segment is one. Its text goes for good, with the digest that named it.
    """
    marked, digests = 0, set[str]()
    for receipt in parts_of(rows):
        if not any(gone(segment) for segment in receipt.segments):
            continue
        digests |= {segment[5] for segment in receipt.segments if segment[5] and gone(segment)}
        receipt.segments = [nameless(s) if gone(s) else s for s in receipt.segments]
        receipt.prompt_sha256 = receipt.salt = ""
        receipt.erased_at = receipt.erased_at or now
        receipt.save(update_fields=["segments", "prompt_sha256", "salt", "erased_at"])
        marked += 1
    return marked, forget(digests)


def parts_of(rows: QuerySet[Receipt]) -> Iterator[Receipt]:
    """The receipts with what an erasure looks at, read a page at a time."""
    needed = rows.only("segments", "prompt_sha256", "salt", "erased_at")
    yield from needed.order_by("pk").iterator(chunk_size=PAGE)


def nameless(segment: Segment) -> list[Any]:
    """A segment without the digest of its text; its place and its size stay."""
    return [*segment[:5], "", *segment[6:]]


def forget(digests: set[str]) -> int:
    """Take texts of prompts away for good; how many there were."""
    ordered = sorted(digests)
    pages = [ordered[start : start + PAGE] for start in range(0, len(ordered), PAGE)]
    return sum(PromptText.objects.filter(digest__in=page).delete()[0] for page in pages)
