"""Imports chats from a large file for a limited time, in a child process of a worker."""

import sys
import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from chats.exchange import import_job
from chats.exchange.apart import ClosingWatch
from chats.prompt.tokenizer import O200kCounter


class Command(BaseCommand):
    """`manage.py import_part ID` imports a part of a large file. Run only by workers."""

    help = "Import chats of a large file for a limited time. Only workers run this command."
    # Workers run this often, and already ran the checks at start.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("import_id", type=uuid.UUID)

    def handle(self, *_args: Any, import_id: uuid.UUID, **_options: Any) -> None:
        """Import until time runs out, the file is finished or the worker stops."""
        watch = ClosingWatch(sys.stdin.fileno())
        import_job.continue_import(
            import_id=import_id,
            counter=O200kCounter(),
            clock=timezone.now,
            is_closing=watch.is_closing,
        )
