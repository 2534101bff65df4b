"""Long chats and many chats: Find, the list over REST, opening a chat.

`python -m benchmarks.find [--messages 250000] [--chats 100000]` uses a separate database: SQLite,
or PostgreSQL under `scripts/with_postgres.sh`. It prints the times of indexing and of its longest
transaction, and p50 and p95 of Find by number and frequency of the words. It compares a page of
many chats with a page of a hundred, and opening a short with opening a long chat. It also compares
a team's message and an agent's context in both. It has no pass or fail limits.
"""

import argparse
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from benchmarks.prepared import create_tables

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ROUNDS = 40
# Ranks of the query words in a vocabulary that begins with the most common word.
RANKS = {"common": range(5, 60), "middling": range(300, 3_000), "rare": range(8_000, 40_000)}


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=250_000)
    parser.add_argument("--chats", type=int, default=100_000)
    parser.add_argument("--only", choices=["find", "list", "page", "team"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        os.environ["PALIMPSEST_DATA"] = data
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        os.environ["REDIS_URL"] = f"unix://{data}/no-broker.sock"
        os.environ["LOG_LEVEL"] = "ERROR"
        os.environ["MESSAGES_PER_CHAT"] = os.environ["CHATS_PER_USER"] = "1000000"
        os.environ["API_REQUESTS_PER_MINUTE"] = "1000000"
        if os.environ.get("PALIMPSEST_TEST_DATABASE_URL"):
            os.environ["DATABASE_URL"] = os.environ["PALIMPSEST_TEST_DATABASE_URL"]
        import django

        django.setup()
        create_tables()
        parts: dict[str, Callable[[], None]] = {
            "find": lambda: find(arguments.messages),
            "list": lambda: listing(arguments.chats),
            "page": lambda: opening(20, 20_000),
            "team": lambda: team(1_000, 100_000),
        }
        for name, part in parts.items():
            if arguments.only in {None, name}:
                part()


def say(text: str) -> None:
    """Print a line of the result."""
    print(text, flush=True)  # noqa: T201


def browser(name: str) -> tuple[Any, Any]:
    """A person and their browser."""
    from django.contrib.auth.models import User
    from django.test import Client

    user = User.objects.create_user(name)
    client = Client(headers={"host": "localhost"})
    client.force_login(user)
    return user, client


def find(count: int) -> None:
    """Index a long chat, then search it."""
    from benchmarks import bulk
    from chats.actions import lifecycle

    user, client = browser("find")
    chat = lifecycle.create_chat(owner=user, now=NOW)
    words = bulk.vocabulary()
    branch = bulk.fill(chat, bulk.texts(count, words=words), now=NOW)
    branch = bulk.cover(branch, to_seq=count, now=NOW)
    indexed(branch, count=count)
    settle()
    chance = random.Random(3)  # noqa: S311  # to be repeated
    whole: dict[str, list[float]] = {"search": [], "processor": [], "page": []}
    for kind in (*RANKS, "mixed"):
        for number in (1, 3, 10, 32):
            places = [
                [chance.choice(RANKS.get(kind) or chance.choice(list(RANKS.values())))
                 for _ in range(number)]
                for _ in range(ROUNDS)
            ]  # fmt: skip
            questions = [" ".join(words[place] for place in asked) for asked in places]
            times = ask(questions, branch=branch, client=client)
            for name, found in times.items():
                whole[name] += found
            say(f"  {number:2} {kind} words: {in_words(times)}")
    say(f"  all: {in_words(whole)}")


def indexed(branch: Any, *, count: int) -> None:
    """Index the chat and record the duration of each transaction."""
    from django.db import connection

    from chats.memory.search import archive

    holds: list[float] = []
    module: Any = archive
    module.unflushed = timed(module.unflushed, holds)
    begun = time.perf_counter()
    archive.index_branch(branch)
    say(
        f"{connection.vendor}: {count:,} messages indexed in {time.perf_counter() - begun:.0f} s,"
        f" transactions of {1000 * statistics.median(holds):.0f} ms,"
        f" p99 {1000 * quantile(holds, 0.99):.0f}, longest {1000 * max(holds):.0f}"
    )


def ask(questions: list[str], *, branch: Any, client: Any) -> dict[str, list[float]]:
    """Return the seconds per query: for the search, its CPU time in this process, and the page."""
    from chats.memory.search import search

    times: dict[str, list[float]] = {"search": [], "processor": [], "page": []}
    for question in questions:
        begun, before = time.perf_counter(), time.process_time()
        search.search_archive(branch, question=question, most=20)
        times["search"].append(time.perf_counter() - begun)
        times["processor"].append(time.process_time() - before)
        begun = time.perf_counter()
        address = f"/chats/{branch.chat_id}/find"
        client.get(address, {"q": question}, headers={"hx-request": "true"})
        times["page"].append(time.perf_counter() - begun)
    return times


def in_words(times: dict[str, list[float]]) -> str:
    """The quantiles of each."""
    return "; ".join(f"{name} {both(found)}" for name, found in times.items())


def settle() -> None:
    """Update statistics as a server does over time, and freeze objects as a web process does."""
    from django.db import connection

    gc.collect()
    gc.freeze()

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def timed(manager: Any, times: list[float]) -> Any:
    """Wrap a context manager so that each duration is recorded."""
    from contextlib import contextmanager

    @contextmanager
    def watched() -> Any:
        with manager():
            begun = time.perf_counter()
            yield
        times.append(time.perf_counter() - begun)

    return watched


def listing(count: int) -> None:
    """Measure a page of a hundred chats, and pages of many, at the start and deep in the list."""
    from django.db import connection

    from benchmarks import bulk

    few, few_client = browser("few")
    many, many_client = browser("many")
    bulk.chats(few, 100, now=NOW)
    bulk.chats(many, count, now=NOW)
    settle()
    address = "/api/v1/chats?limit=50"
    cursor, deep = "", []
    for _ in range(40):
        deep.append(cursor)
        answer = many_client.get(f"{address}&cursor={cursor}").json()
        cursor = answer["next_cursor"]
    small, large, far = [], [], []
    for place in range(200):
        small.append(took(few_client, address))
        large.append(took(many_client, address))
        far.append(took(many_client, f"{address}&cursor={deep[place % 40]}"))
    base = statistics.median(small)
    say(
        f"{connection.vendor}: a page of the list takes {1000 * base:.1f} ms of 100 chats,"
        f" {statistics.median(large) / base:.2f} x of {count:,},"
        f" {statistics.median(far) / base:.2f} x on later pages"
    )
    for path in ("/chats/new", "/chats/list"):
        ours = [took(few_client, path) for _ in range(30)]
        theirs = [took(many_client, path) for _ in range(30)]
        say(f"  {path}: {both(ours)} of 100 chats, {both(theirs)} of {count:,}")


def opening(short: int, long: int) -> None:
    """Measure the CPU time and SQL statements for the page of a short and of a long chat."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from benchmarks import bulk
    from chats.actions import lifecycle

    user, client = browser("page")
    words = bulk.vocabulary()
    for count, covered in ((short, 0), (long, 0), (short, short // 2), (long, long - 60)):
        chat = lifecycle.create_chat(owner=user, now=NOW)
        branch = bulk.fill(chat, bulk.texts(count, words=words), now=NOW)
        if covered:
            bulk.cover(branch, to_seq=covered, now=NOW)
        settle()
        address = f"/chats/{chat.pk}/"
        client.get(address)
        with CaptureQueriesContext(connection) as heard:
            client.get(address)
        statements = len(heard)
        times, cpu = [], []
        for _ in range(ROUNDS):
            before = time.process_time()
            times.append(took(client, address))
            cpu.append(time.process_time() - before)
        say(
            f"{connection.vendor}: a chat of {count:,} messages, {covered:,} under a summary:"
            f" opened in {both(times)}, {1000 * statistics.median(cpu):.0f} ms of the processor,"
            f" {statements} statements"
        )


def team(short: int, long: int) -> None:
    """Add a team's message and choose an agent's context, in a short and a long chat in turn."""
    from django.db import connection

    from benchmarks import bulk
    from chats.actions import lifecycle
    from chats.models import Chat
    from chats.teams import conversation
    from contextpolicy.engine.messages.tokens import ApproximateCounter

    user, _ = browser("team")
    words = bulk.vocabulary()
    chats = []
    for count in (short, long):
        chat = lifecycle.create_chat(owner=user, now=NOW)
        bulk.fill(chat, bulk.texts(count, words=words), now=NOW)
        chats.append(Chat.objects.select_related("active_branch", "owner").get(pk=chat.pk))
    settle()
    said = {"content": "A plan", "speaker": {"roleId": "planner", "type": "ai"}}
    agent = conversation.RequestedAgent(agent_id="critic")
    counter = ApproximateCounter()
    acts: dict[str, Callable[[Any], object]] = {
        "a message added": lambda chat: conversation.add_message(
            user=user, chat=chat, data=said, counter=counter, now=NOW
        ),
        "an agent's context": lambda chat: conversation.assemble_agent_context(
            chat=Chat.objects.select_related("active_branch", "owner").get(pk=chat.pk), agent=agent
        ),
    }
    acts["an agent's prompt"] = prompt_maker(user)
    for name, act in acts.items():
        times: list[list[float]] = [[], []]
        for number in range(5 * ROUNDS):
            for place in (0, 1) if number % 2 else (1, 0):
                begun = time.perf_counter()
                act(chats[place])
                times[place].append(time.perf_counter() - begun)
        ratio = statistics.median(times[1]) / statistics.median(times[0])
        say(
            f"{connection.vendor}: {name} in a chat of {short:,} / {long:,} messages:"
            f" {both(times[0])} / {both(times[1])}, {ratio:.2f} times"
        )


def prompt_maker(user: Any) -> Callable[[Any], object]:
    """The function that composes the prompt of a team's agent, including the engine."""
    from chats.models import Branch, Turn
    from chats.prompt import agents, composition, prompt_facts, turn_question
    from chats.prompt.model_choice import ChosenModel
    from chats.teams import rosters
    from chats.teams.presets import PRESETS
    from chats.turns.roster import load_roster
    from contextpolicy.engine.messages.tokens import ApproximateCounter
    from contextpolicy.engine.policy.policy import PolicyValues
    from contextpolicy.engine.team.team_view import compute_agent_window
    from contextpolicy.models import EffectivePolicy, ModelSpec

    draft = PRESETS["planner-critic-writer"]
    made = rosters.create_team(user=user, draft=draft, shared=False, now=NOW).team
    if made.current is None:
        sys.exit("the team has no version")
    roster = load_roster(made.current)
    choice = ChosenModel(
        model=ModelSpec(slug="m", name="m"), effective=EffectivePolicy(), values=PolicyValues()
    )
    counter = ApproximateCounter()

    def compose(chat: Any) -> object:
        branch = Branch.objects.get(pk=chat.active_branch_id)
        branch.chat = chat
        view = agents.build_agent_view(roster.agents[0], chat=chat, team=roster.agents)
        turn = Turn(branch=branch, seen_to=branch.last_seq, agent=roster.agents[0], queued_at=NOW)
        seen = agents.load_seen_messages(view, turn=turn, branch=branch, counter=counter)
        asked = turn_question.Question(
            question=(seen.question,) if seen.question else (),
            before=seen.before,
            last_seq=branch.last_seq,
            steps=seen.steps,
        )
        given = prompt_facts.load_prompt_facts(
            branch=branch,
            choice=choice,
            asked=asked,
            counter=counter,
            after=compute_agent_window(seen.before, size=view.window_size),
        )
        given = agents.apply_agent_view(given, view=view, seen=seen, counter=counter)
        return composition.ask_engine(given)

    return compose


def took(client: Any, address: str) -> float:
    """Return the seconds that a page takes to load; exit if it fails."""
    begun = time.perf_counter()
    answer = client.get(address)
    if answer.status_code != 200:
        sys.exit(f"{address} answers {answer.status_code}")
    return time.perf_counter() - begun


def both(times: list[float]) -> str:
    """The median and the 95th percentile as text."""
    return (
        f"p50 {1000 * statistics.median(times):.1f} ms, p95 {1000 * quantile(times, 0.95):.1f} ms"
    )


def quantile(times: list[float], share: float) -> float:
    """The value of a quantile."""
    return sorted(times)[min(int(share * len(times)), len(times) - 1)]


if __name__ == "__main__":
    main()
