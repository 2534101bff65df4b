"""Words that were taken out of the index do not stay in its parts."""

from datetime import datetime

import pytest
from django.db import connection

from chats.memory.clearing import clear_index
from chats.models import Branch, Chat, Message, SearchText

WORD = "zanzibar7781"


def stands_in_the_index() -> bool:
    """Whether any block of SQLite's full-text table has the word."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT block FROM chats_searchtext_words_data")
        return any(WORD.encode() in bytes(block) for (block,) in cursor.fetchall())


def found_by(word: str) -> int:
    """How many rows SQLite's full-text table finds by a word."""
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
