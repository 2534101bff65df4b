"""Measures whether replies wait for background jobs, by first-token times.

`python -m benchmarks.beside [--during summaries,catch-up,verify,index,count,evaluate,uploads,
busy-cores] [--layout queues]` starts a new instance for each block, on SQLite or on the server at
PALIMPSEST_TEST_DATABASE_URL. It sends messages to an idle instance, then as many during the jobs.
It prints p50 and p95 of both. It fails if the jobs raise p50 by more than both 10 % and 15 ms, or
p95 by more than both 30 % and 50 ms. `busy-cores` is a control without any job.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import tests.environment  # noqa: F401  # the data's place, before the settings are read

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

import django  # needs the environment
import psycopg
from psycopg.rows import dict_row

django.setup()

from chats.ground import queues  # noqa: E402  # needs the settings
from project.launcher import (  # noqa: E402  # needs the settings
    BACKGROUND_NICENESS,
    BACKGROUND_THREADS,
    build_worker_command,
)
from tests.fakes.fake_server import FakeServer  # noqa: E402  # needs the settings
from tests.faults.client import Client  # noqa: E402  # needs the settings
from tests.faults.harness import Tree, new_folder  # noqa: E402  # needs the settings
from tests.faults.programs import MANAGE, python, run, until  # noqa: E402  # needs the settings
from tests.faults.stores import Database, Row, SQLite, count  # noqa: E402  # needs the settings

# The workers of an instance: for one laptop, one for each queue, and two of each kind.
LAYOUTS: dict[str, list[tuple[str, ...]]] = {
    "laptop": [(queues.REPLIES,), queues.BACKGROUND],
    "queues": [(queues.REPLIES,), (queues.SUMMARIES,), (queues.UPKEEP,)],
    "two": [(queues.REPLIES,), (queues.REPLIES,), queues.BACKGROUND, queues.BACKGROUND],
}
WORDS = "The order 4711 of 3 May 2026 goes to Anna Berg in Oslo, as we said. "
LONG = 10_000
# A chat with more messages would be summarised.
MESSAGES_PER_CHAT = 8
NAME = "palimpsest_beside"


class Given:
    """An existing PostgreSQL server."""

    kind = "postgres"

    def __init__(self, url: str) -> None:
        self.url = self.owner_url = url

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a query and return its rows."""
        with psycopg.connect(self.url, row_factory=dict_row, autocommit=True) as connection:
            return connection.execute(query.encode(), values).fetchall()

    def put_tables(self, env: Mapping[str, str]) -> None:
        """Create the tables."""
        run(python(MANAGE, "migrate", "--verbosity", "0"), env=env)

    close = SQLite.close


class Instance(Tree):
    """A tree with the product's default timings, and limits that are never reached."""

    def environment(self) -> dict[str, str]:
        """The environment of production, except for limits."""
        env = super().environment()
        for name in (
            "LEASE_SECONDS",
            "HEARTBEAT_EVERY",
            "SWEEP_EVERY",
            "REQUEUE_AFTER",
            "CHECKPOINT_EVERY",
            "WORKER_DRAIN_SECONDS",
            "PROVIDER_GAP_TIMEOUT",
        ):
            del env[name]
        patient = {"PROVIDER_FIRST_TOKEN_TIMEOUT": "120"}
        return {**env, **patient, "SUMMARIES_PER_USER": "100"}

    def begin_workers(self, layout: str) -> None:
        """Start every worker of a layout; background workers have a lower priority."""
        for taken in LAYOUTS[layout]:
            is_background = queues.REPLIES not in taken
            threads = BACKGROUND_THREADS if is_background else 200
            command = build_worker_command(*taken, threads=threads)
            command[command.index("-n") + 1] = f"{taken[0]}-{self.logs}@%h"
            if is_background:
                command = ["nice", "-n", str(BACKGROUND_NICENESS), *command]
            name = "background" if is_background else "worker"
            self.wait_for_worker(self.start(name, command))


@dataclass
class Times:
    """First-token times in seconds, without and with the jobs."""

    before: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    def told(self, name: str) -> str:
        """A line with both results."""
        sides = [("before", self.before), ("beside", self.beside)]
        numbers = "; ".join(
            f"{side}: p50 {1000 * p50(times):.0f} ms, p95 {1000 * p95(times):.0f} ms,"
            f" most {1000 * max(times):.0f} ms"
            for side, times in sides
        )
        return f"{name}: {len(self.before)} and {len(self.beside)} messages; {numbers}"

    @property
    def nobody_waits(self) -> bool:
        """Return True if the jobs add almost no delay."""
        median, slow = p50(self.before), p95(self.before)
        return p50(self.beside) <= max(1.1 * median, median + 0.015) and p95(self.beside) <= max(
            1.3 * slow, slow + 0.05
        )


