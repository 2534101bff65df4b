"""Commitments: values that replace text in a record without revealing it.

A plain hash does not keep short text secret, because all short strings can be tried. A commitment
is an HMAC-SHA-256 with a salt of 32 random bytes. The salt is stored with the text and deleted with
it. Text and salt together prove the content. Without the salt, the text cannot be guessed.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable


def new_salt() -> str:
    """Return 32 random bytes, in hex."""
    return secrets.token_hex(32)


def compute_commitment(*texts: str, salt: str) -> str:
    """Return the HMAC-SHA-256 of the concatenated texts, in hex."""
    return compute_iterable_commitment(texts, salt=salt)


def compute_iterable_commitment(texts: Iterable[str], *, salt: str) -> str:
    made = hmac.new(bytes.fromhex(salt), digestmod=hashlib.sha256)
    for text in texts:
        made.update(text.encode("utf-8", "surrogatepass"))
    return made.hexdigest()


def is_commitment_valid(committed: str, text: str, *, salt: str) -> bool:
    """Return True if the commitment matches the text. Always False if the salt is empty."""
    return bool(salt) and hmac.compare_digest(committed, compute_commitment(text, salt=salt))
