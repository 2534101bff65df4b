"""Text removed from the index is also removed from its internal segments."""

import sqlite3
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection

from chats.memory.search import clearing
from chats.memory.search.clearing import clear_index, truncate_log
from chats.models import Branch, Chat, Message, SearchText
from contextpolicy import ledger
from project import database_url
from project.sqlite import base

WORD = "zanzibar7781"


def stands_in_the_index() -> bool:
    """Return True if a block of SQLite's full-text table contains the word."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT block FROM chats_searchtext_words_data")
        return any(WORD.encode() in bytes(block) for (block,) in cursor.fetchall())


def found_by(word: str) -> int:
    """Return the number of rows that SQLite's full-text table finds for a word."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM chats_searchtext_words WHERE chats_searchtext_words MATCH %s",
            [word],
        )
        return int(cursor.fetchone()[0])


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL clears its index by VACUUM")
def test_S27_a_word_that_was_erased_leaves_the_full_text_table(chat: Chat, now: datetime) -> None:
    branch = Branch.objects.get(chat=chat)
    for seq in range(1, 60):
        row = Message.objects.create(
            branch=branch, seq=seq, accepted=seq, role="user", parts=[], created_at=now
        )
        words = f"chat heron{seq} {WORD if seq == 3 else 'lake'}"
        SearchText.objects.create(message=row, words=words, keys="", full="", written_at=now)
    SearchText.objects.filter(words__contains=WORD).delete()
    assert stands_in_the_index(), "taking the row out is not enough"
    clear_index()
    assert not stands_in_the_index()
    assert found_by("heron59") == 1
    clear_index()


def test_clearing_an_index_with_nothing_to_clear_ends(db: None) -> None:
    clear_index()


@pytest.fixture
def file(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A database file with a deleted row, for use by the module under test."""
    path = tmp_path / "palimpsest.sqlite3"
    own = base.DatabaseWrapper(
        {**connection.settings_dict, **database_url.build_sqlite_settings(path)}
    )
    monkeypatch.setattr(clearing, "connection", own)
    with own.cursor() as cursor:
        cursor.execute("CREATE TABLE said (words TEXT)")
        cursor.execute("INSERT INTO said VALUES (%s)", [WORD])
        cursor.execute("DELETE FROM said")
    yield path
    own.close()


def log_of(path: Path) -> Path:
    """Return the write-ahead log of a database file."""
    return path.with_name(f"{path.name}-wal")


def test_a_word_that_was_erased_leaves_the_write_ahead_log(file: Path) -> None:
    assert WORD.encode() in log_of(file).read_bytes(), "deleting the row is not enough"
    assert truncate_log()
    assert log_of(file).read_bytes() == b""
    assert WORD.encode() not in file.read_bytes()
    assert truncate_log(), "once more there is nothing to do"


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"], ids=["reader", "writer"])
def test_nobody_waits_for_others_and_the_next_try_empties_the_log(file: Path, begin: str) -> None:
    other = sqlite3.connect(file, isolation_level=None)
    other.execute(begin)
    other.execute("SELECT count(*) FROM said").fetchone()
    own: base.DatabaseWrapper = vars(clearing)["connection"]
    with own.cursor() as cursor:
        if begin == "BEGIN":
            cursor.execute("INSERT INTO said VALUES ('later')")
        begun = time.monotonic()
        assert not truncate_log()
        assert time.monotonic() - begun < 1
        assert cursor.execute("PRAGMA busy_timeout").fetchone()[0] > 0, "as it was before"
    other.execute("ROLLBACK")
    other.close()
    assert truncate_log()
    assert log_of(file).read_bytes() == b""


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="only SQLite has such a log")
def test_the_sweep_empties_the_log_for_an_hour_after_an_erasure(
    chat: Chat, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[bool] = []
    monkeypatch.setattr(clearing, "truncate_log", lambda: tries.append(True))
    clearing.clear_erasure_log(now=now)
    assert tries == []
    ledger.record_event("message.erased", actor="system", now=now, chat_id=chat.pk, data={})
    clearing.clear_erasure_log(now=now + timedelta(minutes=59))
    assert tries == [True]
    clearing.clear_erasure_log(now=now + timedelta(minutes=61))
    assert tries == [True]
