"""A message to a team needs a usable model of an agent that may answer it, not that of the chat."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chats.models import Agent, Chat, Message, ProviderAccount, Turn
from contextpolicy.models import ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.team_rounds import TeamPlay

Plays = Callable[..., TeamPlay]


@pytest.fixture
def page(alice: User) -> Client:
    """Alice's browser."""
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def own(db: None) -> ModelSpec:
    """A model of the agents, at the provider of the demo model."""
    return ModelSpec.objects.create(
        slug="own", provider="demo", name="own", context_window=128_000, enabled=True
    )


def is_sent(page: Client, chat: Chat, text: str = "Go.") -> bool:
    """Send a message on the page, and return whether it was accepted."""
    answer = page.post(reverse("chats:message-create", args=[chat.pk]), {"text": text})
    assert answer.status_code in {302, 409}
    return answer.status_code == 302


def disable(chat: Chat, model: ModelSpec, now: datetime) -> None:
    ModelSpec.objects.filter(pk=model.pk).update(enabled=False)


def delete(chat: Chat, model: ModelSpec, now: datetime) -> None:
    ModelSpec.objects.filter(pk=model.pk).delete()


def pause(chat: Chat, model: ModelSpec, now: datetime) -> None:
    account = ProviderAccount.objects.get(slug="demo")
    account.pk, account.slug, account.enabled = None, "off", False
    account.save(force_insert=True)
    ModelSpec.objects.filter(pk=model.pk).update(provider="off")


def forbid(chat: Chat, model: ModelSpec, now: datetime) -> None:
    policy = create_policy(
        slug="strict", name="S", values={"allowed_models": ["own"]}, actor="system", now=now
    )
    assign_policy(policy=policy, level="chat", chat_id=chat.pk, actor="system", now=now)


@pytest.mark.parametrize("lose", [disable, delete, pause, forbid])
def test_a_chat_whose_model_cannot_be_used_answers_with_the_agents_models(
    lose: Any, play: Plays, page: Client, demo_model: ModelSpec, own: ModelSpec, now: datetime
) -> None:
    game = play("Planner", "Critic")
    Agent.objects.update(model=own)
    Chat.objects.filter(pk=game.chat.pk).update(model=demo_model)
    lose(game.chat, demo_model, now)
    assert is_sent(page, game.chat)
    assert page.get(reverse("chats:chat", args=[game.chat.pk])).status_code == 200
    assert game.answer("One.", "Two.") == ["Planner", "Critic"]
    assert {*Turn.objects.values_list("model__slug", flat=True)} == {"own"}


def test_a_message_is_refused_if_no_agent_that_answers_can_use_its_model(
    play: Plays, page: Client, demo_model: ModelSpec, own: ModelSpec, now: datetime
) -> None:
    game = play("Planner", "Critic")
    Agent.objects.filter(name="Critic").update(model=own)
    disable(game.chat, own, now)
    # Critic cannot answer, and the message calls no other agent.
    assert not is_sent(page, game.chat, "@Critic go.")
    assert not Message.objects.exists()
    # Planner can.
    assert is_sent(page, game.chat)
    assert game.answer("One.") == ["Planner"]


def test_an_open_round_takes_messages_if_any_agent_can_answer(
    play: Plays, page: Client, demo_model: ModelSpec, own: ModelSpec, now: datetime
) -> None:
    game = play("Planner", "Critic", routing="person")
    Agent.objects.filter(name="Critic").update(model=own)
    game.ask("@Critic go.")
    disable(game.chat, demo_model, now)
    assert is_sent(page, game.chat, "In German.")
    assert game.answer("Eins.") == ["Critic"]
