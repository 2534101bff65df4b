"""`manage.py serve`, registered for Django's command list and for `manage.py help serve`."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from project import addresses, launcher


class Command(BaseCommand):
    """Represents the launcher in Django's command list.

    `manage.py serve` starts it before Django is loaded.
    """

    help = launcher.HELP
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        addresses.add_arguments(parser)

    def handle(self, *_args: Any, host: str, port: int, **_options: Any) -> None:
        """Start the launcher. Raises CommandError if it cannot be started."""
        try:
            launcher.launch_instance(host=host, port=port)
        except addresses.NotLaunched as error:
            raise CommandError(str(error)) from error
