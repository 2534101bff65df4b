"""`manage.py replay FILE.jsonl …`: plays recorded conversations through the real pipeline.

With `--matrix` it uses the engine alone, under every strategy, layout and budget. With `--rebuild`
it uses every strategy and layout, and compares each rebuilt request with the bytes that were sent.
"""

import json
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from contextpolicy.models import ContextPolicy
from contextpolicy.presets import seed_policies
from replay import matrix, rebuilding, recordings
from replay.in_memory import convert_recorded_turns
from replay.pipeline import (
    SUMMARISER,
    ReplayReport,
    assign_replay_policy,
    count_stored_messages,
    create_replay_chat,
    fake_server,
    replay_turns,
    set_up_summariser,
    write_request_log,
)

Turns = list[recordings.RecordedTurn]

COLUMNS = (
    "turns",
    "messages",
    "calls",
    "tokens",
    "largest",
    "summaries",
    "refused",
    "windows",
    "cut",
    "left out",
    "errors",
    "faults",
    "seconds",
)
BUILT = ("received", "same", "replies", "retries", "tools", "summaries", "parts")
FAULTS_SHOWN = 20


class Command(BaseCommand):
    """Prints one row per recording; fails if a turn failed or an invariant was violated."""

    help = "Play recorded conversations (JSONL) through the pipeline against the fake server."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
        parser.add_argument("--policy", default="", help="Slug of a policy; empty: the default.")
        parser.add_argument(
            "--values",
            type=json.loads,
            metavar="JSON",
            help="Values that replace those of the policy.",
        )
        parser.add_argument("--limit", type=int, default=16_000, help="The fake model's window.")
        parser.add_argument(
            "--record",
            type=Path,
            metavar="FOLDER",
            help="Write the requests to the model to this folder.",
        )
        parser.add_argument(
            "--summariser",
            default="",
            metavar="SCRIPT",
            help="Let the fake server write the summaries: reply=summary, fault=500, …",
        )
        parser.add_argument(
            "--matrix", action="store_true", help="The engine alone, in every combination."
        )
        parser.add_argument(
            "--rebuild",
            nargs="*",
            choices=list(rebuilding.STRATEGIES),
            metavar="STRATEGY",
            help="Rebuild each request, under all or these strategies, in every layout.",
        )

    def handle(self, *_args: Any, files: list[Path], **options: Any) -> None:
        """Play each file in a separate chat.

        Raises CommandError for an unreadable file, an unknown policy, or a fault.
        """
        try:
            played = {path: recordings.load_recording(path) for path in files}
        except recordings.NotARecording as error:
            raise CommandError(str(error)) from error
        if options["matrix"]:
            self.combine(list(played.values()))
            return
        call_command("migrate", verbosity=0)
        if options["rebuild"] is not None:
            self.rebuild(played, only=options["rebuild"], limit=options["limit"])
            return
        seed_policies(now=timezone.now())
        values, script = options["values"], options["summariser"]
        if script:
            strategy = {} if options["policy"] else {"strategy": "dynamic_summary"}
            values = {**strategy, **(values or {}), "summarization_model": SUMMARISER}
            set_up_summariser(script)
        try:
            assign_replay_policy(slug=options["policy"], values=values, now=timezone.now())
        except ContextPolicy.DoesNotExist as error:
            slugs = ", ".join(ContextPolicy.objects.values_list("slug", flat=True))
            raise CommandError(f"Unknown policy. Known: {slugs}.") from error
        self.replay_all(played, limit=options["limit"], folder=options["record"])

    def combine(self, played: list[Turns]) -> None:
        """Print one row per combination; every file is a separate chat in each.

        Raises CommandError if an invariant of the engine was violated.
        """
        begun, counter = time.monotonic(), matrix.ByteCounter()
        chats = [convert_recorded_turns(turns, counter=counter) for turns in played]
        self.stdout.write(matrix.HEADING)
        calls, faults, details = 0, 0, list[str]()
        for combination in matrix.generate_policy_combinations():
            tally = matrix.play_combination(combination, chats, counter=counter)
            self.stdout.write(matrix.format_table_row(combination, tally))
            calls, faults = calls + tally.calls, faults + tally.faults.total()
            details += [tally.first_fault] if tally.first_fault else []
        seconds = time.monotonic() - begun
        self.stdout.write(
            f"{len(played)} conversations, {calls:,} prompts, {faults} violations, {seconds:.0f} s"
        )
        if faults:
            raise CommandError(
                "An invariant of the engine was violated. First of each row:\n" + "\n".join(details)
            )

    def rebuild(self, played: dict[Path, Turns], *, only: list[str], limit: int) -> None:
        """Print one row per file and combination, with the number of rebuilt requests.

        Raises CommandError if a request could not be rebuilt, or differs.
        """
        # A recording may have longer turns than real chats; a retry needs no pause here.
        settings.MAX_STEPS = 1000
        settings.PROVIDER_BACKOFF_MAX = 0
        width = max(len(path.stem) for path in played)
        heads = [f"{'strategy':16} {'layout':10}", *(f"{name:>9}" for name in BUILT)]
        self.stdout.write(" ".join(["file".ljust(width), *heads]))
        received, faults = 0, list[str]()
        rebuilding.set_up_models(limit=limit)
        for strategy, layout, values in rebuilding.generate_value_combinations(
            limit=limit, only=only
        ):
            rebuilding.assign_rebuilding_policy(values, now=timezone.now())
            for path, turns in played.items():
                with fake_server(limit=limit) as base:
                    found = rebuilding.rebuild_conversation(turns, base=base, limit=limit)
                numbers = [f"{getattr(found, name):>9}" for name in BUILT]
                head = f"{path.stem:{width}} {strategy:16} {layout:10}"
                self.stdout.write(" ".join([head, *numbers]))
                received += found.received
                faults += [f"{path.stem}, {strategy}, {layout}: {it}" for it in found.faults]
        self.stdout.write(f"{received:,} requests, {len(faults)} not rebuilt")
        if faults:
            raise CommandError("\n".join(faults[:FAULTS_SHOWN]))

    def replay_all(self, played: dict[Path, Turns], *, limit: int, folder: Path | None) -> None:
        """Print one row per file, played through the pipeline.

        Raises CommandError if a turn failed or an invariant was violated.
        """
        # A recording may have longer messages and turns than real chats.
        settings.MAX_STEPS = 1000
        width = max(len(path.stem) for path in played)
        self.stdout.write(" ".join(["file".ljust(width), *(f"{name:>9}" for name in COLUMNS)]))
        failed = False
        for path, turns in played.items():
            report, stored = self.replay(path, turns, limit=limit, folder=folder)
            self.stdout.write(
                " ".join([path.stem.ljust(width), *format_report_cells(report, stored)])
            )
            broken = report.unaccounted + report.over_limit + report.unsound
            failed |= bool(report.errors or broken)
        if failed:
            raise CommandError(
                "A turn failed, a limit was exceeded, a receipt has a gap or a summary is unsound."
            )

    def replay(
        self, path: Path, turns: Turns, *, limit: int, folder: Path | None
    ) -> tuple[ReplayReport, int]:
        """Play one recorded conversation through the pipeline.

        Returns the report and the number of stored messages.
        """
        with fake_server(limit=limit) as base:
            chat = create_replay_chat(base=base, limit=limit, now=timezone.now())
            report = replay_turns(turns, chat=chat, base=base)
            if folder is not None:
                write_request_log(base=base, path=folder / path.name)
        return report, count_stored_messages(chat)


def format_report_cells(report: ReplayReport, stored: int) -> list[str]:
    errors = ",".join(f"{code}:{count}" for code, count in report.errors.items()) or "0"
    values = (
        report.turns,
        stored,
        report.calls,
        report.prompt_tokens,
        report.largest_prompt,
        report.summaries,
        report.rejected,
        report.windows,
        report.cut,
        report.left_out,
        errors,
        report.unaccounted + report.over_limit + report.unsound,
        f"{report.seconds:.1f}",
    )
    return [f"{value!s:>9}" for value in values]
