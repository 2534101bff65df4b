"""Re-encrypts the stored keys of providers, files, the ledger and webhooks."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from chats.checkpoints import keys
from chats.files.storage import reencrypt_file_keys
from chats.ground.secrets import SecretUnreadable
from chats.providers import accounts
from chats.webhooks import managing as webhooks


class Command(BaseCommand):
    """Re-encrypts all stored keys: `manage.py rotate_keys`.

    Run it after you add a new encryption key in front of the old one.
    """

    help = "Re-encrypt every stored key with the first of ENCRYPTION_KEYS. Then remove the others."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Re-encrypt the keys and print the count.

        Raises `CommandError`; then nothing was changed.
        """
        try:
            with transaction.atomic():
                rotated = accounts.rotate_keys(actor="system", now=timezone.now())
                rotated += reencrypt_file_keys()
                rotated += webhooks.reencrypt_webhook_secrets()
                rotated += keys.reencrypt_signing_keys(actor="system", now=timezone.now())
        except SecretUnreadable as refusal:
            raise CommandError(f"{refusal.sentence} Nothing was changed.") from None
        self.stdout.write(f"Re-encrypted {rotated} stored keys with the newest key.")
