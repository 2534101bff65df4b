"""The policy page warns when prompts that leave messages out use little of their limit."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chats.counts import room_used
from chats.models import Chat, Receipt
from contextpolicy.models import ContextPolicy
from tests.support.chat_summaries import SENTENCE, Say, SetPolicy


def talk(chat: Chat, say: Say, *, turns: int) -> None:
    for _ in range(turns):
        say(chat, f"Question. {SENTENCE}", SENTENCE * 2)


@pytest.mark.parametrize(("compact_to", "warns"), [(0.1, True), (0.75, False)])
def test_the_page_warns_below_seventy_per_cent(
    compact_to: float,
    warns: bool,
    chat: Chat,
    say: Say,
    set_policy: SetPolicy,
    admin_client: Client,
) -> None:
    set_policy(
        strategy="sliding_window", token_budget=1_400, compact_to=compact_to, compact_at=0.8,
        references=False,
    )  # fmt: skip
    talk(chat, say, turns=20)
    policy = ContextPolicy.objects.get(slug="small")
    found = room_used.measure_room_used(policy)
    assert found.prompts >= room_used.FEWEST
    assert (found.share < 0.7) is warns
    address = reverse("admin:contextpolicy_contextpolicy_change", args=[policy.pk])
    page = admin_client.get(address).content.decode()
    assert ('id="room-warning"' in page) is warns
    assert found.warning in page
    # A new version has not sent any prompt yet.
    set_policy(strategy="sliding_window", token_budget=1_500)
    policy.refresh_from_db()
    assert room_used.measure_room_used(policy).prompts == 0


def test_prompts_that_hold_everything_do_not_count(
    alice: User, chat: Chat, say: Say, set_policy: SetPolicy
) -> None:
    set_policy(token_budget=16_000)
    talk(chat, say, turns=12)
    assert room_used.measure_room_used(ContextPolicy.objects.get(slug="small")).prompts == 0


def test_prompts_of_the_state_strategy_do_not_count(
    chat: Chat, say: Say, set_policy: SetPolicy
) -> None:
    """The state replaces the dialogue, so no advice would fill the prompts."""
    set_policy(strategy="simple", window_size=2, token_budget=8_000)
    talk(chat, say, turns=12)
    policy = ContextPolicy.objects.get(slug="small")
    assert room_used.measure_room_used(policy).warning
    row = Receipt.objects.latest("created_at").effective_policy
    # Values are cached by digest.
    row.digest, row.values = row.digest[::-1], {**row.values, "strategy": "entity_state"}
    row.save(force_insert=True)
    Receipt.objects.update(effective_policy=row)
    assert room_used.measure_room_used(policy).prompts == 0
