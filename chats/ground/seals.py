"""Commitments: values that stand in a record instead of words and reveal nothing about them.

A plain hash of a short text is the text: whoever has it tries every short text. A commitment is an
HMAC-SHA-256 under 32 random bytes, the salt, which stand beside the words and are deleted with
them. Whoever has both can prove what was said; without the salt, nobody can find it out any more.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable


def new_salt() -> str:
    """Return 32 random bytes, in hex."""
    return secrets.token_hex(32)


def commitment(*texts: str, salt: str) -> str:
    """Compute the HMAC-SHA-256, in hex, of the texts one after the other."""
    return commitment_of(texts, salt=salt)


def commitment_of(texts: Iterable[str], *, salt: str) -> str:
    """Compute the same over texts that come one by one."""
    made = hmac.new(bytes.fromhex(salt), digestmod=hashlib.sha256)
    for text in texts:
        made.update(text.encode("utf-8", "surrogatepass"))
    return made.hexdigest()


def holds(committed: str, text: str, *, salt: str) -> bool:
    """Tell whether a commitment is one to this text; never after its salt was destroyed."""
    return bool(salt) and hmac.compare_digest(committed, commitment(text, salt=salt))
