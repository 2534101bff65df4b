"""`manage.py ledger_verify`: verifies the audit log and the rows to which it commits."""

from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from chats.checkpoints import checks, external_copy
from chats.prompt import stored_messages
from chats.record.commitment_check import describe_unnamed_marks
from contextpolicy.ledger import Break, find_ledger_breaks
from contextpolicy.models import AuditEvent, LedgerCheckpoint, LedgerHead

ALONE = (
    "The ledger was not compared with anything outside the database: the data folder has no "
    "checkpoint file. Pass a stored checkpoint with --anchor."
)


class Command(BaseCommand):
    """Recomputes every hash and reports the first bad row of each broken chain. Changes nothing."""

    help = "Verify the audit log. The exit code is not 0 if a chain is broken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the option for one chain, by its scope."""
        parser.add_argument("--scope", help="one chain only: 'instance' or 'chat:<id>'")
        parser.add_argument(
            "--anchor",
            metavar="FILE",
            type=Path,
            help="a checkpoint stored elsewhere that the ledger must match",
        )
        parser.add_argument(
            "--without-messages",
            action="store_true",
            help="skip rebuilding prompts to detect changed messages (faster)",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the result. Raises CommandError if a chain is broken."""
        scope = options["scope"]
        tally = Counter[str]()
        breaks = list(find_ledger_breaks(scope=scope, tally=tally))
        if not options["without_messages"]:
            breaks += stored_messages.verify_stored_messages(scope=scope, tally=tally)
        if options["anchor"]:
            breaks += compare_with_anchor(options["anchor"])
        for found in breaks:
            kind = "checkpoint of" if found.scope.startswith("log ") else "row"
            place = f"{kind} {found.seq}: " if found.seq else ""
            self.stdout.write(f"{found.scope}: {place}{found.reason}")
        if breaks:
            broken = len({found.scope for found in breaks})
            raise CommandError(f"The ledger is broken in {broken} of its chains.")
        self.tell(scope, tally=tally)
        self.tell_anchors(options["anchor"], tally=tally)
        if scope is None and not options["anchor"]:
            self.tell_if_alone(tally)

    def tell(self, scope: str | None, *, tally: Counter[str]) -> None:
        """Print the numbers of verified rows. Raises CommandError for an unknown chain."""
        chains, rows = LedgerHead.objects.all(), AuditEvent.objects.all()
        if scope is not None:
            chains, rows = chains.filter(pk=scope), rows.filter(scope=scope)
            if not chains:
                raise CommandError(f"There is no chain {scope!r}: use 'instance' or 'chat:<id>'.")
        self.stdout.write(f"Verified {chains.count()} chains, {rows.count()} rows.")
        for sentence, count in sorted(tally.items()):
            self.stdout.write(f"{sentence}: {count:,}")
        for sentence in describe_unnamed_marks(scope):
            self.stdout.write(sentence)

    def tell_anchors(self, anchor: Path | None, *, tally: Counter[str]) -> None:
        """Print each external checkpoint with which the ledger was compared."""
        compared = [external_copy.get_checkpoint_path()] if tally[checks.KEPT] else []
        for path in (*compared, *([anchor] if anchor else [])):
            name = checks.format_checkpoint_name(path.read_text(encoding="utf-8"))
            self.stdout.write(f"Compared with {path}: {name}.")

    def tell_if_alone(self, tally: Counter[str]) -> None:
        """Print a note if checkpoints exist but no external copy was compared."""
        if not tally[checks.KEPT] and LedgerCheckpoint.objects.exists():
            self.stdout.write(ALONE)


def compare_with_anchor(path: Path) -> list[Break]:
    """Return the differences between the ledger and a checkpoint file. Raises `CommandError`."""
    try:
        return list(checks.compare_checkpoint(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise CommandError(f"{path} is not a readable checkpoint.") from None
