"""Which rows of a long programme run: all of them, or in `make test-all` those of the day.

Rows marked `in_turn` take turns there. Days are grouped by `PARTS`: in each group every row runs
once, and in the next group on the other database. The day is the same in each process of a run.
"""

import os
import zlib
from collections.abc import Iterable

import pytest

EVERY_ROW = bool(os.environ.get("PALIMPSEST_EVERY_ROW"))
PARTS = 3
# `make test-all` sets it; otherwise each requested row runs.
DAY = int(os.environ.get("PALIMPSEST_DAY") or 0)
# For a repeat of tests that all run elsewhere too.
ALL_TAKE_TURNS = bool(os.environ.get("PALIMPSEST_ALL_IN_TURN"))


def one_of_both(row: str) -> str:
    """Return the database for a row. It is the same in each process of a run."""
    return ("sqlite", "postgres")[(zlib.crc32(row.encode()) + DAY // PARTS) % 2]


def rows_of_other_days(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the rows that take turns and do not run today; neighbours run on different days."""
    if EVERY_ROW or not DAY:
        return set()
    rows = [item for item in items if ALL_TAKE_TURNS or item.get_closest_marker("in_turn")]
    rows.sort(key=lambda item: item.nodeid)
    return {row for number, row in enumerate(rows) if number % PARTS != DAY % PARTS}
