"""`manage.py ledger_checkpoint`: signs a checkpoint of the audit ledger now."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from chats.checkpoints import signing
from chats.ground.refusals import Refusal
from contextpolicy.reasons import says_something


class Command(BaseCommand):
    """Signs the next checkpoint and prints it; keep what it prints where nobody else writes."""

    help = "Sign a checkpoint of the audit ledger and print it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add what is done beside signing."""
        beside = parser.add_mutually_exclusive_group()
        beside.add_argument(
            "--new-key", action="store_true", help="change the signing key; both keys sign"
        )
        beside.add_argument(
            "--open-origin",
            metavar="REASON",
            help="go on after a restored backup: begin the next log, and say why",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the checkpoint. Raises `CommandError`; then nothing was signed."""
        reason = (options["open_origin"] or "").strip()
        if reason and not says_something(reason):
            raise CommandError("The reason says nothing. Write why the next origin is opened.")
        try:
            if reason:
                made = signing.open_origin(actor="system", now=timezone.now(), reason=reason)
            else:
                made = signing.sign(
                    actor="system",
                    now=timezone.now(),
                    reason="key" if options["new_key"] else "command",
                    new_key=options["new_key"],
                )
        except Refusal as refusal:
            raise CommandError(refusal.sentence) from None
        self.stdout.write(made.note, ending="")
