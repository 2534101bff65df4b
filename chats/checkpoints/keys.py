"""The key that signs checkpoints, encrypted in the database like provider keys."""

import base64
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.ground import secrets
from chats.ground.refusals import Refusal
from contextpolicy import ledger
from contextpolicy.models import LedgerKey

# Length of an Ed25519 key in bytes.
BYTES = 32


class SigningKeyUnreadable(Refusal):
    """The signing key is damaged, or its encryption key is missing."""

    code = "signing_key_unreadable"
    status = 500
    sentence = gettext_noop(
        "The audit log’s signing key cannot be decrypted, so no checkpoint is signed. Restore "
        "the old encryption key, or create a new signing key: manage.py ledger_checkpoint "
        "--open-origin REASON."
    )


def ensure_signing_key(*, now: datetime) -> LedgerKey:
    """Return the active key. Create it if there is none. Runs in the signer's transaction."""
    found = LedgerKey.objects.filter(retired_at=None).order_by("-pk").first()
    return found or create_signing_key(now=now)


def create_signing_key(*, now: datetime) -> LedgerKey:
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    return LedgerKey.objects.create(
        public=base64.b64encode(public).decode(),
        encrypted_private=secrets.encrypt(base64.b64encode(private.private_bytes_raw()).decode()),
        made_at=now,
    )


def decrypt_private_key(key: LedgerKey) -> Ed25519PrivateKey:
    """Return the private key. Raises `SigningKeyUnreadable`."""
    try:
        text = secrets.decrypt(key.encrypted_private)
    except secrets.SecretUnreadable:
        raise SigningKeyUnreadable from None
    return Ed25519PrivateKey.from_private_bytes(base64.b64decode(text))


def decode_public_key(key: LedgerKey) -> bytes:
    return base64.b64decode(key.public)


def load_valid_keys() -> list[bytes]:
    """Return the public key of every signing key that is not damaged."""
    found = []
    for text in LedgerKey.objects.values_list("public", flat=True):
        try:
            public = base64.b64decode(text, validate=True)
        except ValueError:
            continue
        found += [public] if len(public) == BYTES else []
    return found


def retire_signing_key(key: LedgerKey, *, now: datetime) -> None:
    """Destroy the private key. The public key stays, to verify older signatures."""
    key.encrypted_private, key.retired_at = "", now
    key.save(update_fields=["encrypted_private", "retired_at"])


def reencrypt_signing_keys(*, actor: str, now: datetime) -> int:
    """Re-encrypt the private key with the newest encryption key; return the number of keys.

    Raises `SecretUnreadable`.
    """
    with transaction.atomic():
        head = ledger.lock_chain_head(ledger.INSTANCE)
        found = list(LedgerKey.objects.filter(retired_at=None))
        for key in found:
            key.encrypted_private = secrets.rotate_secret(key.encrypted_private)
            key.save(update_fields=["encrypted_private"])
            data = {"fingerprint": key.public, "encryption": "rotated"}
            ledger.record_event("checkpoint.key_changed", actor=actor, now=now, data=data)
        del head
    return len(found)
