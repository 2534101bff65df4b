"""Runs the documented commands of backup and restore in order."""

import re
import shlex
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
from tests.support.s3_bucket import run_bucket

pytestmark = pytest.mark.processes


@pytest.mark.in_turn
def test_a_restored_sqlite_backup_has_what_was_there(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.manage("setup")
    picture = operator.data / "files" / store_file(operator)
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


@pytest.mark.in_turn
def test_files_of_a_bucket_are_restored_to_it(tmp_path: Path) -> None:
    with run_bucket() as (bucket, environment):
        operator = Operator(tmp_path, FILE_ENCRYPTION="1", **environment)
        operator.manage("setup")
        first, second = store_file(operator), store_file(operator, "another text")
        before = dict(bucket.objects)
        assert sorted(before) == sorted(f"/chat-files/one/{path}" for path in (first, second))
        operator.run(*list_section_commands("Back up"))
        # The database is lost with the objects, or with one of them.
        for lost in (list(before), [f"/chat-files/one/{first}"]):
            (operator.data / "palimpsest.sqlite3").unlink()
            for key in lost:
                del bucket.objects[key]
            assert "Verified " in operator.run(list_section_commands("Restore")[0])
            assert bucket.objects == before
        del bucket.objects[f"/chat-files/one/{first}"]
        said = operator.manage("backup", "second.zip", code=1)
        assert read_file_id(operator, first) in said
        assert read_file_id(operator, second) not in said
        operator.manage("backup", "third.zip", "--without-files")
        bucket.objects.clear()
        operator.manage("restore", "third.zip", "--replace")
        assert bucket.objects == {}


STORE = """
import io; from django.contrib.auth.models import User; from django.utils import timezone
from chats.files.uploads import accept_upload
owner, _ = User.objects.get_or_create(username="owner")
given = io.BytesIO(b"{text}")
row, _ = accept_upload(given, name="a.txt", owner=owner, now=timezone.now())
print(f"found={{row.path}}.")
"""


def store_file(operator: Operator, text: str = "words") -> str:
    """Upload a file, and return its path in the storage."""
    return run_script(operator, STORE.format(text=text))


def read_file_id(operator: Operator, path: str) -> str:
    """Return the id of a stored file."""
    return run_script(
        operator,
        "from chats.models import StoredFile;"
        f"print(f'found={{StoredFile.objects.get(path=\"{path}\").pk}}.')",
    )


def run_script(operator: Operator, script: str) -> str:
    """Run Python code in the product, and return the text after `found=` that it prints."""
    said = operator.manage("shell", "-v", "0", "-c", shlex.quote(script))
    found = re.search(r"found=(\S+)\.$", said, re.MULTILINE)
    assert found is not None, said
    return found[1]


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
