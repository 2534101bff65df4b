"""`manage.py setup`: migrate, and make what a new instance begins with."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.utils import timezone

from project.seed import seed


class Command(BaseCommand):
    """Idempotent; prints a one-time login link for the first administrator."""

    help = "Prepare the database (run before the first start and after each upgrade)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The address that the login link begins with, unless PALIMPSEST_PUBLIC_URL names one."""
        parser.add_argument("--base-url", default="http://127.0.0.1:8420")

    def handle(self, *_args: Any, base_url: str, **_options: Any) -> None:
        """Migrate and seed."""
        call_command("migrate", verbosity=0)
        self.stdout.write(seed(now=timezone.now(), base_url=base_url))
