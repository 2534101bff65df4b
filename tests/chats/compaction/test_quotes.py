"""Erasure lists other messages that quote the erased text, and erases them on request."""

import uuid
from collections import Counter
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from chats.actions import erasure, running_replies
from chats.actions.branching import branch_from_message
from chats.models import Chat, Message
from chats.record.quotes import (
    BLOCK,
    MOST_PLACES,
    SHORTEST,
    SHORTEST_WHOLE,
    Index,
    JointIndex,
    strip_quote_marks,
)
from chats.turns.start import start_turn
from contextpolicy import ledger
from contextpolicy.models import AuditEvent
from tests.support.chat_summaries import Say, add_minutes, reload_branch

SECRET = "The door in Prinsens gate 12 opens with the code 7781, then the blue key."


def shared(text: str, other: str) -> str:
    """Return the words that one text shares with the other."""
    return Index(strip_quote_marks(text)).shared(strip_quote_marks(other))


@pytest.mark.parametrize(
    "other",
    [
        SECRET,
        f"You said: “{SECRET}” Is that right?",
        f"> {SECRET[:30]}\n> {SECRET[30:]}\n\nYes.",
        SECRET.replace(" ", "\n  "),
        "xx " + SECRET[7 : 7 + SHORTEST],
    ],
)
def test_a_long_quote_is_found_whatever_its_white_space(other: str) -> None:
    assert len(shared(SECRET, other)) >= SHORTEST


@pytest.mark.parametrize(
    "other",
    [
        "",
        "The code of the door is 7781.",
        SECRET.upper(),
        SECRET[: SHORTEST - 1],
        SECRET[:30] + " and " + SECRET[30:60],
        "-" * 500,
    ],
)
def test_shorter_words_and_other_words_are_no_quote(other: str) -> None:
    assert shared(SECRET, other) == ""


def test_a_short_message_is_quoted_as_a_whole_or_not_at_all() -> None:
    short = "The code is 7781."
    assert SHORTEST_WHOLE <= len(short) < SHORTEST
    assert shared(short, f"Noted: {short} Thanks.") == strip_quote_marks(short)
    assert shared(short, "The code is 778") == ""
    assert shared("Yes.", "Yes. And yes.") == ""


@given(
    text=st.text(alphabet="ab ", max_size=300),
    other=st.text(alphabet="ab ", max_size=120),
    at=st.integers(0, 300),
    length=st.integers(SHORTEST, 90),
)
def test_every_quote_of_that_length_is_found(text: str, other: str, at: int, length: int) -> None:
    line = strip_quote_marks(text)
    piece = line[at : at + length]
    found = Index(line).shared(other + piece + other)
    assert found == "" or found in line
    if len(piece) >= SHORTEST and len({piece[i : i + BLOCK] for i in range(BLOCK)}) == BLOCK:
        assert found


@given(
    texts=st.lists(st.text(alphabet="abc ", max_size=120), min_size=1, max_size=4),
    pieces=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100), st.integers(5, 90))),
)
def test_an_index_of_several_texts_finds_what_each_finds(
    texts: list[str], pieces: list[tuple[int, int, int]]
) -> None:
    lines = {uuid.UUID(int=number): strip_quote_marks(text) for number, text in enumerate(texts)}
    parts = [texts[number % len(texts)][at : at + length] for number, at, length in pieces]
    other = strip_quote_marks(" – ".join(parts))
    blocks = Counter(other[at : at + BLOCK] for at in range(len(other) - BLOCK + 1))
    joint = JointIndex(lines).quoted_in(other)
    single = {pk for pk, line in lines.items() if Index(line).shared(other)}
    assert joint <= single
    if max(blocks.values(), default=0) <= MOST_PLACES:
        assert joint == single


def test_a_dropped_text_is_compared_no_more() -> None:
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    index = JointIndex({first: SECRET, second: f"Again: {SECRET}"})
    assert index.quoted_in(SECRET) == {first, second}
    index.drop(first)
    assert index.quoted_in(SECRET) == {second}


