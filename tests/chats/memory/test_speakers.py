"""Archive search by speaker, on the database that runs the tests."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chats.memory.search import archive, finding, search, speakers
from chats.models import Branch, Chat, Message
from tests.support.messages_without_turns import Cover, Say, reload_first_branch

PLANNER = {"roleId": "planner", "roleName": "Trip Planner", "type": "ai"}
CRITIC = {"roleId": "critic", "roleName": "Critic", "type": "ai"}
ANN = {"roleId": "ann", "roleName": "Ann", "type": "human"}


def found(chat: Chat, question: str, speaker: str, *, most: int = 10) -> list[int]:
    """Update the index, then return the sequence numbers that a search finds, in order."""
    archive.index_branch(reload_first_branch(chat))
    rows = search.search_archive(
        reload_first_branch(chat), question=question, most=most, speaker=speaker
    ).rows
    return sorted(row.seq or 0 for row in rows)


@pytest.fixture
def talked(chat: Chat, say: Say, cover: Cover) -> Chat:
    """Four speakers, including the owner, mention herons. All messages are archived."""
    say("The heron stood at the lake")
    say("A heron is a bird", role="assistant", speaker=PLANNER)
    say("That heron was an egret", role="assistant", speaker=CRITIC)
    say("I saw the heron too", speaker=ANN)
    say("No heron here", role="assistant")
    say("Another heron", role="assistant", speaker={**PLANNER, "roleName": "Planner"})
    cover(6)
    return chat


@pytest.mark.parametrize(
    ("speaker", "seqs"),
    [
        ("", [1, 2, 3, 4, 5, 6]),
        ("planner", [2, 6]),
        ("Trip Planner", [2, 6]),
        ("trip-planner", [2, 6]),
        ("TRIP_PLANNER", [2, 6]),
        ("PLANNER", [2, 6]),
        ("critic", [3]),
        ("Ann", [4]),
        ("alice", [1]),
        ("A Lice", [1]),
        ("user", [1]),
        ("assistant", [5]),
        ("nobody", []),
        ("%s' OR 1=1 --", []),
        ("-", []),
        ("x" * 10_000, []),
    ],
)
@pytest.mark.requirement("S3.12")
def test_a_search_finds_by_speaker(talked: Chat, speaker: str, seqs: list[int]) -> None:
    assert found(talked, "herons", speaker) == seqs


def test_an_owner_who_speaks_in_a_role_of_that_name_is_both(
    chat: Chat, say: Say, cover: Cover, alice: User
) -> None:
    say("My heron")
    say("The role's heron", speaker={"roleId": "a", "roleName": alice.username, "type": "human"})
    cover(2)
    assert found(chat, "heron", "alice") == [1, 2]


def test_the_filter_comes_before_the_first_hits_are_chosen(
    chat: Chat, say: Say, cover: Cover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "MOST_COMPARED", 5)
    monkeypatch.setattr(finding, "MOST_CHOSEN", 5)
    say("Ann was the first to see the heron and the ibis", speaker=ANN)
    for number in range(30):
        say(f"heron {number}", speaker=PLANNER)
    say("A rare ibis", speaker=PLANNER)
    cover(32)
    assert found(chat, "heron", "ann") == [1]
    assert found(chat, "heron", "ann", most=1) == [1]
    # Only the planner uses the rare word. Ann's message still matches the common word.
    Message.objects.filter(seq=1).update(parts=[{"type": "text", "text": "heron"}])
    assert found(chat, "ibis heron", "ann") == [1]


@pytest.mark.parametrize("common", [1, 1_000])
def test_every_way_through_the_index_knows_the_filter(
    chat: Chat, say: Say, cover: Cover, monkeypatch: pytest.MonkeyPatch, common: int
) -> None:
    # PostgreSQL scans the texts for a common word, and uses the index for other words.
    monkeypatch.setattr("chats.memory.search.fulltext.COMMON", common)
    monkeypatch.setattr(finding, "MOST_CHOSEN", 4)
    for number in range(40):
        say("a heron" if number % 2 else "a lake", speaker=ANN if number % 8 == 1 else PLANNER)
    cover(40)
    assert set(found(chat, "heron", "ann")) <= {2, 10, 18, 26, 34}
    assert 34 in found(chat, "heron", "ann")


def test_neighbours_of_another_are_left_out(chat: Chat, say: Say, cover: Cover) -> None:
    say("Where did we see the heron?", speaker=ANN)
    say("At the lake", speaker=PLANNER)
    cover(2)
    assert found(chat, "heron", "") == [1, 2]
    assert found(chat, "heron", "ann") == [1]


def test_who_was_silent_for_long_is_known_by_name(
    talked: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speakers, "LOOKED_AT", 1)
    assert [
        each.role_id for each in speakers.list_known_speakers(reload_first_branch(talked), to=6)
    ] == ["planner"]
    assert found(talked, "heron", "c r i t i c") == [3]
    with CaptureQueriesContext(connection) as heard:
        speakers.build_speaker_filter(reload_first_branch(talked), speaker="user", to=6)
    assert len(heard) <= 5


def test_the_speakers_of_a_chat(talked: Chat, chat: Chat) -> None:
    names = [
        (each.name, each.role_id)
        for each in speakers.list_known_speakers(reload_first_branch(talked), to=6)
    ]
    assert names == [
        ("Ann", "ann"),
        ("Critic", "critic"),
        ("Planner", "planner"),
        ("Trip Planner", "planner"),
    ]
    Message.objects.update(speaker=None)
    assert speakers.list_known_speakers(reload_first_branch(chat), to=6) == []


def test_a_branch_knows_who_spoke_on_its_path(
    chat: Chat, say: Say, cover: Callable[..., Any], now: Any
) -> None:
    say("first heron", speaker=ANN)
    say("second heron", speaker=CRITIC)
    parent = reload_first_branch(chat)
    child = Branch.objects.create(chat=chat, parent=parent, fork_seq=1, last_seq=1, created_at=now)
    say("third heron", branch=child, speaker=PLANNER)
    cover(2)
    cover(2, branch=child)
    child.refresh_from_db()
    known = {each.role_id for each in speakers.list_known_speakers(child, to=2)}
    assert known == {"ann", "planner"}
    archive.index_branch(child)
    rows = search.search_archive(child, question="heron", most=9, speaker="critic").rows
    assert list(rows) == []
