"""`manage.py setup`: creates or migrates the tables, and creates the initial data."""

from argparse import ArgumentParser
from typing import Any

from django.core.checks import Tags
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.utils import timezone

from chats.background import due_jobs
from project.seed import seed_database
from project.tables import create_in_empty_database
from project.versions import refuse_newer_database, refuse_wrong_encoding


class Command(BaseCommand):
    """Sets up the database.

    Prints a one-time sign-in link with `--with-link`, or when it creates the first administrator.
    """

    help = "Prepare the database (run before the first start and after each upgrade)."
    # The web process checks the URLs; loading them here would delay the first start.
    requires_system_checks = (Tags.models,)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options for the sign-in link, its base URL, and leases to take over."""
        parser.add_argument("--base-url", default="http://127.0.0.1:8420")
        parser.add_argument(
            "--with-link",
            action="store_true",
            help="Print a sign-in link although the administrator exists. Logs keep it.",
        )
        parser.add_argument(
            "--take-over",
            default="",
            metavar="NAME",
            help="Release the leases of ended workers whose names begin with this.",
        )

    def handle(
        self, *_args: Any, base_url: str, take_over: str, with_link: bool, **_options: Any
    ) -> None:
        refuse_wrong_encoding()
        refuse_newer_database()
        create_in_empty_database()
        # After the tables were created, this only sends `post_migrate` to the apps.
        call_command("migrate", verbosity=0)
        if take_over:
            due_jobs.take_over(now=timezone.now(), worker=take_over)
        self.stdout.write(seed_database(now=timezone.now(), base_url=base_url, with_link=with_link))
