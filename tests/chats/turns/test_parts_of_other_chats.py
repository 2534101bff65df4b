"""Which parts of other chats a prompt gets: the best sentences, of chats that may give them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions.branching import edit_message
from chats.memory.search import archive
from chats.memory.search.references import load_turn_references
from chats.models import Branch, Chat, Folder, Message, Receipt, TurnReference
from chats.prompt.reconstruction import rebuild_request
from chats.providers.base import Finished, TextDelta
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


QUESTION = "Do you remember which ring the heron at Lake Vogt had?"
ANSWER = "It was the one with the number B-417, in green plastic."


@pytest.fixture
def asked_elsewhere(new_chat: Callable[[User], Chat], alice: User, say: Say) -> Chat:
    """Another chat, in which a question has its answer in the next message."""
    other = new_chat(alice)
    say(other, QUESTION, ANSWER)
    archive.index_branch(Branch.objects.get(chat=other))
    return other


def test_a_question_of_another_chat_comes_with_its_answer(
    chat: Chat, govern_references: Callable[..., None], asked_elsewhere: Chat, say: Say
) -> None:
    govern_references()
    found = find_retrieved_context(say(chat, ASKED))
    assert found.index(QUESTION) < found.index(ANSWER)
    question, answer = TurnReference.objects.order_by("place")
    assert (question.reason, answer.reason) == ("match", "nearby")
    assert answer.match_seq == question.message.seq
    assert all(not rebuild_request(each).fault for each in Receipt.objects.all())


def test_a_reply_of_another_chat_comes_with_its_question(
    chat: Chat,
    alice: User,
    govern_references: Callable[..., None],
    new_chat: Callable[[User], Chat],
    say: Say,
) -> None:
    other = new_chat(alice)
    say(other, "Where did I see that bird last spring?", HERON)
    archive.index_branch(Branch.objects.get(chat=other))
    govern_references()
    assert "that bird last spring" in find_retrieved_context(say(chat, ASKED))


def test_a_neighbour_is_added_only_if_there_is_room(
    chat: Chat, govern_references: Callable[..., None], asked_elsewhere: Chat, say: Say
) -> None:
    govern_references(reference_tokens=18)
    found = find_retrieved_context(say(chat, ASKED))
    assert QUESTION in found
    assert ANSWER not in found


@pytest.mark.parametrize("withdrawn", ["excluded", "erased", "interrupted"])
def test_a_withdrawn_answer_is_not_sent(
    chat: Chat,
    alice: User,
    now: datetime,
    govern_references: Callable[..., None],
    asked_elsewhere: Chat,
    say: Say,
    withdrawn: str,
) -> None:
    rows = Message.objects.filter(branch__chat=asked_elsewhere, role="assistant")
    if withdrawn == "excluded":
        rows.update(excluded=True)
    elif withdrawn == "erased":
        rows.update(erased_at=now)
    else:
        rows.update(finish=Message.Finish.INCOMPLETE)
    govern_references()
    found = find_retrieved_context(say(chat, ASKED))
    assert QUESTION in found
    assert "B-417" not in found


def test_an_answer_that_was_replaced_is_not_sent(
    chat: Chat,
    alice: User,
    now: datetime,
    govern_references: Callable[..., None],
    asked_elsewhere: Chat,
    say: Say,
    work: Callable[..., Any],
) -> None:
    """The chat shows another branch, on which the question has another answer."""
    first = Message.objects.get(branch__chat=asked_elsewhere, role="user")
    edited = edit_message(user=alice, message=first, text=f"{QUESTION} Please.", now=now)
    work(edited.turn, [TextDelta("It was the white one, C-903, I think."), Finished("stop")])
    archive.index_branch(edited.turn.branch)
    govern_references()
    found = find_retrieved_context(say(chat, ASKED))
    assert "C-903" in found
    assert "B-417" not in found


def test_an_answer_that_is_erased_later_leaves_the_prompt(
    chat: Chat,
    now: datetime,
    govern_references: Callable[..., None],
    asked_elsewhere: Chat,
    say: Say,
) -> None:
    govern_references()
    say(chat, ASKED)
    Message.objects.filter(branch__chat=asked_elsewhere, role="assistant").update(erased_at=now)
    rows = load_turn_references(
        TurnReference.objects.values_list("turn", flat=True)[0], owner_id=chat.owner_id
    )
    assert [row.message.text for row in rows] == [QUESTION]
