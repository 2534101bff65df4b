"""New keys for /v1 get a policy for coding agents that adapts to the model's window."""

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.gateway import choice
from chats.models import ApiKey, Chat, Message
from chats.people import keys
from chats.prompt import model_choice
from contextpolicy.engine.policy.budget import compute_prompt_limit
from contextpolicy.engine.policy.policy import get_strategy_defaults, parse_policy_values
from contextpolicy.models import ContextPolicy, ModelSpec
from contextpolicy.presets import CODING_AGENTS, replace_demo_policy, seed_policies
from tests.support.gateway_clients import (
    TOOLS,
    GatewayClient,
    MakeClient,
    get_client_key,
    system,
    user,
)

# The typical length of a coding agent's instructions.
INSTRUCTIONS = "You are a coding agent. Read files before you edit them. " * 1_500


@pytest.fixture
def agent(make: MakeClient, alice: User, now: datetime) -> GatewayClient:
    """A client with a new key and the shipped policies."""
    seed_policies(now=now)
    replace_demo_policy(actor="system", now=now)
    ModelSpec.objects.update(supports_tools=True, context_window=200_000)
    return make(alice)


def test_the_budget_follows_the_window_of_the_model() -> None:
    values = parse_policy_values(
        CODING_AGENTS.values, base=get_strategy_defaults("dynamic_summary")
    )
    assert compute_prompt_limit(values, model_window=200_000) == 184_000
    assert compute_prompt_limit(values, model_window=32_000) == 16_000
    assert not values.references


def test_a_new_key_takes_the_prompt_of_a_coding_agent(agent: GatewayClient) -> None:
    assert get_client_key(agent).policy == ContextPolicy.objects.get(slug="coding-agents")
    long = "def f():\n    return 1\n" * 4_000
    answer = agent.ask([system(INSTRUCTIONS), user(long)], tools=TOOLS)
    assert answer.status == 200, answer.body
    assert answer.turn.effective_policy is not None
    assert "Coding agents" in answer.turn.effective_policy.label
    assert agent.prompt[-1] == ("user", long)
    assert "Relevant reference" not in str(agent.prompt)


def test_limits_without_room_for_the_policy_of_a_key_apply_alone(
    make: MakeClient, alice: User, now: datetime
) -> None:
    """*Demo* applies to everyone until a real model is connected."""
    seed_policies(now=now)
    demo = make(alice)
    assert get_client_key(demo).policy is not None
    client = Client(headers={"Authorization": f"Bearer {demo.secret}"})
    assert "demo" in [each["id"] for each in client.get("/v1/models").json()["data"]]
    answer = demo.ask([user("Hi")])
    assert answer.status == 200, answer.body
    assert answer.turn.effective_policy is not None
    assert "Demo" in answer.turn.effective_policy.label
    chat = Chat(owner=alice, policy=get_client_key(demo).policy)
    with pytest.raises(model_choice.PolicyRefused):
        choice.choose_with_key_policy(chat, named=True)


def test_an_existing_key_keeps_the_policy_of_its_owner(agent: GatewayClient) -> None:
    ApiKey.objects.update(policy=None)
    answer = agent.ask([system(INSTRUCTIONS), user("Fix it")], tools=TOOLS)
    assert (answer.status, answer.json["error"]["code"]) == (400, "context_length_exceeded")
    assert Message.objects.filter(role="user").count() == 1


def test_a_policy_that_the_request_names_wins(agent: GatewayClient, alice: User) -> None:
    answer = agent.ask([user("Hi")], model="policy:long-chats")
    assert answer.turn.effective_policy is not None
    assert "Long chats" in answer.turn.effective_policy.label


@pytest.mark.parametrize("case", ["other scope", "retired"])
def test_other_keys_get_no_policy(db: None, alice: User, now: datetime, case: str) -> None:
    seed_policies(now=now)
    if case == "retired":
        ContextPolicy.objects.filter(slug="coding-agents").update(retired=True)
    scopes = ("gateway",) if case == "retired" else ("chats:read",)
    key, _ = keys.create_key(owner=alice, name="x", scopes=scopes, now=timezone.now())
    assert key.policy is None


def test_the_list_of_models_has_the_window_of_the_key(agent: GatewayClient) -> None:
    def window() -> Any:
        client = Client(headers={"Authorization": f"Bearer {agent.secret}"})
        return client.get("/v1/models/demo").json()["context_window"]

    assert window() == 184_000
    ModelSpec.objects.update(context_window=None)
    assert window() is None
    ApiKey.objects.update(policy=None)
    assert window() == 12_000


def test_the_page_names_the_policy_of_a_key(agent: GatewayClient, alice: User) -> None:
    client = Client()
    client.force_login(alice)
    assert "Coding agents" in client.get("/settings/keys/").content.decode()
