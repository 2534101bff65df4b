"""Which rows of a long programme run: all of them, or in `make test-all` those of the day.

Rows marked `in_turn` and files marked `file_in_turn` take turns there. Days are grouped by `PARTS`:
in each group every row runs once, and in the next group on the other database. The day is the same
in each process of a run.
"""

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

Row = TypeVar("Row")
EVERY_ROW = bool(os.environ.get("PALIMPSEST_EVERY_ROW"))
PARTS = 4
# `make test-all` sets it; otherwise each requested row runs.
DAY = int(os.environ.get("PALIMPSEST_DAY") or 0)
# For a repeat of tests that all run elsewhere too.
ALL_TAKE_TURNS = bool(os.environ.get("PALIMPSEST_ALL_IN_TURN"))


def one_of_both(row: str) -> str:
    """Return the database for a row. It is the same in each process of a run."""
    return ("sqlite", "postgres")[(zlib.crc32(row.encode()) + DAY // PARTS) % 2]


def is_of_today(name: str) -> bool:
    """Return True if it is the day of this name, or if all of them run."""
    # The prefix puts the two longest files, those of the engine's laws, on different days.
    return EVERY_ROW or (DAY > 0 and zlib.crc32(f"day {name}".encode()) % PARTS == DAY % PARTS)


def rows_of_other_days(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the rows that take turns and do not run today; neighbours run on different days.

    Tests marked `file_in_turn` take turns as whole files, because they share an installation.
    """
    if EVERY_ROW or not DAY:
        return set()
    items = list(items)
    of_files = [item for item in items if item.get_closest_marker("file_in_turn")]
    rows = [item for item in items if ALL_TAKE_TURNS or item.get_closest_marker("in_turn")]
    # A row of such a file runs with its file; with a separate turn it might never run.
    rows = [item for item in rows if item.get_closest_marker("file_in_turn") is None]
    of_today = rows_of_today(sorted({str(item.path) for item in of_files}))
    others = {item for item in of_files if str(item.path) not in of_today}
    rows.sort(key=lambda item: item.nodeid)
    return others | set(rows).difference(rows_of_today(rows))


def rows_of_today(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the share of the rows that runs today."""
    return rows[DAY % PARTS :: PARTS]
