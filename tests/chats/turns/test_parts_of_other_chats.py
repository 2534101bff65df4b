"""Which parts of other chats a prompt gets: the best sentences, of chats that may give them."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from chats.models import Chat, Folder, Receipt, TurnReference
from chats.prompt.reconstruction import rebuild_request
from tests.support.retrieved_context import Elsewhere, Say, find_retrieved_context

pytestmark = [pytest.mark.requirement("S1.2"), pytest.mark.usefixtures("built_again", "no_breaker")]

HERON = "The grey heron nests at Lake Vogt, and its ring says B-417."
ASKED = "Which ring did the heron at Lake Vogt wear?"
FILLER = "We walked on along the shore and talked about the weather of the last days. " * 6


def test_the_best_sentences_of_a_long_message_are_sent(
    chat: Chat, govern_references: Callable[..., None], elsewhere: Elsewhere, say: Say
) -> None:
    elsewhere(f"A heron is a bird. {FILLER}{HERON} {FILLER}{FILLER}")
    govern_references()
    found = find_retrieved_context(say(chat, ASKED))
    assert "B-417" in found
    (row,) = TurnReference.objects.all()
    assert 500 < row.end - row.start <= 1_000
    assert all(not rebuild_request(each).fault for each in Receipt.objects.all())


def test_an_excerpt_is_shortened_to_the_room(
    chat: Chat, govern_references: Callable[..., None], elsewhere: Elsewhere, say: Say
) -> None:
    elsewhere(f"{FILLER}{HERON} {FILLER}{FILLER}")
    govern_references(reference_tokens=100)
    assert "B-417" in find_retrieved_context(say(chat, ASKED))


@pytest.mark.parametrize("closed", ["chat", "folder", "none"])
def test_one_chat_does_not_use_up_the_search(
    chat: Chat,
    alice: User,
    govern_references: Callable[..., None],
    elsewhere: Elsewhere,
    say: Say,
    closed: str,
) -> None:
    """Many better matches of a chat that is closed, or has enough excerpts, hide no other chat."""
    elsewhere("The grey heron at Lake Vogt was seen by Ida.")
    loud = elsewhere(*(f"{HERON} Note {number}." for number in range(25)))
    if closed == "chat":
        Chat.objects.filter(pk=loud.pk).update(without_memory=True)
    elif closed == "folder":
        folder = Folder.objects.create(owner=alice, name="Private", without_memory=True)
        Chat.objects.filter(pk=loud.pk).update(folder=folder)
    govern_references(reference_scope="person", reference_count=6)
    found = find_retrieved_context(say(chat, ASKED))
    assert "seen by Ida" in found
    assert found.count("B-417") == (2 if closed == "none" else 0)
