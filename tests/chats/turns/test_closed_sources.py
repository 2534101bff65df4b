"""Retrieved context never comes from private folders or from replaced versions of messages."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions import organising
from chats.actions.branching import choose_branch, edit_message
from chats.memory.search import archive
from chats.models import Chat, Folder, Message
from chats.providers.base import Finished, TextDelta
from tests.support.retrieved_context import Elsewhere, Say, find_retrieved_context

pytestmark = [pytest.mark.requirement("S1.2"), pytest.mark.usefixtures("built_again", "no_breaker")]

HERON = "The grey heron nests at Lake Vogt, and its ring says B-417."
CORRECTED = "The grey heron nests at Lake Vogt, and its ring says C-903."
ASKED = "Which ring did the heron at Lake Vogt wear?"


def test_chats_of_a_folder_without_memory_are_in_no_other_prompt(
    chat: Chat, alice: User, govern_references: Callable[..., None], elsewhere: Elsewhere, say: Say
) -> None:
    folder = Folder.objects.create(owner=alice, name="Private", without_memory=True)
    elsewhere(HERON, folder=folder)
    govern_references(reference_scope="person")
    assert find_retrieved_context(say(chat, ASKED)) == ""
    Folder.objects.update(without_memory=False)
    assert HERON in find_retrieved_context(say(chat, ASKED))


@pytest.mark.parametrize("is_private", [True, False])
def test_deleting_a_folder_keeps_the_memory_setting_of_its_chats(
    chat: Chat,
    alice: User,
    govern_references: Callable[..., None],
    elsewhere: Elsewhere,
    say: Say,
    now: datetime,
    is_private: bool,
) -> None:
    folder = Folder.objects.create(owner=alice, name="Private", without_memory=is_private)
    other = elsewhere(HERON, folder=folder)
    govern_references(reference_scope="person")
    organising.delete_folder(folder=folder, now=now)
    other.refresh_from_db()
    assert (other.folder, other.without_memory) == (None, is_private)
    assert (find_retrieved_context(say(chat, ASKED)) == "") == is_private


def test_only_the_version_that_a_chat_shows_is_sent(
    chat: Chat,
    alice: User,
    govern_references: Callable[..., None],
    elsewhere: Elsewhere,
    say: Say,
    work: Callable[..., Any],
    now: datetime,
) -> None:
    other = elsewhere(HERON)
    first = Message.objects.get(branch__chat=other, role="user")
    edited = edit_message(user=alice, message=first, text=CORRECTED, now=now)
    work(edited.turn, [TextDelta("Noted."), Finished("stop")])
    old, new = first.branch, edited.turn.branch
    archive.index_branch(new)
    govern_references()
    found = find_retrieved_context(say(chat, ASKED))
    assert CORRECTED in found
    assert HERON not in found
    choose_branch(user=alice, chat=other, branch_id=old.pk, now=now)
    found = find_retrieved_context(say(chat, ASKED))
    assert HERON in found
    assert CORRECTED not in found
