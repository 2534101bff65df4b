"""Fixtures: other chats with indexed messages, embedding models, and policies of a chat."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.compaction import question_embedding
from chats.ground import breakers
from chats.memory.search import archive, nearest
from chats.models import Branch, Chat, ProviderAccount, Turn
from chats.providers import embedders
from chats.providers.base import Finished, ProviderRequest, TextDelta
from chats.turns import references as looking
from chats.turns.start import start_turn
from contextpolicy.models import ContextPolicy, ModelSpec, PolicyAssignment, PolicyVersion
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.fakes.embedding import FakeEmbedder
from tests.support.embedding_models import Embedders
from tests.support.model_requests import Ask, Work
from tests.support.retrieved_context import Elsewhere, Say


@pytest.fixture
def no_breaker(monkeypatch: pytest.MonkeyPatch) -> breakers.LatenessBreaker:
    """A separate circuit breaker for this test."""
    breaker = breakers.LatenessBreaker()
    monkeypatch.setattr(looking, "BREAKER", breaker)
    return breaker


@pytest.fixture
def govern_references(now: datetime) -> Callable[..., None]:
    """Assign an instance-wide policy with retrieved context."""

    def governing(**values: Any) -> None:
        policy = create_policy(
            slug="recalls",
            name="Recalls",
            values={"references": True, **values},
            actor="system",
            now=now,
        )
        assign_policy(policy=policy, level="instance", actor="system", now=now)

    return governing


@pytest.fixture
def say(alice: User, now: datetime, work: Callable[..., Any]) -> Say:
    """Send a message in a chat, process the reply and return the model request."""

    def saying(chat: Chat, text: str, answer: str = "Noted.", at: datetime = now) -> Any:
        turn = start_turn(user=alice, chat=chat, text=text, now=at).turn
        worker = work(turn, [TextDelta(answer), Finished("stop")])
        assert turn.status == Turn.Status.COMPLETED, turn.error_sentence
        chat.refresh_from_db()
        return worker.scripted.requests[0]

    return saying


@pytest.fixture
def elsewhere(alice: User, say: Say, new_chat: Callable[..., Chat]) -> Elsewhere:
    """Create another chat of Alice with indexed messages."""

    def speaking(*texts: str, **fields: Any) -> Chat:
        chat = new_chat(alice)
        Chat.objects.filter(pk=chat.pk).update(**fields)
        chat.refresh_from_db()
        for text in texts:
            say(chat, text)
        branch = Branch.objects.get(chat=chat)
        archive.index_branch(branch)
        return chat

    return speaking


@pytest.fixture
def new_chat(now: datetime) -> Callable[..., Chat]:
    """Create a chat of a user."""

    def making(owner: User) -> Chat:
        chat = Chat.objects.create(owner=owner, created_at=now, updated_at=now)
        chat.active_branch = Branch.objects.create(chat=chat, created_at=now)
        chat.save()
        return chat

    return making


@pytest.fixture
def fresh_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the state of earlier tests."""
    monkeypatch.setattr(nearest, "KEPT", nearest.Matrices())
    monkeypatch.setattr(question_embedding, "BREAKER", breakers.LatenessBreaker())
    monkeypatch.setattr(nearest, "FEWEST", 4)


@pytest.fixture
def models(demo_model: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> Embedders:
    """Two embedding models, each with a fake server, by name."""
    fakes = {"one": FakeEmbedder(), "two": FakeEmbedder(shift=2)}
    ProviderAccount.objects.create(slug="near", name="Near", base_url="http://127.0.0.1:9/v1")
    for name in fakes:
        ModelSpec.objects.create(
            slug=f"near-{name}", provider="near", name=name, embeds=True, enabled=False
        )
    monkeypatch.setattr(embedders, "build_embedder", lambda _account, model: fakes[model])
    return fakes


@pytest.fixture
def govern(chat: Chat, now: datetime) -> Callable[..., None]:
    """Assign these values to the chat, even if the policy form would refuse them."""

    def governing(**values: Any) -> None:
        policy, _ = ContextPolicy.objects.get_or_create(slug="test", defaults={"name": "Test"})
        policy.current = PolicyVersion.objects.create(
            policy=policy,
            number=policy.versions.count() + 1,
            values=values,
            locks=[],
            created_at=now,
        )
        policy.save()
        PolicyAssignment.objects.get_or_create(level="instance", defaults={"policy": policy})

    return governing


@pytest.fixture
def ask(alice: User, chat: Chat, now: datetime, work: Work) -> Ask:
    """Send a message in Alice's chat and return the request for the reply.

    `before` gives the model's answers to earlier calls of the turn.
    """

    def asking(text: str, answer: str = "An answer.", *before: str) -> ProviderRequest:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        worker = work(turn, *[[TextDelta(said), Finished("stop")] for said in (*before, answer)])
        assert turn.status == Turn.Status.COMPLETED, turn.error_sentence
        request: ProviderRequest = worker.scripted.requests[len(before)]
        return request

    return asking
