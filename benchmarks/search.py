"""The time of a search in 100,000 messages of one person, and the cost of indexing them.

`python -m benchmarks.search [--messages 100000] [--chats 500] [--people 1] [--kills 0]` (or `make
search-load`) stores messages of generated words, with the frequencies of a language, in many chats
of one or several people. They are indexed in the steps of the background job. The queries of the
first person have rare, common and mixed words, whole questions and prefixes. Indexing runs in a
child process, which `--kills` kills repeatedly, each time after `--alive` to twice as many seconds.
Afterwards missing and duplicate entries are counted. The program fails if the 95th percentile of
the searches is over 50 ms. With `--only index` it does not search. With `--only search` it uses the
data of an earlier run in PALIMPSEST_DATA or in the database at PALIMPSEST_TEST_DATABASE_URL.
"""

import argparse
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.prepared import create_tables

LIMIT = 0.05
RANKS = {"rare": (2_000, 20_000), "usual": (100, 2_000), "common": (1, 60)}
SEARCHES = 40


def main(arguments: Sequence[str]) -> int:
    """Fill, index, search, print."""
    given = options().parse_args(arguments)
    with tempfile.TemporaryDirectory() as data:
        os.environ.setdefault("PALIMPSEST_DATA", data)
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        if url := os.environ.get("PALIMPSEST_TEST_DATABASE_URL"):
            os.environ["DATABASE_URL"] = url
        import django

        django.setup()
        if given.index:
            index()
            return 0
        if given.only == "search":
            return ask_again()
        create_tables()
        each = given.messages // given.people
        owners, words = fill(given.people, each, chats=given.chats // given.people)
        kills = killed(given.kills, alive=given.alive)
        begun = time.perf_counter()
        subprocess.run(command(), env=os.environ, check=True)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        say(
            f"indexed in {time.perf_counter() - begun:.0f} s after {kills} kills,"
            f" {spent.ru_utime + spent.ru_stime:.0f} s of processor;"
            f" {spent.ru_maxrss / 1024:.0f} MB at most in a process"
        )
        for owner_id in owners:
            check(owner_id, each)
        say(f"0 of {len(owners) * each:,} missing, 0 twice; the counts are those of the texts")
        return 0 if given.only == "index" else ask(owners[0], words)


def options() -> argparse.ArgumentParser:
    """The command-line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--chats", type=int, default=500)
    parser.add_argument("--people", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--alive", type=float, default=2)
    parser.add_argument("--only", choices=["index", "search", ""], default="")
    parser.add_argument("--index", action="store_true", help=argparse.SUPPRESS)
    return parser


def fill(people: int, count: int, *, chats: int) -> tuple[list[int], list[str]]:
    """Store messages of each person in chats of equal length; return the people."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from benchmarks import bulk
    from chats.actions import lifecycle

    words = bulk.vocabulary()
    texts = bulk.texts(count, words=words, length=60)
    each = count // chats
    now = timezone.now()
    owners = []
    for place in range(people):
        owner = User.objects.create(username=f"searcher-{place}")
        owners.append(owner.pk)
        for number in range(chats):
            chat = lifecycle.create_chat(owner=owner, now=now, title=f"Chat {number}")
            bulk.fill(chat, texts[number * each : (number + 1) * each], now=now)
    return owners, words


def command() -> list[str]:
    """The command of the indexing process."""
    return [sys.executable, "-m", "benchmarks.search", "--index"]


def index() -> None:
    """Index everything that is pending, as the background job does, without its pauses."""
    from chats.memory.search import archive, index_schedule
    from chats.models import Branch

    for key in index_schedule.find_unmarked_branches().values_list("pk", flat=True):
        archive.index_branch(Branch.objects.select_related("chat", "active_compaction").get(pk=key))


def killed(kills: int, *, alive: float) -> int:
    """Index in processes that are killed after random times; return the number of kills."""
    chance = random.Random(5)  # noqa: S311  # to be repeated
    for done in range(kills):
        process = subprocess.Popen(command(), env=os.environ)
        try:
            process.wait(timeout=alive * (1 + chance.random()))
            return done
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    return kills


def check(owner_id: int, count: int) -> None:
    """Compare a person's index with their messages: no gaps, no duplicates, correct counts."""
    from collections import Counter

    from chats.memory.search import archive
    from chats.models import SearchCount, SearchText

    texts = SearchText.objects.filter(summary=None, message__branch__chat__owner=owner_id)
    there = set(texts.values_list("message", flat=True))
    counted: Counter[str] = archive.count_texts_by_word(texts.iterator())
    kept = dict(SearchCount.objects.filter(owner=owner_id).values_list("word", "texts"))
    if len(there) != count or texts.count() != count or kept != counted:
        say(
            f"{count - len(there)} of {count:,} missing, {texts.count() - len(there)} twice;"
            f" counts are {'those' if kept == counted else 'NOT those'} of the texts"
        )
        raise SystemExit(1)


def ask_again() -> int:
    """Use the first person of an earlier run."""
    from django.contrib.auth.models import User

    from benchmarks import bulk

    return ask(User.objects.get(username="searcher-0").pk, bulk.vocabulary())


def ask(owner_id: int, words: Sequence[str]) -> int:
    """Search with queries of every kind and print the times."""
    from django.db import connection
    from django.utils import timezone

    from chats.memory.search.recall import recall_excerpts
    from chats.memory.search.recall_scope import Scope

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    chance = random.Random(3)  # noqa: S311  # to be repeated
    now = timezone.now()
    every: list[float] = []

    def asked(question: str, **more: Any) -> float:
        begun = time.perf_counter()
        recall_excerpts(owner_id, question, scope=Scope(), limit=21, at=now, **more)
        return time.perf_counter() - begun

    asked("warm up")
    for kind in (*RANKS, "mixed"):
        for number in (1, 3, 8):
            times = [asked(question(words, kind, number, chance)) for _ in range(SEARCHES)]
            every += times
            say(f"  {number} {kind} words: {in_words(times)}")
    typed = [
        asked(question(words, "usual", 2, chance)[:-1], is_typed=True) for _ in range(SEARCHES)
    ]
    say(f"  while typing: {in_words(typed)}")
    say(f"  all: {in_words([*every, *typed])}")
    return int(quantile([*every, *typed], 0.95) > LIMIT)


def question(words: Sequence[str], kind: str, number: int, chance: random.Random) -> str:
    """Return `number` random words of a kind as one query."""

    def place(of: str) -> int:
        return chance.randint(*RANKS[of])

    pick: Callable[[], str] = (
        (lambda: chance.choice(list(RANKS))) if kind == "mixed" else lambda: kind
    )
    return " ".join(words[place(pick())] for _ in range(number))


def in_words(times: Sequence[float]) -> str:
    """The median and the 95th percentile."""
    return f"{1000 * statistics.median(times):.1f} ms, p95 {1000 * quantile(times, 0.95):.1f}"


def quantile(times: Sequence[float], share: float) -> float:
    """Return the time at a quantile."""
    return sorted(times)[min(int(share * len(times)), len(times) - 1)]


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
