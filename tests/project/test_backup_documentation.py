"""Runs the documented commands of backup and restore in order."""

import sqlite3
import threading
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography.fernet import Fernet

from chats.checkpoints import checks
from tests.support.operator_shell import Operator, count_rows, list_section_commands

pytestmark = pytest.mark.processes


@pytest.mark.in_turn
def test_a_restored_sqlite_backup_has_what_was_there(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.manage("setup")
    picture = operator.data / "files" / "a" / "picture"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"\x00picture")
    before = count_rows(operator)
    kept = {path: path.read_bytes() for path in (picture, operator.data / "encryption_key")}
    with Writer(operator.data / "palimpsest.sqlite3") as writer:
        operator.run(*list_section_commands("Back up"))
    assert writer.written > 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "backup").iterdir()}
    assert modes == {"palimpsest.zip": 0o600, "palimpsest.zip.keys": 0o600}

    (operator.data / "encryption_key").write_text(Fernet.generate_key().decode())
    picture.write_bytes(b"other")
    change_rows(operator, "DROP TABLE chats_message")
    restore, _ = list_section_commands("Restore")
    assert "not_empty" in operator.run(restore.replace(" --replace", ""), code=1)
    assert "Verified " in operator.run(restore)
    change_rows(operator, "DELETE FROM django_session")
    assert count_rows(operator) == before
    assert {path: path.read_bytes() for path in kept} == kept
    assert list(operator.data.glob("palimpsest.sqlite3.*")) == []


@pytest.mark.in_turn
def test_a_checkpoint_that_was_signed_after_the_backup_does_not_match_it(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.manage("setup")
    operator.manage("ledger_checkpoint")
    operator.run(*list_section_commands("Back up"))
    operator.manage("login_link", "admin")
    operator.manage("ledger_checkpoint")
    restore, reopen = list_section_commands("Restore")
    assert checks.OTHER_LEDGER in operator.run(restore, code=1)
    assert "Verified " in operator.run(reopen)


def change_rows(operator: Operator, statement: str) -> None:
    """Run a statement on the SQLite file."""
    database = sqlite3.connect(operator.data / "palimpsest.sqlite3")
    database.execute(statement)
    database.commit()
    database.close()


class Writer:
    """A person who uses the product: sessions are written while the block runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.write)

    def write(self) -> None:
        """Write one row per transaction."""
        database = sqlite3.connect(self.path, timeout=20)
        while not self.ending.is_set():
            database.execute(
                "INSERT INTO django_session VALUES (?, 'nothing', '2020-01-01')", [uuid.uuid4().hex]
            )
            database.commit()
            self.written += 1
        database.close()

    def __enter__(self) -> "Writer":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.thread.join()


@pytest.mark.services
@pytest.mark.in_turn
def test_a_restored_postgresql_backup_has_what_was_there(tmp_path: Path, cluster: Any) -> None:
    names = [f"{name}_{uuid.uuid4().hex}" for name in ("backup", "restored")]
    first, restored = (cluster.url("postgres", name) for name in names)
    operator = Operator(tmp_path, DATABASE_URL=first)
    cluster.execute(*(f"CREATE DATABASE {name}" for name in names))
    operator.manage("setup")
    operator.manage("ledger_checkpoint")
    # The next chat has a number that no erased chat had.
    cluster.execute("SELECT setval('auth_user_id_seq', 70)", name=names[0])
    operator.run(*list_section_commands("Back up"))
    before = count_rows(operator)
    restore, _ = list_section_commands("Restore")
    with psycopg.connect(first):
        assert "still_running" in operator.run(restore, code=1)
    # The data of now is replaced.
    cluster.execute("DROP TABLE chats_webhook CASCADE", name=names[0])
    operator.run(restore)
    assert count_rows(operator) == before

    operator.environment["DATABASE_URL"] = restored
    said = operator.run(restore.replace(" --replace", ""))
    assert "Verified " in said
    assert "Compared with" in said
    assert count_rows(operator) == before
    with psycopg.connect(restored) as database:
        next_id = database.execute("SELECT nextval('auth_user_id_seq')").fetchone()
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            database.execute("DELETE FROM contextpolicy_auditevent")
    assert next_id == (71,)
