"""`manage.py backup`: writes a backup while the product runs."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from project.operations.backup import write_backup, write_backup_file
from project.operations.refused import OperationRefused

KEYS = "Keys: {keys}. Store them apart from the backup: with both, stored keys can be read."
KEYS_SET = (
    "The keys are in SECRET_KEY and ENCRYPTION_KEYS, not in the backup. Back them up where you set"
    " them."
)


class Command(BaseCommand):
    """Writes the backup and prints the names of its files, which have mode 0600."""

    help = "Back up the database, the stored files and the last checkpoint. The server may run."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "place",
            help="a new file, an existing folder, or - for the standard output (without keys)",
        )

    def handle(self, *_args: Any, place: str, **_options: Any) -> None:
        """Write the backup. If it fails, raise CommandError and leave no file."""
        try:
            if place == "-":
                write_backup(sys.stdout.buffer, now=timezone.now())
                return
            written = write_backup_file(Path(place), now=timezone.now())
        except OperationRefused as refused:
            raise CommandError(str(refused)) from None
        self.stdout.write(f"Backup: {written.path} ({written.size:,} bytes).")
        self.stdout.write(KEYS.format(keys=written.keys) if written.keys else KEYS_SET)
