"""`manage.py migrate_database`: moves an installation from SQLite to PostgreSQL."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from project.operations.move import move_to_postgres
from project.operations.refused import OperationRefused


class Command(BaseCommand):
    """Copies the whole installation and verifies the result on both sides.

    If the command is interrupted, the next run continues the copy.
    """

    help = "Copy a SQLite installation into the PostgreSQL database of DATABASE_URL."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--from",
            type=Path,
            dest="source",
            default=settings.DATA_DIR / "palimpsest.sqlite3",
            metavar="FILE",
            help="the SQLite file; default: that of the data folder",
        )
        parser.add_argument(
            "--replace", action="store_true", help="erase the tables of the PostgreSQL database"
        )

    def handle(self, *_args: Any, source: Path, replace: bool, **_options: Any) -> None:
        """Move the installation to PostgreSQL.

        Raises CommandError if this fails; the SQLite file then still contains everything.
        """
        try:
            move_to_postgres(source.absolute(), replace=replace, tell=self.stdout.write)
        except OperationRefused as refused:
            raise CommandError(str(refused)) from None
        self.stdout.write(
            "Moved. Start the processes with this DATABASE_URL. Keep the SQLite file as a backup,"
            " then delete it."
        )