def p50(times: list[float]) -> float:
    """The median."""
    return statistics.median(times)


def p95(times: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(times, n=20)[-1]


def first_words(client: Client, chat: str) -> float:
    """Seconds from sending a message to its first token; waits for the end of the reply."""
    body = {"text": f"{WORDS} [[fake tokens=5]]", "stream": True}
    begun, first = time.perf_counter(), 0.0
    with client.http.stream("POST", f"/chats/{chat}/messages", json=body) as answer:
        for line in answer.iter_lines():
            if not first and line.startswith("data: ") and json.loads(line[6:]).get("text"):
                first = time.perf_counter() - begun
            if line.startswith("event: done"):
                return first
    raise RuntimeError("the stream ended without an end")


def send_messages(client: Client, tree: Instance, number: int) -> list[float]:
    """Return the first-token times of messages in new chats that stay short.

    In a longer chat, a summary would follow every few messages, which takes processor time.
    """
    # Not the account of the summary model.
    chats = [tree.new_chat(model="locked") for _ in range(math.ceil(number / MESSAGES_PER_CHAT))]
    return [first_words(client, chats[n // MESSAGES_PER_CHAT]) for n in range(number)]


def slow_summaries(tree: Instance, number: int) -> None:
    """Start summaries whose model takes a minute."""
    tree.fake.configure(faults=[{"ttft": 60_000, "model": "fake", "times": 10_000}])
    chats = [tree.new_chat(model="locked") for _ in range(number)]
    for chat in chats:
        tree.desk.ask("fold_early", chat=chat)
    for _ in range(3):
        for turn in [tree.post(f"{WORDS * 8} [[fake tokens=30]]", chat=chat) for chat in chats]:
            tree.wait_until_over(turn, seconds=60)
    until(lambda: being_written(tree) >= number, seconds=60, what="all summaries")


def being_written(tree: Instance) -> int:
    """The number of running summaries."""
    return count(tree.database, "chats_compaction", "status = %s", "preparing")


def catching_up(tree: Instance, number: int) -> None:
    """Import long chats, whose summaries then have to catch up."""
    chats = [str(tree.desk.ask("import_chat", messages=LONG)) for _ in range(number)]
    with Client(tree) as client:
        own = [first_words(client, chat) for chat in chats for _ in range(2)]
    sys.stderr.write(f"in them: p50 {1000 * p50(own):.0f} ms, most {1000 * max(own):.0f} ms\n")
    until(lambda: being_written(tree), seconds=60, what="the first summary")


def verification(tree: Instance, _number: int) -> None:
    """Verify the ledger repeatedly."""
    again = f"while true; do nice -n 10 {sys.executable} {MANAGE} ledger_verify; done"
    tree.start("verify", ["sh", "-c", again])


def indexing(tree: Instance, _number: int) -> None:
    """Index a long chat for search."""
    chat = tree.desk.ask("import_chat", messages=5 * LONG, strategy="sliding_window")
    # The window moves with the first reply, and the messages that leave it are indexed.
    tree.wait_until_over(tree.post("And now?", chat=chat, model="locked"), seconds=60)
    until(lambda: due(tree), what="the index")


def due(tree: Instance) -> int:
    """The number of branches that are not indexed yet."""
    return count(tree.database, "chats_searchplace", "due_at IS NOT NULL")


SLIDES, FOLDS = "sliding_window", {"strategy": "dynamic_summary", "token_budget": 8_000}
CHATS, AT_ONCE, ROUNDS = 200, 20, 10


def counting(tree: Instance, _number: int) -> None:
    """Count the chats of some length that a policy would change."""
    for _ in range(CHATS):
        tree.desk.ask("import_chat", messages=200, strategy=SLIDES)
    tree.desk.ask("count_chats", strategy=SLIDES, values=FOLDS)
    until(lambda: count(tree.database, "contextpolicy_blastradius", "high IS NOT NULL"), seconds=60)


def judging(tree: Instance, _number: int) -> None:
    """Run shadow evaluations of a draft for many replies, created in groups of twenty."""
    chats = [
        str(tree.desk.ask("import_chat", messages=200, strategy=SLIDES)) for _ in range(AT_ONCE)
    ]
    tree.desk.ask("evaluate", strategy=SLIDES, values=FOLDS, waits=60)
    for _ in range(ROUNDS):
        for turn in [tree.post("And now? [[fake tokens=5]]", chat=chat) for chat in chats]:
            tree.wait_until_over(turn, seconds=60)
    begun = time.perf_counter()
    until(lambda: count(tree.database, "contextpolicy_evaluatedturn"), seconds=150, what="a row")
    sys.stderr.write(f"judged from {time.perf_counter() - begun:.0f} s after the last reply\n")


def uploading(tree: Instance, _number: int) -> None:
    """Upload two hundred files of 5 MiB at once."""
    sys.stderr.write(f"{describe_memory(tree)} before the uploads\n")
    command = python("-m", "benchmarks.uploads", "--socket", tree.socket)
    tree.start("uploads", command, KEY=tree.keys["charlie"])
    # All connections are open.
    time.sleep(1)


def describe_memory(tree: Instance) -> str:
    """Return the peak memory and the processor time of the processes that handle uploads."""
    found = [
        f"{program.name} {program.peak_bytes() / 2**20:.0f} MiB,"
        f" {program.processor_seconds():.1f} s"
        for program in tree.programs
        if program.name in {"web", "worker", "background"}
    ]
    return f"peak memory and processor time: {'; '.join(found)}"


def wait_for_uploads(tree: Instance) -> None:
    """Wait until all uploads have ended and their text is extracted; print duration and memory."""
    begun = time.perf_counter()
    sys.stderr.write(f"{describe_memory(tree)} while the messages were sent\n")
    (sender,) = [program for program in tree.programs if program.name == "uploads"]
    was_running = sender.is_alive
    until(lambda: not sender.is_alive, seconds=300, what="the end of the uploads")
    sys.stderr.write(
        f"uploads {'ran to the end' if was_running else 'ended early'}: {sender.said()}"
    )
    unread = "state = 'pending'"
    until(lambda: not count(tree.database, "chats_storedfile", unread), seconds=600)
    taken = time.perf_counter() - begun
    sys.stderr.write(f"all files were read {taken:.0f} s later; {describe_memory(tree)}\n")


def keep_cores_busy(tree: Instance, _number: int) -> None:
    """Keep all cores busy at idle priority, as a control without any job."""
    for _ in range(os.cpu_count() or 1):
        tree.start("control", ["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"])
    time.sleep(1)


WORK: dict[str, Callable[[Instance, int], None]] = {
    "summaries": slow_summaries,
    "catch-up": catching_up,
    "verify": verification,
    "index": indexing,
    "count": counting,
    "evaluate": judging,
    "uploads": uploading,
    "busy-cores": keep_cores_busy,
}


def measure(tree: Instance, work: str, *, number: int, messages: int, times: Times) -> None:
    """Measure first-token times in an idle instance, then for as many messages during the jobs."""
    with Client(tree) as client:
        # The first messages are slower.
        send_messages(client, tree, MESSAGES_PER_CHAT)
        times.before += send_messages(client, tree, messages)
        WORK[work](tree, number)
        times.beside += send_messages(client, tree, messages)
    if work == "uploads":
        wait_for_uploads(tree)
    # Summaries of the other chats need no model: one more may still be running.
    if work == "summaries" and being_written(tree) < number:
        raise RuntimeError("the summaries ended before the messages did")


def block(work: str, *, layout: str, url: str, messages: int, times: Times) -> None:
    """Run one block with a new instance, without waiting for the jobs to end."""
    number = 20 if layout == "two" or work == "catch-up" else 10
    folder = new_folder()
    with FakeServer() as fake, database_of(url, folder=folder) as database:
        tree = Instance(folder=folder, database=database, fake=fake)
        try:
            tree.broker.start()
            tree.prepare()
            tree.web()
            tree.beat()
            tree.begin_workers(layout)
            measure(tree, work, number=number, messages=messages, times=times)
        finally:
            tree.close()
            shutil.rmtree(folder)


@contextmanager
def database_of(url: str, *, folder: Path) -> Iterator[Database]:
    """Yield a new SQLite file, or a new database on the URL's server, removed after the block."""
    if not url:
        yield SQLite(folder)
        return
    server, _, _ = url.rpartition("/")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}".encode())
        try:
            yield Given(f"{server}/{NAME}")
        finally:
            connection.execute(f"DROP DATABASE {NAME} WITH (FORCE)".encode())


def main() -> None:
    """Measure each block, and fail if replies wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--during", default=",".join(WORK))
    parser.add_argument("--layout", choices=list(LAYOUTS), default="laptop")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--messages", type=int, default=40)
    arguments = parser.parse_args()
    url, layout = os.environ.get("DATABASE_URL", ""), arguments.layout
    waits = False
    for work in arguments.during.split(","):
        times = Times()
        for _ in range(arguments.blocks):
            block(work, layout=layout, url=url, messages=arguments.messages, times=times)
        waits |= not times.nobody_waits
        verdict = "nobody waits" if times.nobody_waits else "REPLIES WAIT"
        where = "postgres" if url else "sqlite"
        print(f"{where}, {layout}: {times.told(work)}; {verdict}", flush=True)  # noqa: T201  # the result
    sys.exit(1 if waits else 0)


if __name__ == "__main__":
    main()
