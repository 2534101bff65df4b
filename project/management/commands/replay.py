"""`manage.py replay FILE.jsonl …`: recorded conversations through the real pipeline."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from contextpolicy.models import ContextPolicy
from contextpolicy.presets import seed_policies
from project import recordings
from project.replay import Report, fake_server, play, prepare, stored_messages

COLUMNS = (
    "turns",
    "messages",
    "calls",
    "tokens",
    "largest",
    "summaries",
    "windows",
    "cut",
    "left out",
    "errors",
    "faults",
    "seconds",
)


class Command(BaseCommand):
    """Prints one row per recording; fails when a receipt or a limit did not hold."""

    help = "Play recorded conversations (JSONL) through the pipeline against the fake server."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What to play, and under which policy."""
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
        parser.add_argument("--policy", default="", help="Slug of a policy; empty: the default.")
        parser.add_argument("--limit", type=int, default=16_000, help="The fake model's window.")

    def handle(
        self, *_args: Any, files: list[Path], policy: str, limit: int, **_options: Any
    ) -> None:
        """Play each file in a chat of its own."""
        call_command("migrate", verbosity=0)
        seed_policies(now=timezone.now())
        if policy and not ContextPolicy.objects.filter(slug=policy).exists():
            slugs = ", ".join(ContextPolicy.objects.values_list("slug", flat=True))
            raise CommandError(f"There is no policy “{policy}”. There are: {slugs}.")
        # A recording may have longer messages and turns than people write.
        settings.MAX_STEPS = 1000
        width = max(len(path.stem) for path in files)
        self.stdout.write(" ".join(["file".ljust(width), *(f"{name:>9}" for name in COLUMNS)]))
        failed = False
        for path in files:
            report, stored = self.replay(path, policy=policy, limit=limit)
            self.stdout.write(" ".join([path.stem.ljust(width), *cells(report, stored)]))
            failed |= bool(report.errors or report.unaccounted or report.over_limit)
        if failed:
            raise CommandError("A turn failed, a limit was passed or a receipt has a gap.")

    def replay(self, path: Path, *, policy: str, limit: int) -> tuple[Report, int]:
        """One recording."""
        turns = recordings.read(path)
        with fake_server(limit=limit) as base:
            chat = prepare(base=base, policy=policy, limit=limit, now=timezone.now())
            report = play(turns, chat=chat, base=base)
        return report, stored_messages(chat)


def cells(report: Report, stored: int) -> list[str]:
    """The row of a report."""
    errors = ",".join(f"{code}:{count}" for code, count in report.errors.items()) or "0"
    values = (
        report.turns,
        stored,
        report.calls,
        report.prompt_tokens,
        report.largest_prompt,
        report.summaries,
        report.windows,
        report.cut,
        report.left_out,
        errors,
        report.unaccounted + report.over_limit,
        f"{report.seconds:.1f}",
    )
    return [f"{value!s:>9}" for value in values]
