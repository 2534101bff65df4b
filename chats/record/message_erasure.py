"""Erases the content of a message, and recognises erased messages of imports."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.crypto import salted_hmac

from chats.ground.commitments import compute_commitment, new_salt
from chats.models import Message

# Metadata key in an erased message: the digest of its imported id.
ERASED_ID = "erasedId"
# The columns that an erasure changes.
ERASED = (
    "parts",
    "contains_files",
    "speaker",
    "addressees",
    "metadata",
    "token_count",
    "erased_at",
    "salt",
)


class Proof(NamedTuple):
    """A proof of the erased content: its salt and commitment, shown once.

    Together with the original text, it proves the content of the message.
    """

    salt: str
    commitment: str


def format_canonical_parts(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return the parts of a message as canonical JSON: sorted keys, no spaces, ASCII only."""
    return json.dumps(list(parts), sort_keys=True, separators=(",", ":"))


def digest_of_id(own_id: str) -> str:
    """Return a keyed digest of a message's original id in an import."""
    return salted_hmac("chats.record.messages.id", own_id, algorithm="sha256").hexdigest()


def erase_message_content(message: Message, *, now: datetime) -> Proof:
    """Erase a message's content permanently. Its id and position stay.

    Returns a commitment to the parts as canonical JSON, and its salt, which is not stored. Runs in
    the caller's transaction.
    """
    salt = new_salt()
    proof = Proof(salt, compute_commitment(format_canonical_parts(message.parts), salt=salt))
    message.parts = []
    message.contains_files = False
    message.speaker = None
    message.addressees = []
    source = message.metadata.get("source") or {}
    # Prevents a newer file from importing the message again.
    known = message.metadata.get(ERASED_ID, "")
    digest = digest_of_id(str(source["id"])) if source.get("id") else known
    message.metadata = {ERASED_ID: digest} if digest else {}
    message.token_count = 0
    message.erased_at = now
    # With the salt, the stored commitment would allow guessing the text.
    message.salt = ""
    message.save(update_fields=ERASED)
    return proof
