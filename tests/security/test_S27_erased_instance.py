"""S27 on real processes: an erased word is in no file, row, key or log line.

With SQLite the whole data folder is searched directly after the erasure. With PostgreSQL it is
searched after VACUUM, which every operator can run. An erasure does not cover backups, nor the
write-ahead log until it is recycled.
"""

import re
from pathlib import Path
from uuid import UUID

import httpx2
import psycopg
import pytest

from tests.chats.web.markup import tight
from tests.faults.programs import MANAGE, python, run, until
from tests.faults.stores import Postgres, SQLite
from tests.security.instance import Instance, logs, sign_in, token_of
from tests.support.stored_bytes import read_everything_stored, wait_for_newest_turn

pytestmark = [
    pytest.mark.processes,
    pytest.mark.services,
]

MARK = "heronmark7731quay"
# Enough messages for a compaction, and a fact that a summary keeps.
LONG = f"Ticket {MARK} of 3 May 2026 belongs to Anna Berg in Oslo. " * 3


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


def files_of(instance: Instance) -> dict[str, bytes]:
    """Every file of the data folder with its broker, and of the database, by path."""
    folders = [instance.folder]
    if isinstance(instance.database, Postgres):
        folders.append(Path(instance.database.cluster.data) / "base")
        instance.database.cluster.execute("CHECKPOINT")
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths}


def files_with(instance: Instance, word: str) -> list[str]:
    """The files that contain the word."""
    return [path for path, kept in files_of(instance).items() if word.encode() in kept]


def clear_up(instance: Instance) -> None:
    """Run the database's cleanup of deleted rows."""
    if isinstance(instance.database, SQLite):
        # At the latest with the next sweep.
        until(lambda: not files_with(instance, MARK), seconds=60, what="an emptied log")
        return
    assert isinstance(instance.database, Postgres)
    url = instance.database.cluster.url("postgres", instance.database.name)
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("VACUUM FULL")


def places(instance: Instance) -> set[str]:
    """The tables with a row that contains the mark."""
    rows = instance.database.rows
    if isinstance(instance.database, SQLite):
        names = [row["name"] for row in rows("SELECT name FROM sqlite_master WHERE type='table'")]
    else:
        query = "SELECT table_name AS name FROM information_schema.tables"
        names = [row["name"] for row in rows(f"{query} WHERE table_schema = 'public'")]
    return {name for name in names if MARK in repr(rows(f'SELECT * FROM "{name}"'))}  # noqa: S608  # own tables


def say(instance: Instance, http: httpx2.Client, address: str, text: str) -> None:
    """One round, and a page view."""
    http.post(f"{address}messages", data={"text": text, **token_of(http)})
    wait_for_newest_turn(instance)
    http.get(address)


def told(instance: Instance, http: httpx2.Client) -> str:
    """A chat with the mark in every field that stores text, and its URL."""
    instance.fake.configure(reply=f"Noted: {LONG}", fault="")
    instance.desk.ask("save_account", slug="fake")
    answer = http.post("/chats/new", data={"text": LONG, "key": "mark", **token_of(http)})
    address = answer.headers["Location"]
    wait_for_newest_turn(instance)
    instance.desk.ask("fold_early", chat=address.strip("/").split("/")[-1])
    instance.fake.configure(reply="summary")
    for number in range(4):
        say(instance, http, address, f"Question {number}, about nothing of it. " * 10)
    summary = "SELECT id FROM chats_compaction WHERE kind = 'summary' AND status = 'published'"
    until(lambda: instance.database.rows(summary), seconds=30, what="a summary")
    http.get(f"{address}find", params={"q": MARK})
    instance.fake.configure(reply="And that is all.")
    say(instance, http, address, "Then tell me more.")
    return address


def erased(instance: Instance, http: httpx2.Client, address: str) -> list[str]:
    """Erase every message with the mark on the pages; return the displayed salts."""
    rows = instance.database.rows("SELECT id, parts FROM chats_message ORDER BY accepted")
    mine = [UUID(str(row["id"])) for row in rows if MARK in repr(row["parts"])]
    assert len(mine) >= 2
    salts = []
    for pk in mine:
        done = http.post(f"{address}messages/{pk}/erase", data=token_of(http))
        assert done.status_code == 200, logs(instance)[-6000:]
        salts += re.findall(r"<dt>Salt</dt><dd class=\"hash\">([0-9a-f]{64})", tight(done.text))
    assert len(salts) == len(mine)
    http.get(address)
    return salts


def test_S27_what_was_erased_is_nowhere(instance: Instance, http: httpx2.Client) -> None:
    sign_in(http)
    address = told(instance, http)
    kept = {"message", "compaction", "prompttext", "rendering", "searchtext"}
    assert places(instance) >= {f"chats_{name}" for name in kept}
    assert MARK.encode() in read_everything_stored(instance)
    assert files_with(instance, MARK)

    salts = erased(instance, http, address)
    clear_up(instance)

    assert places(instance) == set()
    assert MARK.encode() not in read_everything_stored(instance)
    for word in (MARK, *salts):
        assert files_with(instance, word) == []
        assert word not in logs(instance)
    assert "rows." in run(python(MANAGE, "ledger_verify"), env=instance.env)
