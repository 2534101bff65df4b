"""A chat that is erased while its group is indexed disturbs no other, and causes no warning."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, connections, transaction
from django.utils import timezone

from chats.actions import erasure, lifecycle
from chats.compaction import indexing
from chats.compaction.maintain import maintain_chat_context
from chats.exchange import import_job
from chats.memory.search import bulk_indexing, index_schedule
from chats.memory.search.search import search_archive, search_unsent
from chats.models import Branch, Chat, SearchCount, SearchPlace, SearchText
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.chats.api.bringing import bring
from tests.chats.api.conftest import of_alice, program
from tests.chats.api.programs import Program
from tests.support.exchange_files import build_ui_message, join_json_lines
from tests.support.messages_without_turns import Cover, Say, reload_first_branch

__all__ = ["of_alice", "program"]

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


def test_a_request_to_index_an_erased_chat_does_nothing(
    alice: User, demo_model: Any, now: datetime, say: Say
) -> None:
    chat = lifecycle.create_chat(owner=alice, now=now)
    say("heron", branch=reload_first_branch(chat))
    held = Branch.objects.select_related("chat").get(chat=chat)
    bare = Branch.objects.get(chat=chat)
    erasure.erase_chat(user=alice, chat=Chat.objects.get(pk=chat.pk), now=now)
    for branch in (held, bare):
        index_schedule.request_indexing(branch)
    assert not SearchPlace.objects.exists()
    # A caller within a transaction holds a lock, so its error is not hidden.
    with pytest.raises(IntegrityError), transaction.atomic():
        index_schedule.request_indexing(held)


def search_originals(branch: Branch) -> None:
    """Search the messages that a summary covers, as the chat page does."""
    search_archive(branch, question="heron", most=10)


def search_from_tool(branch: Branch) -> None:
    """Search the messages that the prompt leaves out, as the tool of models does."""
    search_unsent(branch, question="heron", most=10, sent=set())


def maintain_context(branch: Branch) -> None:
    """Maintain the context of a chat, as a worker does."""
    counter = ApproximateCounter()
    maintain_chat_context(chat_id=branch.chat_id, counter=counter, now=timezone.now())


@pytest.mark.parametrize("use", [search_originals, search_from_tool, maintain_context])
def test_an_erasure_at_any_time_disturbs_no_search(
    use: Callable[[Branch], None],
    alice: User,
    demo_model: Any,
    now: datetime,
    say: Say,
    cover: Cover,
) -> None:
    number, is_over = 0, False
    while not is_over:
        number += 1
        chat = lifecycle.create_chat(owner=alice, now=now)
        branch = reload_first_branch(chat)
        say("heron", branch=branch)
        say("stork", branch=branch)
        cover(2, branch=branch)
        related = ("active_compaction__base", "chat", "parent")
        found = Branch.objects.select_related(*related).get(pk=branch.pk)
        with erasing(chat, number=number) as eraser:
            use(found)
        is_over = not eraser.is_done
    assert number > 3
    assert not SearchPlace.objects.exclude(branch__in=Branch.objects.all()).exists()


def test_an_import_does_not_fail_if_its_chat_is_erased_before_it_is_indexed(
    of_alice: Program, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    usual, erased = index_schedule.request_indexing, []

    def erase_and_request(branch: Branch) -> None:
        erasure.erase_chat(user=alice, chat=Chat.objects.get(pk=branch.chat_id), now=now)
        erased.append(branch.pk)
        usual(branch)

    monkeypatch.setattr(index_schedule, "request_indexing", erase_and_request)
    line = build_ui_message("q", "Where is the heron?")
    # The erasure of an imported chat stops the running imports of its owner.
    found = bring(of_alice, join_json_lines(line))
    assert (found.row["state"], found.row["added"], len(erased)) == ("stopped", 1, 1)
    assert [row for row in caplog.records if row.name == import_job.__name__] == []
