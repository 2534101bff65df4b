"""Commits the ledger to model calls: the entry that ends an attempt commits to its receipts.

A receipt is sealed when it is written, before the call. The code that ends an attempt lists its
calls. If part of a prompt is erased, its receipt keeps the commitment, but loses the salt and the
hashes of the part and of the whole. With these, anyone who knows the rest could guess the part.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.db.models import F, QuerySet

from chats.ground.commitments import compute_commitment, new_salt
from chats.models import PromptText, Receipt
from chats.record import statements
from chats.record.erasure_marks import ErasureMarks
from contextpolicy import ledger

# The columns known before the call. Only an erasure changes them later.
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
# Texts that do not belong to a chat: stored once for all chats.
SHARED = {
    ("system", "policy"),
    ("system", "runtime"),
    ("system", "skills"),
    ("system", "budget"),
    ("system", "state-v1"),
    ("system", "state-v2"),
    ("system", "title-v1"),
    ("system", "preferences-v1"),
    ("tools", ""),
    ("tail", "schema"),
}
# The columns that an erasure changes.
EMPTIED = ("segments", "prompt_sha256", "body_sha256", "salt", "erased_at")
PAGE = 200
# One segment of a prompt in its receipt's format.
Segment = Sequence[Any]


def select_reply_calls() -> QuerySet[Receipt]:
    """Select the receipts of replies, without those of titles, states and warm-ups."""
    return Receipt.objects.filter(step__gt=Receipt.AFTERWARDS, call__gt=Receipt.BESIDE)


def seal_receipt(receipt: Receipt) -> Receipt:
    """Set the salt and the commitment of a receipt that is about to be written."""
    receipt.salt = new_salt()
    receipt.commitment = recompute_commitment(receipt)
    return receipt


def recompute_commitment(receipt: Receipt) -> str:
    """Return the commitment to the receipt's current values."""
    values = {name: getattr(receipt, name) for name in WRITTEN}
    values |= {"id": str(receipt.pk), "turn": str(receipt.turn_id)}
    # The budget is the only value with fractions, which databases may return in another format.
    values["budget"] = ledger.normalise_event_data(receipt.budget)
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return compute_commitment(text, salt=receipt.salt)


def list_attempt_calls(
    *, turn_id: uuid.UUID, attempt: int
) -> tuple[list[list[str]], dict[str, str]]:
    """Return the calls of an attempt for the ledger entry that ends it, and their bodies.

    The calls are [[receipt, commitment], …]. The bodies map receipts to commitments to the hashes
    of the bytes sent. Runs in the transaction of that entry. A receipt without a commitment (older
    versions) gets one here.
    """
    rows = statements.CALLS.tuples(turn=turn_id, attempt=attempt)
    calls = [[str(row[0]), row[1] or seal_old_receipt(row[0])] for row in rows]
    bodies = {
        str(pk): compute_commitment(body, salt=salt) for pk, _, body, salt in rows if body and salt
    }
    return calls, bodies


def seal_old_receipt(pk: uuid.UUID) -> str:
    """Seal a receipt that an older version wrote without a commitment, and return the commitment.

    An erased receipt is not sealed; its commitment is empty.
    """
    receipt = Receipt.objects.get(pk=pk)
    if receipt.erased_at is None:
        seal_receipt(receipt).save(update_fields=["salt", "commitment"])
    return receipt.commitment


def derive_stored_digest(ref: str, *, origin: str, label: str, chat_id: uuid.UUID) -> str:
    """Return the digest under which a text in a prompt is stored.

    A chat's own text is stored separately for each chat, so that erasing it affects no other chat.
    """
    if not ref or not is_of_one_chat((origin, label)):
        return ref
    return compute_commitment(ref, salt=chat_id.hex)


def is_of_one_chat(segment: Segment) -> bool:
    """Return True if the text of a segment is stored separately for its chat."""
    return (segment[0], segment[1]) not in SHARED


def mark_erased_receipts(
    rows: QuerySet[Receipt], *, gone: Callable[[Segment], bool], marks: ErasureMarks
) -> tuple[int, int]:
    """Mark the receipts that have an erased part, and delete its text and digest.

    `gone` returns True for an erased segment. The caller writes `marks` to the ledger in the same
    transaction. Returns the number of receipts with an erased part, even if an earlier erasure
    marked them, and the number of deleted texts.
    """
    marked, digests = 0, set[str]()
    for receipt in iter_erasable_receipts(rows.annotate(chat=F("turn__branch__chat"))):
        meant = [segment for segment in receipt.segments if gone(segment)]
        if not meant:
            continue
        marked += 1
        named = {segment[5] for segment in meant if segment[5]}
        if receipt.erased_at is not None and not named:
            # An earlier erasure already removed everything.
            continue
        digests |= named
        receipt.segments = [strip_segment_digest(s) if gone(s) else s for s in receipt.segments]
        receipt.prompt_sha256 = receipt.body_sha256 = receipt.salt = ""
        if receipt.erased_at is None:
            receipt.erased_at = marks.now
            marks.add(receipt.pk, chat_id=receipt.chat)
        receipt.save(update_fields=EMPTIED)
    return marked, delete_prompt_texts(digests)


def iter_erasable_receipts(rows: QuerySet[Receipt]) -> Iterator[Any]:
    """Yield the receipts with only the columns that an erasure needs, loading them in pages."""
    needed = rows.only(*EMPTIED)
    yield from needed.order_by("pk").iterator(chunk_size=PAGE)


def strip_segment_digest(segment: Segment) -> list[Any]:
    """Return a segment without its text's digest. Its position and size stay."""
    return [*segment[:5], "", *segment[6:]]


def delete_prompt_texts(digests: set[str]) -> int:
    """Permanently delete prompt texts. Return the count."""
    ordered = sorted(digests)
    pages = [ordered[start : start + PAGE] for start in range(0, len(ordered), PAGE)]
    return sum(PromptText.objects.filter(digest__in=page).delete()[0] for page in pages)
