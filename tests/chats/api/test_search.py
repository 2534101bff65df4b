"""Search in a user's chats over REST: the same results as on the page."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.memory.search import archive
from chats.models import Branch, Chat, Folder, Message
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code


@pytest.fixture
def herons(chat: Chat, now: datetime) -> Chat:
    """Two indexed messages of Alice."""
    branch = Branch.objects.get(chat=chat)
    for seq, (role, text) in enumerate([("user", "The heron"), ("assistant", "A bird")], start=1):
        parts = [{"type": "text", "text": text}]
        Message.objects.create(
            branch=branch, seq=seq, accepted=seq, role=role, parts=parts, created_at=now
        )
    Branch.objects.filter(pk=branch.pk).update(last_seq=2)
    Chat.objects.filter(pk=chat.pk).update(title="Herons")
    archive.index_branch(Branch.objects.select_related("chat").get(pk=branch.pk))
    return chat


@pytest.mark.requirement("S4.7", by="integrator")
def test_titles_and_messages_are_found(of_alice: Program, herons: Chat) -> None:
    found = of_alice.get("search", q="heron").json()
    assert [each["title"] for each in found["titles"]] == ["Herons"]
    (hit, *_) = found["data"]
    assert (hit["chat"], hit["seq"], hit["excerpt"]) == (str(herons.pk), 1, "The heron")
    assert [hit["excerpt"][a:b] for a, b in hit["marks"]] == ["heron"]
    assert hit["why"] == ["heron"]
    assert (found["has_more"], found["ignored"], found["indexed_share"]) == (False, [], 1.0)


@pytest.mark.memory_case(19)
def test_charlie_finds_nothing_of_alice(
    of_alice: Program, of_charlie: Program, alice: User, herons: Chat
) -> None:
    found = of_charlie.get("search", q="heron").json()
    assert (found["titles"], found["data"]) == ([], [])
    folder = Folder.objects.create(owner=alice, name="Birds")
    assert of_charlie.get("search", q="heron", chat=herons.pk).status_code == 404
    assert of_charlie.get("search", q="heron", folder=folder.pk).status_code == 404
    assert of_alice.get("search", q="heron", folder=folder.pk).json()["data"] == []


def test_the_filters(of_alice: Program, herons: Chat, now: datetime) -> None:
    roles = of_alice.get("search", q="heron bird", role="assistant").json()["data"]
    assert [hit["role"] for hit in roles] == ["assistant"]
    assert of_alice.get("search", q="heron", before="2020-01-01T00:00:00Z").json()["data"] == []
    assert of_alice.get("search", q="heron", after="2020-01-01T00:00:00Z").json()["data"]
    assert of_alice.get("search", q="heron", chat=herons.pk).json()["data"]
    assert of_alice.get("search", q="heron", page=2).json()["data"] == []


@pytest.mark.memory_case(33)
def test_bad_questions_are_refused_or_find_nothing(of_alice: Program, herons: Chat) -> None:
    assert read_status_and_code(of_alice.get("search", q="x" * 401)) == (422, "question_too_long")
    assert of_alice.get("search").status_code == 400
    assert of_alice.get("search", q="a", role="system").status_code == 400
    for question in ("", '"x" OR (y', "*", "\x00"):
        assert of_alice.get("search", q=question).json()["data"] == []
