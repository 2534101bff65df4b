"""`manage.py ledger_verify`: does every chain of the audit ledger hold?"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from contextpolicy.ledger import verify
from contextpolicy.models import AuditEvent, LedgerHead


class Command(BaseCommand):
    """Recomputes every hash and names the first bad row of each broken chain; changes nothing."""

    help = "Verify the audit ledger. Ends with an exit code other than 0 when a chain is broken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """One chain can be asked for by its scope."""
        parser.add_argument("--scope", help="one chain only: 'instance' or 'chat:<id>'")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print what holds or where it breaks."""
        scope = options["scope"]
        breaks = list(verify(scope=scope))
        for found in breaks:
            self.stdout.write(f"{found.scope}: row {found.seq}: {found.reason}")
        if breaks:
            raise CommandError(f"The ledger is broken in {len(breaks)} of its chains.")
        chains, rows = LedgerHead.objects.all(), AuditEvent.objects.all()
        if scope is not None:
            chains, rows = chains.filter(pk=scope), rows.filter(scope=scope)
            if not chains:
                raise CommandError(f"There is no chain {scope!r}: use 'instance' or 'chat:<id>'.")
        self.stdout.write(f"{chains.count()} chains hold, {rows.count()} rows.")
