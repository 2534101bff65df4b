"""Bytes that a turn adds to the database, by table, in rows and in indexes.

`python -m benchmarks.row_sizes [--chats 20] [--turns 20]` starts an instance, on SQLite, or on
PostgreSQL under `scripts/with_postgres.sh`. It sends messages of 40 words with replies of 150
words, waits for the search index, and compares the sizes of all tables before and after.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.instance import Instance
from benchmarks.load.cells import wait_until_idle
from benchmarks.load.client import TokenMeter
from benchmarks.load.model import Pace, model_server
from benchmarks.load.servers import SERVER, Stored, prepare, start_instance, start_postgres_instance
from benchmarks.load.targets import ChatTarget
from benchmarks.load.words import texts, vocabulary

REPLY_WORDS, QUESTION_WORDS = 150, 40
MEASURE = """
import django; django.setup()
import json
from django.db import connection
with connection.cursor() as cursor:
    names = connection.introspection.table_names(cursor)
    if connection.vendor == "postgresql":
        connection.set_autocommit(True)
        cursor.execute("VACUUM")
        cursor.execute(
            "SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
        sizes = {name: (table, index) for name, table, index in cursor.fetchall()}
    else:
        cursor.execute(
            "SELECT m.tbl_name, m.type, SUM(s.pgsize) FROM dbstat s"
            " JOIN sqlite_master m ON m.name = s.name GROUP BY 1, 2")
        sizes = {}
        for name, kind, size in cursor.fetchall():
            table, index = sizes.get(name, (0, 0))
            sizes[name] = (table + size, index) if kind == "table" else (table, index + size)
    found = {}
    for name, (table, index) in sizes.items():
        cursor.execute(f'SELECT COUNT(*) FROM "{name}"')
        found[name] = (cursor.fetchone()[0], table, index)
print(json.dumps(found))
"""
Sizes = Mapping[str, tuple[int, int, int]]


async def take_turns(target: ChatTarget, *, chats: int, turns: int) -> None:
    """Take turns in every chat, four chats at a time. Raises RuntimeError if a turn fails."""
    await target.prepare(chats)
    said = iter(texts(chats * turns, words=vocabulary(), length=QUESTION_WORDS))
    free = asyncio.Semaphore(4)

    async def use_chat(person: int) -> None:
        async with free:
            for _ in range(turns):
                error = await target.take_turn(person, next(said), TokenMeter())
                if error:
                    raise RuntimeError(error)

    await asyncio.gather(*(use_chat(person) for person in range(chats)))
    await target.close()
    await asyncio.sleep(8)
    await wait_until_idle(target.pids)


def measure(ours: Instance) -> Sizes:
    """Each table's number of rows, bytes in rows and bytes in indexes."""
    found: dict[str, Any] = json.loads(ours.run(MEASURE))
    return {name: (size[0], size[1], size[2]) for name, size in found.items()}


def describe_growth(before: Sizes, after: Sizes, *, turns: int) -> list[str]:
    """Return the bytes that a turn added to each table, as lines, largest first."""
    grown = {
        name: tuple(
            now - then for now, then in zip(after[name], before.get(name, (0, 0, 0)), strict=True)
        )
        for name in after
    }
    ordered = sorted(grown.items(), key=lambda each: -each[1][1] - each[1][2])
    lines = ["| table | rows per turn | bytes per row | index bytes per row | bytes per turn |"]
    lines.append("|---|---|---|---|---|")
    for name, (rows, table, index) in ordered:
        if table + index >= turns:
            each = max(rows, 1)
            lines.append(
                f"| {name} | {rows / turns:.2f} | {table / each:.0f} | {index / each:.0f} |"
                f" {(table + index) / turns:.0f} |"
            )
    table, index = (sum(size[place] for size in grown.values()) for place in (1, 2))
    lines.append(
        f"| all | | {table / turns:.0f} per turn | {index / turns:.0f} per turn |"
        f" {(table + index) / turns:.0f} |"
    )
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=20)
    parser.add_argument("--turns", type=int, default=20)
    asked = parser.parse_args()
    start = start_postgres_instance if os.environ.get(SERVER) else start_instance
    pace = Pace(REPLY_WORDS, first_ms=1, token_ms=0.1, words=True)
    with model_server(pace) as model, start(model) as (ours, pids):
        key, _ = prepare(ours, model, Stored())
        target = ChatTarget("product", ours.port, pids, key=key)
        asyncio.run(take_turns(target, chats=asked.chats, turns=2))
        before = measure(ours)
        asyncio.run(take_turns(target, chats=asked.chats, turns=asked.turns))
        after = measure(ours)
    lines = describe_growth(before, after, turns=asked.chats * asked.turns)
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
