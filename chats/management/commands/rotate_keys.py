"""Encrypts the stored keys of providers, of the ledger and of webhooks anew."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from chats.checkpoints import keys
from chats.ground.secrets import SecretUnreadable
from chats.providers import accounts
from chats.webhooks import managing as webhooks


class Command(BaseCommand):
    """`manage.py rotate_keys`, after a new encryption key was put before the old one."""

    help = "Encrypt every stored key with the first of ENCRYPTION_KEYS; then the others may go."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Encrypt the keys and say how many there were.

        Raises `CommandError`; then nothing was changed.
        """
        try:
            with transaction.atomic():
                rotated = accounts.rotate_keys(actor="system", now=timezone.now())
                rotated += webhooks.encrypt_anew()
                rotated += keys.encrypt_anew(actor="system", now=timezone.now())
        except SecretUnreadable as refusal:
            raise CommandError(f"{refusal.sentence} Nothing was changed.") from None
        self.stdout.write(f"{rotated} stored keys are encrypted with the newest key.")
