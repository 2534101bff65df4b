"""`manage.py ledger_verify`: verifies the audit ledger and the rows that it commits to."""

from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from chats.checkpoints import checks, outside
from chats.prompt import stored_messages
from chats.record.witness import unnamed_marks
from contextpolicy.ledger import Break, verify
from contextpolicy.models import AuditEvent, LedgerCheckpoint, LedgerHead

ALONE = (
    "Nothing outside the database was compared: there is no file with a checkpoint beside the "
    "data. Name a checkpoint that was kept with --anchor."
)


class Command(BaseCommand):
    """Recomputes every hash and names the first bad row of each broken chain; changes nothing."""

    help = "Verify the audit ledger. Ends with an exit code other than 0 when a chain is broken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the option for one chain, by its scope."""
        parser.add_argument("--scope", help="one chain only: 'instance' or 'chat:<id>'")
        parser.add_argument(
            "--anchor",
            metavar="FILE",
            type=Path,
            help="a checkpoint that was kept elsewhere: the ledger has to be the one of then",
        )
        parser.add_argument(
            "--without-messages",
            action="store_true",
            help="do not build prompts again to find messages that were changed: faster",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print what holds; raises CommandError where a chain breaks."""
        scope = options["scope"]
        told = Counter[str]()
        breaks = list(verify(scope=scope, told=told))
        if not options["without_messages"]:
            breaks += stored_messages.verify(scope=scope, told=told)
        if options["anchor"]:
            breaks += anchored(options["anchor"])
        for found in breaks:
            kind = "checkpoint of" if found.scope.startswith("log ") else "row"
            place = f"{kind} {found.seq}: " if found.seq else ""
            self.stdout.write(f"{found.scope}: {place}{found.reason}")
        if breaks:
            broken = len({found.scope for found in breaks})
            raise CommandError(f"The ledger is broken in {broken} of its chains.")
        self.tell(scope, told=told)
        self.tell_anchors(options["anchor"], told=told)
        if scope is None and not options["anchor"]:
            self.tell_if_alone(told)

    def tell(self, scope: str | None, *, told: Counter[str]) -> None:
        """Print what holds. Raises CommandError for a chain that there is not."""
        chains, rows = LedgerHead.objects.all(), AuditEvent.objects.all()
        if scope is not None:
            chains, rows = chains.filter(pk=scope), rows.filter(scope=scope)
            if not chains:
                raise CommandError(f"There is no chain {scope!r}: use 'instance' or 'chat:<id>'.")
        self.stdout.write(f"{chains.count()} chains hold, {rows.count()} rows.")
        for sentence, count in sorted(told.items()):
            self.stdout.write(f"{count} {sentence}.")
        for sentence in unnamed_marks(scope):
            self.stdout.write(sentence)

    def tell_anchors(self, anchor: Path | None, *, told: Counter[str]) -> None:
        """Name each checkpoint outside the database that the ledger was compared with."""
        compared = [outside.path()] if told[checks.KEPT] else []
        for path in (*compared, *([anchor] if anchor else [])):
            name = checks.name_of(path.read_text(encoding="utf-8"))
            self.stdout.write(f"Compared with {path}: {name}.")

    def tell_if_alone(self, told: Counter[str]) -> None:
        """Say so where checkpoints were signed and none outside the database was compared."""
        if not told[checks.KEPT] and LedgerCheckpoint.objects.exists():
            self.stdout.write(ALONE)


def anchored(path: Path) -> list[Break]:
    """Return why the ledger is not the one of the file. Raises `CommandError`."""
    try:
        return list(checks.against(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise CommandError(f"{path} is no checkpoint that can be read.") from None
