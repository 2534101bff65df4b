"""`manage.py ledger_checkpoint`: signs a checkpoint of the audit log."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from chats.checkpoints import external_copy, signing, upkeep
from chats.ground.refusals import Refusal
from contextpolicy.reasons import is_meaningful_text


class Command(BaseCommand):
    """Signs the next checkpoint and prints it. Store the output outside the server."""

    help = "Sign a checkpoint of the audit log and print it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options for a new key and a new origin."""
        beside = parser.add_mutually_exclusive_group()
        beside.add_argument(
            "--new-key", action="store_true", help="change the signing key; both keys sign"
        )
        beside.add_argument(
            "--open-origin",
            metavar="REASON",
            help="start the next log after restoring a backup; the reason is recorded",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the checkpoint. Raises `CommandError` if nothing was signed.

        If only the file could not be written, the checkpoint is printed before the error.
        """
        reason = (options["open_origin"] or "").strip()
        if reason and not is_meaningful_text(reason):
            raise CommandError("The reason is empty. Write why the next origin is opened.")
        try:
            if reason:
                made = signing.open_origin(actor="system", now=timezone.now(), reason=reason)
            else:
                made = signing.sign_checkpoint(
                    actor="system",
                    now=timezone.now(),
                    reason="key" if options["new_key"] else "command",
                    new_key=options["new_key"],
                )
        except external_copy.CopyNotWritten as refusal:
            self.stdout.write(upkeep.load_last_note(), ending="")
            raise CommandError(refusal.sentence) from None
        except Refusal as refusal:
            raise CommandError(refusal.sentence) from None
        self.stdout.write(made.note, ending="")
