"""Moves uploaded files from the data folder into the configured storage, such as a bucket."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from chats.files.moving import MoveReport, SameStorage, move_stored_files
from chats.ground.secrets import SecretUnreadable

# The most files that the output names.
MOST_NAMED = 20


class Command(BaseCommand):
    """`manage.py move_files`: moves files after a change of the storage.

    If the command is interrupted, the next run continues.
    """

    help = "Move uploaded files from the data folder into the bucket that S3_BUCKET names."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--from",
            type=Path,
            dest="folder",
            default=settings.DATA_DIR / "files",
            metavar="FOLDER",
            help="the folder with the files; default: that of the data folder",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count the files")

    def handle(self, *_args: Any, folder: Path, dry_run: bool, **_options: Any) -> None:
        """Move the files and print their numbers.

        Raises CommandError if a file was not moved; its source is then unchanged.
        """
        if not folder.is_dir():
            raise CommandError(f"The folder {folder} does not exist. Name it with --from.")
        try:
            report = move_stored_files(folder, is_dry_run=dry_run)
        except SameStorage:
            raise CommandError(
                "Files are stored in this folder. Set S3_BUCKET and the other settings of the"
                " bucket first."
            ) from None
        except SecretUnreadable as refusal:
            raise CommandError(refusal.sentence) from None
        except Exception as error:  # each storage has its own errors
            raise CommandError(
                f"The move stopped ({type(error).__name__}: {error}). No file is lost. Check the"
                " settings that begin with S3_, then run the command again: it continues."
            ) from error
        self.write_report(report, is_dry_run=dry_run)
        if report.missing or report.damaged:
            raise CommandError(
                "Some files were not moved. Restore them from a backup, then run the command again."
            )

    def write_report(self, report: MoveReport, *, is_dry_run: bool) -> None:
        """Print the numbers of files, and the ids of those that were not moved."""
        verb = "To move" if is_dry_run else "Moved"
        self.stdout.write(f"{verb}: {report.moved} files, {report.bytes} bytes.")
        self.stdout.write(f"Already in the storage: {report.already_there}.")
        for name, found in (("Missing", report.missing), ("Damaged", report.damaged)):
            if found:
                more = ", …" if found[MOST_NAMED:] else ""
                self.stdout.write(f"{name}: {len(found)}: {', '.join(found[:MOST_NAMED])}{more}")
        if report.left:
            self.stdout.write(
                f"Left in the folder: {report.left} files that belong to no upload. Delete the"
                " folder when everything was moved."
            )
