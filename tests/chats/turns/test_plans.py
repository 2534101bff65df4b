"""SQLite finds unfinished rows through an index, regardless of the number of messages."""

from typing import Any

import pytest
from django.db import connection

from chats.turns import statements
from speed import prepared

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        "connection.vendor != 'sqlite'", reason="PostgreSQL plans by how much there is"
    ),
]


def plan(statement: prepared.Statement) -> list[str]:
    """Return SQLite's query plan of the statement, step by step."""
    known = statement.known(connection)
    values = [1 if name else parameter for name, parameter in known.places]
    rows: list[Any] = connection.connection.execute(f"EXPLAIN QUERY PLAN {known.native}", values)
    return [row[3] for row in rows]


@pytest.mark.parametrize(
    "statement",
    [
        statements.BUSY_BRANCHES,
        statements.BUSY_BRANCHES_OF_KEY,
        statements.OVERDUE,
        statements.BUSY_SERVER,
        statements.QUEUED_BEFORE,
        statements.SERVED,
    ],
    ids=["replies of a person", "of a key", "overdue", "of a server", "queued before", "served"],
)
def test_the_unfinished_are_found_without_the_finished(statement: prepared.Statement) -> None:
    first, *more = plan(statement)
    assert first.startswith("SEARCH chats_turn USING INDEX turn_unfinished")
    assert not [step for step in more if step.startswith("SCAN")]


@pytest.mark.parametrize(
    "statement",
    [
        statements.CLAIM,
        statements.HELD_AND_LOCKED,
        statements.RENEW,
        statements.SAVE_TEXT,
        statements.NEXT_TURNS,
    ],
    ids=["claim", "locked", "renew", "save", "next"],
)
def test_what_decides_about_the_plan_stands_in_the_statement(
    statement: prepared.Statement,
) -> None:
    known = statement.known(connection)
    # With a parameter, SQLite would plan again at each execution.
    assert "running" in known.native or "queued" in known.native
    assert not [step for step in plan(statement) if step.startswith("SCAN")]