def quoting_chat(chat: Chat, say: Say) -> list[Message]:
    """A chat with the secret, a reply that quotes it, and a turn that does not."""
    say(chat, SECRET, f"Noted:\n> {SECRET}")
    say(chat, "Thanks, what is next?", "Nothing is.")
    return list(Message.objects.filter(branch__chat=chat).select_related("branch").order_by("seq"))


def test_the_certificate_names_what_quotes_it(
    alice: User, chat: Chat, say: Say, now: datetime
) -> None:
    secret, reply, *_ = quoting_chat(chat, say)

    erased = erasure.erase_message(user=alice, message=secret, now=add_minutes(now))

    assert [quote.message for quote in erased.quoted_by] == [reply]
    event = AuditEvent.objects.get(type="message.erased")
    assert event.data["quoted_by"] == [str(reply.pk)]
    assert "7781" not in str(event.data)
    again = erasure.erase_message(user=alice, message=secret, now=add_minutes(now, 2))
    assert [quote.message for quote in again.quoted_by] == [reply]
    assert AuditEvent.objects.filter(type="message.erased").count() == 1


@pytest.mark.parametrize("at_once", [True, False])
def test_what_quotes_it_is_erased_in_the_same_step_or_later(
    alice: User, chat: Chat, say: Say, now: datetime, at_once: bool
) -> None:
    secret, reply, *others = quoting_chat(chat, say)
    if not at_once:
        erasure.erase_message(user=alice, message=secret, now=add_minutes(now))

    also = {reply.pk, others[0].pk, uuid.uuid4()}
    erased = erasure.erase_message(user=alice, message=secret, now=add_minutes(now, 2), also=also)

    assert erased.quoted_by == []
    assert set(Message.objects.filter(erased_at__isnull=False)) == {secret, reply}
    event = AuditEvent.objects.get(type="message.erased", data__message=str(reply.pk))
    assert event.data["quotes"] == str(secret.pk)
    assert list(ledger.find_ledger_breaks()) == []


def test_quotes_on_other_branches_are_found(
    alice: User, chat: Chat, say: Say, now: datetime
) -> None:
    secret, *_ = quoting_chat(chat, say)
    branch_from_message(user=alice, message=secret, now=now)
    chat.refresh_from_db()
    say(chat, f"I repeat: {SECRET}", "Good.")

    erased = erasure.erase_message(
        user=alice, message=secret, now=add_minutes(now), with_quotes=True
    )

    assert erased.quoted_by == []
    assert Message.objects.filter(erased_at__isnull=False).count() == 3
    assert reload_branch(chat).last_seq == 3


def test_nothing_is_erased_while_one_that_quotes_is_being_answered(
    alice: User, chat: Chat, say: Say, now: datetime
) -> None:
    secret, *_ = quoting_chat(chat, say)
    start_turn(user=alice, chat=chat, text=f"Again: {SECRET}", now=now)
    with pytest.raises(running_replies.StillAnswering):
        erasure.erase_message(user=alice, message=secret, now=now, with_quotes=True)
    assert not Message.objects.filter(erased_at__isnull=False).exists()


def test_the_certificate_of_a_quote_names_what_quotes_the_quote(
    alice: User, chat: Chat, say: Say, now: datetime
) -> None:
    more = "The blue key hangs behind the third picture on the left, under the stairs."
    say(chat, SECRET, f"Noted:\n> {SECRET}\n{more}")
    say(chat, f"You wrote: {more}", "Yes.")
    secret, reply, question, _ = Message.objects.select_related("branch").order_by("seq")

    erased = erasure.erase_message(
        user=alice, message=secret, now=add_minutes(now), also={reply.pk}
    )

    assert list(erased.proofs) == [secret, reply]
    events = AuditEvent.objects.filter(type="message.erased").order_by("seq")
    assert [event.data["quoted_by"] for event in events] == [[], [str(question.pk)]]
