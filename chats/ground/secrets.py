"""Secrets at rest: provider and webhook keys are encrypted, our own keys are only hashed.

Encryption is Fernet with the keys of `settings.ENCRYPTION_KEYS` (urlsafe base64, newest first):
the first writes, all of them read. The keys live outside the database, so a stolen dump opens
nothing.
"""

import hashlib
import secrets

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from chats.ground.refusals import Refusal

TOKEN_BYTES = 32
# Shorter secrets could be guessed from their last characters.
SHORTEST_SHOWN = 12


class SecretUnreadable(Refusal):
    """A stored secret was written with an encryption key that is no longer here, or is damaged."""

    code = "secret_unreadable"
    status = 500
    sentence = (
        "A stored key cannot be decrypted with the encryption keys of this instance. "
        "Restore the old encryption key, or enter the stored key again."
    )


def encrypt(text: str) -> str:
    """Return the secret as a token for the database; two calls never give the same token."""
    return _fernet().encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """Return the secret behind a token of `encrypt`. Raises SecretUnreadable."""
    try:
        return _fernet().decrypt(token.encode()).decode()
    except (InvalidToken, UnicodeError):
        raise SecretUnreadable from None


def rotate(token: str) -> str:
    """Encrypt the same secret with the newest encryption key. Raises SecretUnreadable."""
    try:
        return _fernet().rotate(token.encode()).decode()
    except (InvalidToken, UnicodeError):
        raise SecretUnreadable from None


def last_four(text: str) -> str:
    """Return all that may be shown of a secret: its last four characters, none of a short one."""
    return text[-4:] if len(text) >= SHORTEST_SHOWN else ""


def new_token() -> str:
    """Return a fresh 256-bit token, safe in URLs and headers: API keys, login links."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(text: str) -> str:
    """Return SHA-256 in hex, to store and to look a token up by.

    A plain hash is enough: 256 random bits cannot be guessed, so a slow hash would protect nothing.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def _fernet() -> MultiFernet:
    # Built anew each time: it is cheap, and a change of the keys takes effect at once.
    return MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS])
