"""The key that signs checkpoints: encrypted in the database as the keys of providers are."""

import base64
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import transaction

from chats.ground import secrets
from chats.ground.refusals import Refusal
from contextpolicy import ledger
from contextpolicy.models import LedgerKey

# The length of an Ed25519 key.
BYTES = 32


class SigningKeyUnreadable(Refusal):
    """The signing key was encrypted with a key that is no longer here, or is damaged."""

    code = "signing_key_unreadable"
    status = 500
    sentence = (
        "The signing key of the ledger cannot be decrypted, so no checkpoint is signed. Restore "
        "the old encryption key, or begin with a new signing key: manage.py ledger_checkpoint "
        "--open-origin REASON."
    )


def current(*, now: datetime) -> LedgerKey:
    """Return the key in use; made at the first checkpoint. Runs in the signer's transaction."""
    found = LedgerKey.objects.filter(retired_at=None).order_by("-pk").first()
    return found or make(now=now)


def make(*, now: datetime) -> LedgerKey:
    """Make a new key."""
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    return LedgerKey.objects.create(
        public=base64.b64encode(public).decode(),
        encrypted_private=secrets.encrypt(base64.b64encode(private.private_bytes_raw()).decode()),
        made_at=now,
    )


def private_of(key: LedgerKey) -> Ed25519PrivateKey:
    """Return the private half. Raises `SigningKeyUnreadable`."""
    try:
        text = secrets.decrypt(key.encrypted_private)
    except secrets.SecretUnreadable:
        raise SigningKeyUnreadable from None
    return Ed25519PrivateKey.from_private_bytes(base64.b64decode(text))


def public_of(key: LedgerKey) -> bytes:
    """Return the public half."""
    return base64.b64decode(key.public)


def known() -> list[bytes]:
    """Return the public half of every key that ever signed; a damaged one is none."""
    found = []
    for text in LedgerKey.objects.values_list("public", flat=True):
        try:
            public = base64.b64decode(text, validate=True)
        except ValueError:
            continue
        found += [public] if len(public) == BYTES else []
    return found


def retire(key: LedgerKey, *, now: datetime) -> None:
    """Destroy the private half; the public one stays, to verify what it signed."""
    key.encrypted_private, key.retired_at = "", now
    key.save(update_fields=["encrypted_private", "retired_at"])


def encrypt_anew(*, actor: str, now: datetime) -> int:
    """Encrypt the private half with the newest encryption key; return how many keys there were.

    Raises `SecretUnreadable`.
    """
    with transaction.atomic():
        head = ledger.locked_head(ledger.INSTANCE)
        found = list(LedgerKey.objects.filter(retired_at=None))
        for key in found:
            key.encrypted_private = secrets.rotate(key.encrypted_private)
            key.save(update_fields=["encrypted_private"])
            data = {"fingerprint": key.public, "encryption": "rotated"}
            ledger.record("checkpoint.key_changed", actor=actor, now=now, data=data)
        del head
    return len(found)
