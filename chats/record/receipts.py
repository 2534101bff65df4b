"""Commits the ledger to model calls: to each receipt, by the row that ends its attempt.

A receipt is sealed when it is written, before the call. The code that ends an attempt lists its
calls. When a part of a prompt is erased, its receipt keeps the commitment but no salt and no hash,
neither of the part nor of the whole: with all the rest known, either would be a way to guess the
part.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.db.models import F, QuerySet

from chats.ground.seals import commitment, new_salt
from chats.models import PromptText, Receipt
from chats.record import statements
from chats.record.erasure_marks import ErasureMarks
from contextpolicy import ledger

# The columns known before the call; only an erasure changes them later.
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
# Texts that are not a chat's own: kept once, however many chats send them.
SHARED = {
    ("system", "policy"),
    ("system", "runtime"),
    ("system", "skills"),
    ("system", "budget"),
    ("system", "state-v1"),
    ("system", "title-v1"),
    ("system", "preferences-v1"),
    ("tools", ""),
    ("tail", "schema"),
}
# What an erasure changes.
EMPTIED = ("segments", "prompt_sha256", "body_sha256", "salt", "erased_at")
PAGE = 200
# One piece of a prompt as its receipt has it.
Segment = Sequence[Any]


def seal(receipt: Receipt) -> Receipt:
    """Give a receipt that is about to be written its salt and its commitment."""
    receipt.salt = new_salt()
    receipt.commitment = recomputed(receipt)
    return receipt


def recomputed(receipt: Receipt) -> str:
    """Compute the commitment to what the receipt says now."""
    said = {name: getattr(receipt, name) for name in WRITTEN}
    said |= {"id": str(receipt.pk), "turn": str(receipt.turn_id)}
    # The one part with fractions, which databases may give back in another form.
    said["budget"] = ledger.as_stored(receipt.budget)
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return commitment(text, salt=receipt.salt)


def calls_of(*, turn_id: uuid.UUID, attempt: int) -> tuple[list[list[str]], dict[str, str]]:
    """Return the calls of an attempt for the ledger row that ends it, and their bodies.

    The calls are [[receipt, commitment], …]; the bodies are, by receipt, commitments to the hashes
    of the bytes that were sent. Runs in the transaction of that row. A receipt older than
    commitments gets one here.
    """
    rows = statements.CALLS.tuples(turn=turn_id, attempt=attempt)
    calls = [[str(row[0]), row[1] or late(row[0])] for row in rows]
    bodies = {str(pk): commitment(body, salt=salt) for pk, _, body, salt in rows if body and salt}
    return calls, bodies


def late(pk: uuid.UUID) -> str:
    """Seal a receipt that was written by an older version of the product, without commitments."""
    receipt = Receipt.objects.get(pk=pk)
    if receipt.erased_at is None:
        seal(receipt).save(update_fields=["salt", "commitment"])
    return receipt.commitment


def own_ref(ref: str, *, origin: str, label: str, chat_id: uuid.UUID) -> str:
    """Return the digest under which a text of a prompt is kept.

    A chat's own words are kept for this chat alone: an erasure here takes nothing from another.
    """
    if not ref or not is_of_one_chat((origin, label)):
        return ref
    return commitment(ref, salt=chat_id.hex)


def is_of_one_chat(segment: Segment) -> bool:
    """Tell whether the text of a piece is kept for its chat alone."""
    return (segment[0], segment[1]) not in SHARED


def without(
    rows: QuerySet[Receipt], *, gone: Callable[[Segment], bool], marks: ErasureMarks
) -> tuple[int, int]:
    """Mark the receipts that have an erased part; return how many, and how many texts were deleted.

    `gone` tells whether a segment is one. Its text is deleted, with the digest that named it. The
    caller writes `marks` to the ledger in the same transaction.
    """
    marked, digests = 0, set[str]()
    for receipt in parts_of(rows.annotate(chat=F("turn__branch__chat"))):
        meant = [segment for segment in receipt.segments if gone(segment)]
        if not meant:
            continue
        marked += 1
        named = {segment[5] for segment in meant if segment[5]}
        if receipt.erased_at is not None and not named:
            # An earlier erasure has taken all that there was.
            continue
        digests |= named
        receipt.segments = [nameless(s) if gone(s) else s for s in receipt.segments]
        receipt.prompt_sha256 = receipt.body_sha256 = receipt.salt = ""
        if receipt.erased_at is None:
            receipt.erased_at = marks.now
            marks.add(receipt.pk, chat_id=receipt.chat)
        receipt.save(update_fields=EMPTIED)
    return marked, forget(digests)


def parts_of(rows: QuerySet[Receipt]) -> Iterator[Any]:
    """Yield the receipts with what an erasure looks at, read a page at a time."""
    needed = rows.only(*EMPTIED)
    yield from needed.order_by("pk").iterator(chunk_size=PAGE)


def nameless(segment: Segment) -> list[Any]:
    """Return a segment without the digest of its text; its place and its size stay."""
    return [*segment[:5], "", *segment[6:]]


def forget(digests: set[str]) -> int:
    """Delete texts of prompts for good; return how many there were."""
    ordered = sorted(digests)
    pages = [ordered[start : start + PAGE] for start in range(0, len(ordered), PAGE)]
    return sum(PromptText.objects.filter(digest__in=page).delete()[0] for page in pages)
