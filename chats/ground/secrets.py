"""Secrets at rest: those of other services are encrypted, our own keys are only hashed.

Encryption is Fernet with the keys in `settings.ENCRYPTION_KEYS` (urlsafe base64, newest first): the
first one encrypts, all decrypt. The keys are not in the database, so a stolen database dump does
not reveal the secrets.
"""

import hashlib
import secrets

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal

TOKEN_BYTES = 32
# The last characters of shorter secrets would make them guessable.
SHORTEST_SHOWN = 12


class SecretUnreadable(Refusal):
    """A stored secret is damaged, or its encryption key is missing."""

    code = "secret_unreadable"
    status = 500
    sentence = gettext_noop(
        "A stored key cannot be decrypted with this instance’s encryption keys. Restore the old "
        "encryption key, or enter the stored key again."
    )


def encrypt(text: str) -> str:
    """Encrypt a secret for the database. The result differs with each call."""
    return _fernet().encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """Decrypt a secret from the database. Raises SecretUnreadable."""
    try:
        return _fernet().decrypt(token.encode()).decode()
    except (InvalidToken, UnicodeError):
        raise SecretUnreadable from None


def rotate_secret(token: str) -> str:
    """Re-encrypt a secret with the newest encryption key. Raises SecretUnreadable."""
    try:
        return _fernet().rotate(token.encode()).decode()
    except (InvalidToken, UnicodeError):
        raise SecretUnreadable from None


def get_last_four(text: str) -> str:
    """Return the last four characters of a secret; empty for a short one."""
    return text[-4:] if len(text) >= SHORTEST_SHOWN else ""


def generate_token() -> str:
    """Return a new 256-bit token, safe in URLs and headers: API keys, login links."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(text: str) -> str:
    """Return the SHA-256 of a token in hex, for storage and lookup.

    A plain hash is sufficient: 256 random bits cannot be guessed, so a slow hash would add nothing.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def _fernet() -> MultiFernet:
    # Created for each call, which is cheap and lets a change of the keys apply at once.
    return MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS])
