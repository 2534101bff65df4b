"""Search in original messages over REST: by words and speaker, for the owner only."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.utils import timezone

from chats.memory.search import archive
from chats.models import Branch, Chat, Compaction
from contextpolicy.models import EffectivePolicy
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code
from tests.support.team_endpoints import ANN, PLANNER, TeamEndpoints


@pytest.fixture
def find(team: TeamEndpoints, chat: Chat) -> Callable[..., Any]:
    """Add messages of two members outside the window, and return a search function."""
    team.add("The heron stood at the lake", ANN)
    team.add("A heron is a bird", PLANNER)
    team.add("Another heron", ANN)
    branch = Branch.objects.get(chat=chat)
    policy = EffectivePolicy.objects.create(digest="d" * 64, values={}, sources={})
    branch.active_compaction = Compaction.objects.create(
        branch=branch,
        kind="window",
        status="published",
        from_seq=1,
        to_seq=2,
        trigger="window",
        reason="cap",
        effective_policy=policy,
        created_at=timezone.now(),
        published_at=timezone.now(),
    )
    branch.save()

    def finding(**query: object) -> Any:
        return team.program.get(f"chats/{chat.pk}/archive", **query)

    return finding


@pytest.mark.requirement("S3.12", by="integrator")
def test_originals_are_found_by_words_and_speaker(find: Callable[..., Any], chat: Chat) -> None:
    assert find(q="heron").json() == {"data": [], "missing": 2, "to_seq": 2}
    archive.index_branch(Branch.objects.select_related("active_compaction").get(chat=chat))
    everybody = find(q="herons").json()
    assert {row["seq"] for row in everybody["data"]} == {1, 2}
    assert (everybody["missing"], everybody["to_seq"]) == (0, 2)
    (row,) = find(q="heron", speaker="PLAN-NER").json()["data"]
    assert (row["text"], row["speaker"]) == ("A heron is a bird", PLANNER)
    assert find(q="heron", speaker="alice").json()["data"] == []
    assert len(find(q="heron", limit=1).json()["data"]) == 1


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ({}, (400, "missing_field")),
        ({"q": "x" * 501}, (422, "question_too_long")),
        ({"q": "x", "limit": 0}, (400, "invalid_value")),
        ({"q": "x", "who": "ann"}, (400, "unknown_field")),
    ],
)
def test_a_bad_question_is_refused(
    find: Callable[..., Any], query: dict[str, object], refusal: tuple[int, str]
) -> None:
    assert read_status_and_code(find(**query)) == refusal


def test_a_policy_closes_the_archive(find: Callable[..., Any], chat: Chat) -> None:
    now = timezone.now()
    policy = create_policy(
        slug="closed", name="Closed", values={"archive": False}, actor="system", now=now
    )
    assign_policy(policy=policy, level="chat", chat_id=chat.pk, actor="system", now=now)
    assert read_status_and_code(find(q="heron")) == (403, "archive_closed")


def test_nobody_else_finds_anything(
    find: Callable[..., Any], of_charlie: Program, client: Client, chat: Chat
) -> None:
    archive.index_branch(Branch.objects.select_related("active_compaction").get(chat=chat))
    address = f"chats/{chat.pk}/archive?{urlencode({'q': 'heron'})}"
    assert read_status_and_code(of_charlie.get(address)) == (404, "not_found")
    assert client.get(f"/api/v1/{address}").status_code == 401
