"""A chat that is erased while its group is indexed disturbs no other, and causes no warning."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.utils import timezone

from chats.actions import erasure, lifecycle
from chats.compaction import indexing
from chats.memory.search import bulk_indexing, index_schedule
from chats.models import Branch, Chat, SearchCount, SearchPlace, SearchText
from tests.support.messages_without_turns import Say, reload_first_branch

pytestmark = pytest.mark.usefixtures("transactional_ledger", "bus", "sent")
# Longest wait for an erasure.
MOST_SECONDS = 1.5
Index = Callable[[list[Chat]], Any]


class ErasureBetween:
    """Erases a chat as another worker before the statement with a number."""

    def __init__(self, chat: Chat, *, number: int) -> None:
        self.chat, self.left = chat, number
        self.is_done = False
        self.thread = threading.Thread(target=self.erase_elsewhere)

    def __call__(self, execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        """Run a statement, after the erasure if its time has come."""
        self.left -= 1
        # SQLite has one writer, so nothing happens between the statements of a transaction.
        is_free = connection.vendor != "sqlite" or not connection.in_atomic_block
        if self.left <= 0 and not self.is_done and is_free:
            self.is_done = True
            if connection.vendor == "sqlite":
                self.erase()
            else:
                self.thread.start()
                # The erasure waits for this transaction if it locks the same rows.
                self.thread.join(MOST_SECONDS)
        return execute(sql, params, many, context)

    def erase(self) -> None:
        """Erase the chat."""
        owner = self.chat.owner
        erasure.erase_chat(user=owner, chat=Chat.objects.get(pk=self.chat.pk), now=timezone.now())

    def erase_elsewhere(self) -> None:
        """Erase the chat over a separate connection."""
        try:
            self.erase()
        finally:
            connections.close_all()


@contextmanager
def erasing(chat: Chat, *, number: int) -> Iterator[ErasureBetween]:
    """Erase a chat before a statement of the block."""
    eraser = ErasureBetween(chat, number=number)
    with connection.execute_wrapper(eraser):
        yield eraser
    if eraser.is_done and connection.vendor != "sqlite":
        eraser.thread.join()


def index_together(chats: list[Chat]) -> set[Any]:
    """Index chats in one batch."""
    return bulk_indexing.index_newest([chat.pk for chat in chats])


def index_each(chats: list[Chat]) -> None:
    """Index chats one after the other, as the tasks of single chats do."""
    for chat in chats:
        indexing.update_chat_index(chat_id=chat.pk)


def look_for_unmarked(chats: list[Chat]) -> None:
    """Look for chats that no task indexes, as the due job does."""
    index_schedule.Looking().find()
    index_each(chats)


@pytest.mark.parametrize("index", [index_together, index_each, look_for_unmarked])
def test_an_erasure_at_any_time_disturbs_no_other_chat(
    index: Index, alice: User, demo_model: Any, now: datetime, say: Say, caplog: Any
) -> None:
    number, is_over = 0, False
    while not is_over:
        number += 1
        chats = [lifecycle.create_chat(owner=alice, now=now) for _ in range(2)]
        for chat in chats:
            say("heron", branch=reload_first_branch(chat))
        with erasing(chats[1], number=number) as eraser:
            done = index(chats)
        is_over = not eraser.is_done
        assert done is None or chats[0].pk in done, f"before statement {number}"
        found = SearchText.objects.values_list("message__branch__chat", flat=True)
        assert chats[0].pk in {*found}
        assert (chats[1].pk in {*found}) is is_over
        assert SearchCount.objects.get(owner=alice, word="heron").texts == found.count()
        assert not SearchPlace.objects.exclude(branch__in=Branch.objects.all()).exists()
    assert number > 5
    said = [row.getMessage() for row in caplog.records if row.name != "chats.record.notices"]
    assert said == []
