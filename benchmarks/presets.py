"""Measures the cost of the same conversation under each shipped policy with the small model.

`python -m benchmarks.presets [--turns 70] [--presets long-chats,simple-window] [--pause 0]` starts
an installation with the small model. One person sends the same short messages under each preset in
turn. The program prints the share of the prompts that came from the model's cache, and the time to
the first token. A preset that needs more than the model's window is reported. The results depend on
the machine and its load. It sets no pass or fail limits.
"""

import argparse
import os
import statistics
import sys
import time

import tests.environment  # noqa: F401  # the data's place, before the settings are read

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

import django  # needs the environment

django.setup()

from contextpolicy.presets import PRESETS  # noqa: E402  # needs the settings
from tests.small_model.beside import Answered, Beside  # noqa: E402  # needs the settings

REPLY_TOKENS = 60
QUESTIONS = (
    "Which tree grows fastest, and order {0} of 3 May is for Anna Berg, remember?",
    "Tell me one more thing about the sea near Oslo, please.",
    "I paid {0} euros for the boat. Was that too much?",
    "What would you cook for {1} guests?",
    "Why do people keep bees?",
    "My brother Ben moved to Bergen in 19{1}. What is it known for?",
    "Say it in other words.",
)
COLUMNS = "| {:<16} | {:>7} | {:>8} | {:>10} | {:>10} | {:>11} | {:>8} |"
HEADINGS = ("policy", "replies", "prompt", "from cache", "first, p50", "first, p95", "compacted")


def measure(beside: Beside, preset: str, *, turns: int, pause: float) -> str:
    """Return a table line about a chat with this many messages under a preset."""
    beside.desk.ask("govern", preset=preset)
    chat = str(beside.desk.ask("new_chat", model=beside.slug))
    replies = []
    for number in range(turns):
        text = QUESTIONS[number % len(QUESTIONS)].format(4_000 + number, 10 + number)
        replies.append(beside.say(chat, text))
        time.sleep(pause)
    return line(preset, beside=beside, chat=chat, replies=replies)


def line(preset: str, *, beside: Beside, chat: str, replies: list[Answered]) -> str:
    """The figures of one chat, for the replies that arrived."""
    first = [reply.first for reply in replies if reply.pieces]
    usages = [call["usage"] for call in beside.receipts(chat) if call["usage"]]
    sent = sum(usage["input"] for usage in usages)
    if len(first) < 2 or not sent:
        return COLUMNS.format(preset, len(first), *["too large"], *["–"] * 4)
    compacted = sum(row["published_at"] is not None for row in beside.compactions(chat))
    return COLUMNS.format(
        preset,
        len(first),
        f"{sent / len(usages):,.0f}",
        f"{sum(usage['cached'] for usage in usages) / sent:.1%}",
        f"{statistics.median(first):.2f} s",
        f"{statistics.quantiles(first, n=20)[-1]:.2f} s",
        compacted,
    )


def main() -> None:
    """Measure each preset and print its line immediately."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=70)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--presets", default=",".join(preset.slug for preset in PRESETS))
    given = parser.parse_args()
    patient = {f"PROVIDER_{name}_TIMEOUT": "300" for name in ("FIRST_TOKEN", "GAP")}
    beside = Beside(**patient)
    say = sys.stdout.write
    try:
        beside.connect()
        beside.desk.ask("change_model", slug=beside.slug, values={"max_output": REPLY_TOKENS})
        say(f"{COLUMNS.format(*HEADINGS)}\n{COLUMNS.format(*['---'] * len(HEADINGS))}\n")
        for preset in given.presets.split(","):
            say(measure(beside, preset, turns=given.turns, pause=given.pause) + "\n")
            sys.stdout.flush()
    finally:
        beside.close()
    say(f"{given.turns} messages under each; load of the machine {os.getloadavg()[1]:.1f}\n")


if __name__ == "__main__":
    main()
