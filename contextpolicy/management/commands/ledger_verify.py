"""`manage.py ledger_verify`: verifies the audit ledger and the rows that it commits to."""

from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from contextpolicy.ledger import verify
from contextpolicy.models import AuditEvent, LedgerHead


class Command(BaseCommand):
    """Recomputes every hash and names the first bad row of each broken chain; changes nothing."""

    help = "Verify the audit ledger. Ends with an exit code other than 0 when a chain is broken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the option for one chain, by its scope."""
        parser.add_argument("--scope", help="one chain only: 'instance' or 'chat:<id>'")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print what holds; raises CommandError where a chain breaks."""
        scope = options["scope"]
        told = Counter[str]()
        breaks = list(verify(scope=scope, told=told))
        for found in breaks:
            place = f"row {found.seq}: " if found.seq else ""
            self.stdout.write(f"{found.scope}: {place}{found.reason}")
        if breaks:
            broken = len({found.scope for found in breaks})
            raise CommandError(f"The ledger is broken in {broken} of its chains.")
        chains, rows = LedgerHead.objects.all(), AuditEvent.objects.all()
        if scope is not None:
            chains, rows = chains.filter(pk=scope), rows.filter(scope=scope)
            if not chains:
                raise CommandError(f"There is no chain {scope!r}: use 'instance' or 'chat:<id>'.")
        self.stdout.write(f"{chains.count()} chains hold, {rows.count()} rows.")
        for sentence, count in sorted(told.items()):
            self.stdout.write(f"{count} {sentence}.")
