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
INCOMPLETE = (
    "The backup was written, but some stored files are missing from it or damaged. {report}"
    " Restore these files in the storage from an earlier backup, then back up again. The ids are"
    " those of GET /api/v1/files."
)
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
        parser.add_argument(
            "--without-files",
            action="store_true",
            help="leave out the stored files, for example if the bucket has its own backup",
        )

    def handle(self, *_args: Any, place: str, without_files: bool, **_options: Any) -> None:
        """Write the backup. If it fails, raise CommandError and leave no file.

        Also raises CommandError if the backup is written and lacks stored files.
        """
        options: dict[str, Any] = {"now": timezone.now(), "has_files": not without_files}
        try:
            if place == "-":
                report = write_backup(sys.stdout.buffer, **options)
            else:
                written = write_backup_file(Path(place), **options)
                report = written.report
                self.stdout.write(f"Backup: {written.path} ({written.size:,} bytes).")
                self.stdout.write(KEYS.format(keys=written.keys) if written.keys else KEYS_SET)
        except OperationRefused as refused:
            raise CommandError(str(refused)) from None
        if problems := report.describe():
            raise CommandError(INCOMPLETE.format(report=problems))
