"""A short question is searched with the messages before it that name its topic."""

import pytest

from chats.memory.search.follow_up import MOST_ADDED, build_search_question
from chats.models import Chat
from tests.support.messages_without_turns import Say, reload_first_branch

pytestmark = pytest.mark.django_db
TOPIC = "Let us talk about the trip to Lisbon in May."


def search_text(chat: Chat, question: str) -> str:
    branch = reload_first_branch(chat)
    return build_search_question(question, seq=branch.last_seq + 1, branch=branch)


def test_a_chain_of_follow_ups_keeps_its_topic(chat: Chat, say: Say) -> None:
    say("We repair the boat and its sails in winter.")
    say(TOPIC)
    say("And the hotel?")
    found = search_text(chat, "And the price?")
    assert found == f"And the price?\nAnd the hotel?\n{TOPIC}"


def test_greetings_and_agreements_are_no_topic(chat: Chat, say: Say) -> None:
    for text in (TOPIC, "And the hotel?", "ok", "Thanks a lot!", "yes"):
        say(text)
        say("Noted.", role="assistant")
    assert TOPIC in search_text(chat, "And the price?")
    assert "ok" not in search_text(chat, "And the price?").split()


def test_the_number_of_added_messages_is_limited(chat: Chat, say: Say) -> None:
    say(TOPIC)
    for number in range(6):
        say(f"And number {number}?")
    found = search_text(chat, "And the price?")
    assert found.count("\n") == MOST_ADDED
    assert TOPIC not in found


def test_a_withdrawn_message_is_not_added(chat: Chat, say: Say) -> None:
    say(TOPIC, excluded=True)
    say("And the hotel?")
    assert "Lisbon" not in search_text(chat, "And the price?")


def test_the_last_reply_names_what_the_messages_do_not(chat: Chat, say: Say) -> None:
    say("where should we stay for the week")
    say("Many stay in Alfama near Hotel Memmo. Others prefer a flat.", role="assistant")
    found = search_text(chat, "and the price?")
    assert {"Alfama", "Hotel", "Memmo"} <= set(found.split())
    assert "Others" not in found.split()


def test_a_message_with_a_name_needs_no_reply(chat: Chat, say: Say) -> None:
    say(TOPIC)
    say("The hotel Memmo is near Alfama.", role="assistant")
    assert "Alfama" not in search_text(chat, "And the price?")
