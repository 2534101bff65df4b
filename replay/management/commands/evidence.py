"""`manage.py evidence [DATA …]`: measures whether prompts contain the evidence for questions.

Without files it measures the project's own conversations. It applies missing migrations, and leaves
the database otherwise unchanged; `make evidence` uses a new one.
"""

import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from chats.ground import queue
from chats.prompt.tokenizer import O200kCounter
from contextpolicy.presets import PRESETS, Preset
from replay.evidence import chats
from replay.evidence.baselines import Baselines
from replay.evidence.conversations import EvidenceQuestion, QuestionedConversation, read_all
from replay.evidence.losses import STEPS
from replay.evidence.measure import Scorer, Scores, ask_all

OWN = Path("tests/recordings/evidence")
LIMITS = (4_000, 8_000, 16_000)
# A model writes the state of this strategy, so its prompts cannot be composed without one.
NEEDS_A_MODEL = "entity_state"
# Number of turns over which the cache is measured after an import.
TURNS = 10
WINDOW, BM25 = "last-N window", "BM25"
COLUMNS = ("limit", "questions", "complete", "messages", "with day", "tokens", "cached", "cost")
Results = dict[tuple[str, int], Scores]


class Command(BaseCommand):
    """Prints a row for each policy and limit, and the steps at which missing messages were lost."""

    help = "Measure the share of questions whose evidence is in the prompt."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the conversations, the policies, the limits and the number of questions."""
        names = ", ".join(preset.slug for preset in list_measurable_presets())
        parser.add_argument("data", nargs="*", type=Path, help="Files or folders.")
        parser.add_argument("--presets", default="", help=f"Separated by commas: {names}.")
        parser.add_argument("--limits", default="", help="Prompt limits in tokens.")
        parser.add_argument("--questions", type=int, default=0, help="Of each conversation.")
        parser.add_argument(
            "--play", action="store_true", help="Send each message; default: import."
        )

    def handle(self, *_args: Any, data: list[Path], **options: Any) -> None:
        """Measure and print.

        Raises CommandError for unreadable files, for limits that are not numbers, and for unknown
        presets.
        """
        try:
            conversations = read_all(data or [settings.BASE_DIR / OWN])
            limits = [int(part) for part in options["limits"].split(",") if part] or list(LIMITS)
        except ValueError as error:
            raise CommandError(str(error)) from error
        presets = parse_preset_slugs(options["presets"])
        call_command("migrate", verbosity=0)
        queue.publish_task = queue.keep_here
        begun = time.monotonic()
        results: Results = {}
        for conversation in conversations:
            questions = some_of(conversation.questions, most=options["questions"])
            measure_preset(
                conversation,
                questions,
                presets=presets,
                limits=limits,
                is_played=options["play"],
                results=results,
            )
        for line in format_report(results):
            self.stdout.write(line)
        way = "played" if options["play"] else "imported"
        self.stdout.write(
            f"{len(conversations)} conversations, {way}; {time.monotonic() - begun:.0f} s"
        )


def list_measurable_presets() -> list[Preset]:
    """Return the presets whose prompts can be composed without a model."""
    return [preset for preset in PRESETS if preset.values["strategy"] != NEEDS_A_MODEL]


def parse_preset_slugs(slugs: str) -> list[Preset]:
    """Return the presets with these slugs, or all. Raises CommandError for an unknown one."""
    known = {preset.slug: preset for preset in list_measurable_presets()}
    wanted = [part.strip() for part in slugs.split(",") if part.strip()] or list(known)
    for slug in wanted:
        if slug not in known:
            raise CommandError(f"Unknown preset {slug}. Known: {', '.join(known)}.")
    return [known[slug] for slug in wanted]


def some_of(questions: Sequence[EvidenceQuestion], *, most: int) -> Sequence[EvidenceQuestion]:
    """Return all questions, or `most` of them at even intervals."""
    if not most or len(questions) <= most:
        return questions
    return [questions[place * len(questions) // most] for place in range(most)]


def measure_preset(
    conversation: QuestionedConversation,
    questions: Sequence[EvidenceQuestion],
    *,
    presets: Sequence[Preset],
    limits: Sequence[int],
    is_played: bool,
    results: Results,
) -> None:
    counter = O200kCounter()
    scorer, baselines = (
        Scorer(conversation, counter=counter),
        Baselines(conversation, counter=counter),
    )
    for limit in limits:
        for name, prompt_for in ((WINDOW, baselines.last_window), (BM25, baselines.best_matches)):
            scores = results.setdefault((name, limit), Scores())
            for question in questions:
                texts = prompt_for(question.text, limit=limit)
                tokens = sum(map(counter.count, texts))
                scores.rows.append(scorer.score(question, texts, tokens=tokens))
        turns = baselines.windows(
            limit=limit, most=len(conversation.messages) if is_played else TURNS
        )
        results[WINDOW, limit].add_turns(turns, counter=counter)
        asked = [baselines.best_matches(one.text, limit=limit) for one in questions[:TURNS]]
        results[BM25, limit].add_turns(asked, counter=counter)
    with chats.roll_back_changes():
        chats.set_up_model()
        imported = None if is_played else chats.import_chat(conversation, counter=counter)
        for preset in presets:
            for limit in limits:
                with chats.roll_back_changes():
                    now = conversation.messages[0].at
                    chats.use_policy(preset, limit=limit, now=now)
                    scores = results.setdefault((preset.slug, limit), Scores())
                    if imported is None:
                        measured = chats.play_chat(conversation, counter=counter)
                    else:
                        measured = imported
                        measured.chat.refresh_from_db()
                        chats.trigger_summaries(measured)
                    scores.rows += ask_all(measured, questions, scorer=scorer)
                    if imported is not None:
                        measured.worker.prompts.clear()
                        chats.ask_questions(measured, questions[:TURNS])
                    scores.add_turns(measured.worker.prompts, counter=counter)


def format_report(results: Results) -> Iterator[str]:
    """Yield the lines of both tables in Markdown."""
    yield format_markdown_row("policy", *COLUMNS)
    yield format_markdown_row(*["---"] * (len(COLUMNS) + 1))
    for (name, limit), scores in sorted(results.items(), key=lambda item: item[0][1]):
        dated = scores.share_with_day()
        yield format_markdown_row(
            name,
            f"{limit:,}",
            len(scores.rows),
            f"{scores.share():.1%}",
            f"{scores.share_of_messages():.1%}",
            "–" if dated is None else f"{dated:.1%}",
            f"{scores.tokens():,.0f}",
            f"{scores.cached_share():.0%}",
            f"{scores.cost():,.0f}",
        )
    yield ""
    yield "Evidence messages that are missing, by the step at which they were lost:"
    yield format_markdown_row("policy", "limit", *STEPS)
    yield format_markdown_row(*["---"] * (len(STEPS) + 2))
    for (name, limit), scores in sorted(results.items(), key=lambda item: item[0][1]):
        if name not in (WINDOW, BM25):
            lost = scores.lost()
            yield format_markdown_row(name, f"{limit:,}", *(lost[step] for step in STEPS))


def format_markdown_row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
