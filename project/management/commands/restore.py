"""`manage.py restore`: restores a backup into a stopped installation."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from project.operations.refused import OperationRefused
from project.operations.restore import RestoreOptions, restore_backup

NOT_VERIFIED = (
    "The backup is restored, but the audit log does not match a checkpoint or a row; the lines"
    " above say which. If a checkpoint was signed after the backup, this is expected: run"
    ' manage.py ledger_checkpoint --open-origin "Restored the backup", then ledger_verify.'
)


class Command(BaseCommand):
    """Restores a backup: checks everything before changing anything, then migrates and verifies."""

    help = "Restore a backup. Stop the web processes, the workers and the schedule first."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments: the backup, its keys, and options that allow data loss."""
        parser.add_argument("backup", type=Path, help="the file that manage.py backup wrote")
        parser.add_argument(
            "--keys", type=Path, help="the file with its keys; the default is BACKUP.keys"
        )
        parser.add_argument(
            "--replace", action="store_true", help="erase the data of this installation"
        )
        parser.add_argument(
            "--without-keys",
            action="store_true",
            help="restore although the encryption key is lost",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Restore the backup.

        If this fails, raises CommandError; its message states whether anything was changed.
        """
        chosen = RestoreOptions(
            keys=options["keys"],
            replace=options["replace"],
            without_keys=options["without_keys"],
        )
        try:
            is_verified = restore_backup(options["backup"], chosen, tell=self.stdout.write)
        except OperationRefused as refused:
            raise CommandError(str(refused)) from None
        if not is_verified:
            raise CommandError(NOT_VERIFIED)
        self.stdout.write("Restored. Start the processes.")
