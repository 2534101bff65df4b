"""Quotas in the gateway: 402 for chats, pass-through requests and embeddings."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Chat, PassedOn, QuotaUsage, Turn
from chats.providers.base import Finished, TextDelta
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.gateway_clients import USAGE, GatewayClient, user
from tests.support.gateway_passthrough import POLICY_OFF, ScriptModel, leave_stream

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quota(alice: User, now: datetime) -> None:
    """A quota of 40 tokens per month, and pass-through on request."""
    policy = create_policy(
        slug="q",
        name="Q",
        values={"tokens_per_month": 40, "unmanaged": "asked"},
        actor="system",
        now=now,
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)


def use_up(owner: User) -> None:
    """Use up the quota of a user."""
    QuotaUsage.objects.create(owner=owner, day=timezone.now().astimezone(UTC).date(), tokens=40)


def test_requests_count_and_the_next_one_is_refused(program: GatewayClient) -> None:
    said = [user("Hi")]
    for tokens in (29, 58):
        assert program.ask(said, TextDelta("Yes"), USAGE, Finished("stop")).status == 200
        assert QuotaUsage.objects.get().tokens == tokens
    refused = program.ask(said)
    assert (refused.status, refused.json["error"]["code"]) == (402, "quota_exceeded")
    assert "40 tokens per month" in refused.json["error"]["message"]
    assert Turn.objects.count() == 2


def test_a_quota_that_is_used_up_while_the_request_waits(
    program: GatewayClient, alice: User
) -> None:
    response = program.open({"model": "demo", "messages": [user("Hi")]})
    use_up(alice)
    program.work(response["X-Context-Report-Id"])
    refused = program.close(response)
    assert (refused.status, refused.json["error"]["code"]) == (402, "quota_exceeded")
    assert program.requests == []


def test_pass_through_requests_count_and_are_refused(
    program: GatewayClient, alice: User, model: ScriptModel
) -> None:
    model()
    body = {"model": "demo", "messages": [user("Hi")]}
    answer = program.close(program.open(body, **POLICY_OFF))
    assert answer.status == 200
    assert QuotaUsage.objects.get().tokens == 29
    use_up_rest()
    refused = program.close(program.open(body, **POLICY_OFF))
    assert (refused.status, refused.json["error"]["code"]) == (402, "quota_exceeded")
    assert (PassedOn.objects.count(), Chat.objects.count()) == (1, 0)


def test_a_pass_through_reply_counts_if_its_client_leaves(
    program: GatewayClient, model: ScriptModel
) -> None:
    async def think(_worker: Any) -> None:
        await asyncio.sleep(60)

    model(TextDelta("one two three"), think, Finished("stop"))
    body = {"model": "demo", "messages": [user("Hi")], "stream": True}
    response = program.open(body, **POLICY_OFF)
    leave_stream(response, after=b"one")
    row = PassedOn.objects.get()
    assert row.outcome == "stopped"
    assert row.prompt_tokens
    assert QuotaUsage.objects.get().tokens > row.prompt_tokens


def use_up_rest() -> None:
    """Use up the rest of the only quota."""
    QuotaUsage.objects.update(tokens=40)


def test_another_user_has_their_own_quota(program: GatewayClient, bob: User) -> None:
    use_up(bob)
    assert program.ask([user("Hi")]).status == 200
