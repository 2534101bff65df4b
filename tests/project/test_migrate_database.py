"""The documented move from SQLite to PostgreSQL, also if it is killed, and its refusals."""

import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.operator_shell import Operator, count_rows, list_section_commands
from tests.support.repository import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.services, pytest.mark.in_turn]
RECORDING = ROOT / "tests" / "recordings" / "orders.jsonl"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """A SQLite installation with a chat, summaries, receipts and a signed audit log."""
    operator = Operator(tmp_path_factory.mktemp("played"))
    operator.manage("setup")
    operator.manage("replay", str(RECORDING))
    operator.manage("ledger_checkpoint")
    change(
        operator,
        # Ids of erased rows are not used again.
        "UPDATE sqlite_sequence SET seq = 900 WHERE name = 'auth_user'",
        "INSERT INTO django_session WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1"
        " FROM n WHERE i < 5000) SELECT 'k' || i, 'Grüße 😀 ' || i, '2030-01-01' FROM n",
    )
    return operator


@pytest.fixture
def played(first: Operator, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """A copy of that installation, which a test may damage."""
    operator = Operator(tmp_path_factory.mktemp("copy"))
    shutil.copytree(first.data, operator.data, dirs_exist_ok=True)
    return operator


def change(operator: Operator, *statements: str) -> None:
    """Change the SQLite file behind the product's back."""
    database = sqlite3.connect(operator.data / "palimpsest.sqlite3")
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


@pytest.fixture
def target(cluster: Any) -> Iterator[str]:
    """The address of an empty PostgreSQL database."""
    name = f"moved_{uuid.uuid4().hex}"
    cluster.execute(f"CREATE DATABASE {name}")
    yield cluster.url("postgres", name)
    cluster.execute(f"DROP DATABASE {name} WITH (FORCE)")


def move(operator: Operator, target: str, *, code: int = 0, **environment: str) -> str:
    """Run the documented command with the new address."""
    (documented,) = list_section_commands("Move from SQLite to PostgreSQL")
    settings = " ".join(f"{name}={value}" for name, value in environment.items())
    return operator.run(f"export NEW_DATABASE_URL={target} {settings}", documented, code=code)


def test_a_move_that_was_killed_continues_and_has_everything(
    played: Operator, target: str, tmp_path: Path
) -> None:
    before = count_rows(played)
    failpoint = f"move.batch@{tmp_path / 'killed'}"
    move(played, target, code=137, PALIMPSEST_TESTING="1", PALIMPSEST_FAILPOINT=failpoint)
    with psycopg.connect(target) as database:
        begun = database.execute("SELECT count(*) FROM palimpsest_move").fetchone()
    assert begun == (2,)
    said = move(played, target)
    assert "Number and checksum of" in said
    assert said.count("Verified ") == 1
    assert "Compared with" in said
    moved = Operator.__new__(Operator)
    moved.folder = played.folder
    moved.environment = {**played.environment, "DATABASE_URL": target}
    assert count_rows(moved) == before
    with psycopg.connect(target) as database:
        following = database.execute("SELECT nextval('auth_user_id_seq')").fetchone()
        progress = database.execute("SELECT to_regclass('palimpsest_move')").fetchone()
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            database.execute("DELETE FROM contextpolicy_auditevent")
    assert (following, progress) == ((901,), (None,))
    # The schema is that of a new installation.
    assert "not_empty" in move(played, target, code=1)
    moved.manage("makemigrations", "--check", "--dry-run")
    moved.manage("migrate", "--check", "--skip-checks")


def test_a_value_that_postgresql_cannot_store_is_named(played: Operator, target: str) -> None:
    change(played, "UPDATE chats_chat SET title = 'a' || char(0) || 'b'")
    said = move(played, target, code=1)
    assert "value_refused" in said
    assert "chats_chat" in said
    # The file has changed since.
    change(played, "UPDATE chats_chat SET title = 'a'", "DELETE FROM django_session")
    assert "source_changed" in move(played, target, code=1)


def test_a_broken_audit_log_is_not_moved(played: Operator, target: str) -> None:
    change(
        played,
        "DROP TRIGGER ledger_no_update",
        "UPDATE contextpolicy_auditevent SET actor = 'other' WHERE id = 3",
    )
    assert "ledger_broken" in move(played, target, code=1)
    with psycopg.connect(target) as database:
        tables = database.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchone() == (0,)
