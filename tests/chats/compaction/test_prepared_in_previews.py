"""Meter, preview and marks show a summary that is ready as the next prompt will use it."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.compaction import maintain
from chats.models import Chat, Compaction, Receipt
from chats.prompt import meter, next_context
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.support.chat_summaries import Say, SetPolicy, reload_branch
from tests.support.context_preview import describe_outlook, describe_receipt

QUESTION = "And what about the invoice of 12 May?"


def prepare(chat: Chat, *, now: datetime) -> Compaction:
    """Write a summary in the background, which stays unpublished."""
    maintain.maintain_chat_context(chat_id=chat.pk, counter=ApproximateCounter(), now=now)
    return Compaction.objects.get(kind="summary", status=Compaction.Status.PREPARED)


def ask(chat: Chat, say: Say) -> Receipt:
    """Send the question and return the receipt of its first call."""
    return Receipt.objects.get(turn=say(chat, QUESTION), call=1)


def draft_meter(chat: Chat, alice: User, now: datetime) -> meter.Meter:
    chat.refresh_from_db()
    return meter.build_meter(chat=chat, now=now, draft=meter.Draft(user=alice, text=QUESTION))


@pytest.mark.parametrize(
    "values",
    [
        # The next prompt passes the mark for compactions.
        {},
        # The next prompt passes the number of turns.
        {"turn_threshold": 5, "token_budget": 6000},
        # Excerpts of the chat use free room.
        {"turn_threshold": 5, "references": True, "reference_share": 0.2},
    ],
    ids=["mark", "turns", "excerpts"],
)
def test_the_meter_is_the_receipt_of_the_next_turn(
    long_chat: Chat,
    alice: User,
    say: Say,
    set_policy: SetPolicy,
    now: datetime,
    values: dict[str, Any],
) -> None:
    row = prepare(long_chat, now=now)
    set_policy(**values)
    for _ in range(12):
        found = draft_meter(long_chat, alice, now)
        question = next_context.NextQuestion(QUESTION)
        context = next_context.compose_next_context(
            chat=long_chat, user=alice, question=question, now=now
        )
        receipt = ask(long_chat, say)
        assert describe_outlook(found.outlook) == describe_receipt(receipt)
        assert describe_outlook(context.outlook) == describe_receipt(receipt)
        assert found.used == round(receipt.prompt_tokens * receipt.budget["calibration"])
        row.refresh_from_db()
        if row.status == Compaction.Status.PUBLISHED:
            break
    assert row.status == Compaction.Status.PUBLISHED
    assert any(segment[0] == "summary" for segment in receipt.segments)


def test_the_page_and_rest_count_the_summary_that_is_ready(
    long_chat: Chat, alice: User, set_policy: SetPolicy, now: datetime, client: Client
) -> None:
    prepare(long_chat, now=now)
    set_policy(turn_threshold=5)
    client.force_login(alice)
    body = client.post(
        f"/api/v1/chats/{long_chat.pk}/context",
        {"question": QUESTION},
        content_type="application/json",
    ).json()
    assert [part for part in body["segments"] if part["origin"] == "summary"]
    assert reload_branch(long_chat).active_compaction is None


@pytest.mark.parametrize("cause", ["approval", "revision"])
def test_a_summary_that_is_not_published_is_not_counted(
    long_chat: Chat, alice: User, say: Say, set_policy: SetPolicy, now: datetime, cause: str
) -> None:
    row = prepare(long_chat, now=now)
    set_policy(turn_threshold=5)
    changed = {"needs_approval": True} if cause == "approval" else {"context_revision": 99}
    Compaction.objects.filter(pk=row.pk).update(**changed)
    found = draft_meter(long_chat, alice, now + timedelta(minutes=1))
    receipt = ask(long_chat, say)
    assert describe_outlook(found.outlook) == describe_receipt(receipt)
    assert not any(segment[0] == "summary" for segment in receipt.segments)
