"""A user's newest messages over REST: own messages only, in order, limited by the policy."""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions.branching import branch_from_message
from chats.models import Chat, Message
from chats.record.recent import list_recent_messages
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code

Say = Callable[..., None]


@pytest.fixture
def say(now: datetime) -> Say:
    """Store messages in a chat, one per minute, alternating between user and reply."""

    def store(chat: Chat, *texts: str, minute: int, **marks: Any) -> None:
        branch = chat.active_branch
        assert branch is not None
        for number, text in enumerate(texts):
            branch.last_seq += 1
            chat.accepted_count += 1
            is_user = branch.last_seq % 2 == 1
            chat.updated_at = now + timedelta(minutes=minute + number)
            Message.objects.create(
                branch=branch,
                seq=branch.last_seq,
                accepted=chat.accepted_count,
                role="user" if is_user else "assistant",
                finish="" if is_user else "stop",
                parts=[{"type": "text", "text": text}],
                created_at=chat.updated_at,
                **marks,
            )
        branch.save()
        chat.save()

    return store


@pytest.fixture
def chats(of_alice: Program) -> list[Chat]:
    """Three empty chats of Alice."""
    ids = [of_alice.post("chats", {}).json()["id"] for _ in range(3)]
    return [Chat.objects.select_related("active_branch").get(pk=pk) for pk in ids]


def texts(answer: Any) -> list[str]:
    """Return the texts of a response's messages, in order."""
    assert answer.status_code == 200, answer.content
    return [row["text"] for row in answer.json()["data"]]


@pytest.mark.requirement("S1.1", by="integrator")
def test_the_last_messages_come_from_all_chats_in_the_order_of_time(
    of_alice: Program, chats: list[Chat], say: Say
) -> None:
    first, second, _ = chats
    say(first, "a1", "a2", minute=0)
    say(second, "b1", "b2", minute=10)
    say(first, "a3", minute=20)
    answer = of_alice.get("messages/recent")
    assert texts(answer) == ["a1", "a2", "b1", "b2", "a3"]
    rows = answer.json()["data"]
    assert [row["role"] for row in rows] == ["user", "assistant", "user", "assistant", "user"]
    assert [row["chat"] for row in rows] == [
        str(chat.pk) for chat in (first, first, second, second, first)
    ]
    assert answer.json()["window"] == 12
    assert texts(of_alice.get("messages/recent", limit=3)) == ["b1", "b2", "a3"]
    assert texts(of_alice.get("messages/recent", chat=str(second.pk))) == ["b1", "b2"]


@pytest.mark.requirement("S1.1", by="integrator")
def test_as_many_as_the_policys_window_and_equal_times_by_id(
    of_alice: Program, chats: list[Chat], say: Say, now: datetime
) -> None:
    for chat in chats:
        say(chat, *(f"{number}" for number in range(6)), minute=0)
    everything = Message.objects.all()
    everything.update(created_at=now)
    values = {"strategy": "simple", "window_size": 5}
    policy = create_policy(slug="short", name="Short", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    ids = sorted(everything.values_list("pk", flat=True))
    for asked in ({}, {"limit": 100}):
        answer = of_alice.get("messages/recent", **asked)
        assert [uuid.UUID(row["id"]) for row in answer.json()["data"]] == ids[-5:]
        assert answer.json()["window"] == 5
    own = create_policy(
        slug="one", name="One", values={**values, "window_size": 1}, actor="system", now=now
    )
    assign_policy(policy=own, level="chat", chat_id=chats[0].pk, actor="system", now=now)
    assert len(texts(of_alice.get("messages/recent", chat=str(chats[0].pk)))) == 1


def test_what_is_nobodys_business_is_not_there(
    of_alice: Program, of_charlie: Program, alice: User, chats: list[Chat], say: Say, now: datetime
) -> None:
    first, temporary, deleted = chats
    say(first, "kept", "reply", minute=0)
    say(first, "left out", minute=2, excluded=True)
    say(first, "gone", minute=3, erased_at=now)
    say(temporary, "for now", minute=5)
    say(deleted, "thrown away", minute=6)
    Chat.objects.filter(pk=temporary.pk).update(temporary=True)
    assert of_alice.call("DELETE", f"chats/{deleted.pk}").status_code in {200, 204}
    assert texts(of_alice.get("messages/recent")) == ["kept", "reply"]
    assert texts(of_charlie.get("messages/recent")) == []
    assert read_status_and_code(of_charlie.get("messages/recent", chat=str(first.pk))) == (
        404,
        "not_found",
    )
    assert read_status_and_code(of_alice.get("messages/recent", chat=str(deleted.pk))) == (
        404,
        "not_found",
    )
    branch_from_message(user=alice, message=Message.objects.get(parts__0__text="kept"), now=now)
    assert texts(of_alice.get("messages/recent")) == ["kept"]


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": "x"}, {"chat": "x"}, {"owner": "1"}])
def test_a_bad_question_is_refused(of_alice: Program, query: dict[str, Any]) -> None:
    assert of_alice.get("messages/recent", **query).status_code == 400


def test_the_cost_follows_what_is_asked_for(
    of_alice: Program,
    alice: User,
    chats: list[Chat],
    say: Say,
    django_assert_max_num_queries: Any,
) -> None:
    for chat in chats:
        say(chat, *("word",) * 10, minute=0)
    for minute in range(60):
        pk = of_alice.post("chats", {}).json()["id"]
        say(Chat.objects.select_related("active_branch").get(pk=pk), "a", "b", minute=100 + minute)
    assert list_recent_messages(owner=alice, most=0) == []
    with django_assert_max_num_queries(30):
        found = list_recent_messages(owner=alice, most=12)
    assert len(found) == 12
    assert found == sorted(found, key=lambda message: (message.created_at, message.pk))
