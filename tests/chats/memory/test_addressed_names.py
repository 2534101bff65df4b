"""A question about a person finds that person's messages in a chat without names."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.actions.erasure import erase_message
from chats.memory.search import archive, search
from chats.memory.search.recall import recall_excerpts
from chats.memory.search.recall_scope import Scope
from chats.models import Branch, Chat
from tests.support.messages_without_turns import Cover, Say, reload_first_branch

# The last line of each side shares one word with the question, which is not rare.
LINES = [
    ("user", "Hey Nadia! How was the market?"),
    ("assistant", "Crowded. We sold your pottery all day, Tom!"),
    ("user", "Wow, Nadia, you must be tired. My brother makes pottery too."),
    ("assistant", "Thanks. Tom, did you go to the pottery class?"),
    ("user", "Not yet. When is the next pottery class, Nadia?"),
    ("assistant", "On Friday. Bring an apron, Tom."),
    ("user", "There was pottery glaze in blue."),
    ("assistant", "There was pottery clay in red."),
]


@pytest.fixture
def unnamed_chat(chat: Chat, say: Say) -> Chat:
    """Both roles address each other; no word is rare."""
    for role, text in LINES:
        say(text, role=role)
    archive.index_branch(reload_first_branch(chat))
    return chat


def list_seqs_above_floor(chat: Chat, question: str, at: datetime) -> set[int]:
    found = recall_excerpts(
        chat.owner_id, question, scope=Scope("chat", chat.pk), limit=20, at=at
    ).excerpts
    return {excerpt.seq for excerpt in found if len(excerpt.why) > 1}


@pytest.mark.parametrize(
    ("question", "seq", "other"),
    [
        ("Which pottery did Nadia choose?", 8, 7),
        ("which pottery did nadia choose?", 8, 7),
        ("Nadia's pottery?", 8, 7),
        ("Which pottery did Tom choose?", 7, 8),
    ],
)
def test_a_name_stands_for_the_side_that_is_addressed_by_it(
    question: str, seq: int, other: int, unnamed_chat: Chat, now: datetime
) -> None:
    found = list_seqs_above_floor(unnamed_chat, question, now)
    assert seq in found
    assert other not in found


def test_the_tool_ranks_the_named_side_first(unnamed_chat: Chat, cover: Cover) -> None:
    cover(8)
    rows = search.search_archive(
        reload_first_branch(unnamed_chat), question="Which pottery did Tom choose?", most=10
    ).rows
    seqs = [row.seq for row in rows]
    assert seqs.index(7) < seqs.index(8)


def test_many_questions_about_a_person_change_nothing(chat: Chat, say: Say, now: datetime) -> None:
    # Rare words in each question keep the last two lines comparable.
    for role, text in LINES[:-2] * 4:
        say(text, role=role)
    for number in range(45):
        say(f"What did Nadia buy on day {number}?")
    say("There was pottery glaze in blue.")
    say("There was pottery clay in red.", role="assistant")
    archive.index_branch(reload_first_branch(chat))
    last = 4 * len(LINES[:-2]) + 45 + 2
    found = list_seqs_above_floor(chat, "Which pottery did Nadia choose?", now)
    assert last in found
    assert last - 1 not in found


@pytest.mark.parametrize(
    "texts",
    [
        # A third person whom both sides mention, a place, and one address only.
        ["I met Nadia.", "Nadia is nice, you know."],
        ["We drove to Nadia, Texas, and you stayed.", "You know Nadia, Texas?"],
        ["Hey Nadia! How are you?", "Fine, and you?"],
        # Both roles address a third person.
        ["Nadia, can you come?", "Nadia, can you hear us?", "Nadia, are you there?", "Nadia?"],
    ],
)
def test_other_mentions_name_no_side(texts: list[str], chat: Chat, say: Say, now: datetime) -> None:
    for at, text in enumerate(texts):
        say(text, role=("user", "assistant")[at % 2])
    say("There was pottery.", role="assistant")
    archive.index_branch(reload_first_branch(chat))
    assert len(texts) + 1 not in list_seqs_above_floor(chat, "Which pottery did Nadia choose?", now)


def test_a_message_with_a_speaker_keeps_its_name(chat: Chat, say: Say, now: datetime) -> None:
    for role, text in LINES[:-1]:
        say(text, role=role)
    ann = {"roleId": "ann", "roleName": "Ann", "type": "ai"}
    say("There was pottery clay in red.", role="assistant", speaker=ann)
    archive.index_branch(reload_first_branch(chat))
    assert 8 not in list_seqs_above_floor(chat, "Which pottery did Nadia choose?", now)


def test_an_erased_address_names_nobody(unnamed_chat: Chat, alice: User, now: datetime) -> None:
    for message in Branch.objects.get(chat=unnamed_chat).messages.filter(seq__in=[1, 3, 5]):
        erase_message(user=alice, message=message, now=now)
    assert not list_seqs_above_floor(unnamed_chat, "Which pottery did Nadia choose?", now)
