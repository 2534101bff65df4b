"""The effects of a retention run on other chats, as docs/policies.md states them."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import lifecycle
from chats.memory.search import archive
from chats.models import Branch, Chat, Message, PromptText, SearchText, Turn, TurnReference
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.retention_runs import run_all

pytestmark = pytest.mark.django_db
SAID = "The grey heron of Lake Vogt wears the ring B-417 on its left leg."


def say(chat: Chat, text: str, work: Any, answer: str = "Noted.") -> Turn:
    """Send a message, let the model answer, and index the chat."""
    turn = start_turn(user=chat.owner, chat=chat, text=text, now=timezone.now()).turn
    work(turn, [TextDelta(answer), Finished("stop")])
    chat.refresh_from_db()
    archive.index_branch(Branch.objects.select_related("chat").get(chat=chat))
    return turn


def test_excerpts_go_and_quotes_of_other_messages_stay(
    alice: User, chat: Chat, demo_model: object, work: Any
) -> None:
    del demo_model
    values: dict[str, Any] = {"retention_days": 90, "references": True, "reference_floor": 1}
    values |= {"reference_share": 0, "reference_scope": "person"}
    policy = create_policy(
        slug="ninety", name="Ninety", values=values, actor="system", now=timezone.now()
    )
    assign_policy(policy=policy, level="instance", actor="system", now=timezone.now())
    say(chat, SAID, work)
    say(chat, "Thanks", work)
    other = lifecycle.create_chat(owner=alice, now=timezone.now())
    quoting = say(other, "Which ring does the heron of Lake Vogt wear?", work, f"You said: {SAID}")
    assert TurnReference.objects.filter(turn=quoting).exists()
    assert PromptText.objects.filter(text__contains=SAID).exists()
    said = Message.objects.get(branch__chat=chat, seq=1)
    Message.objects.filter(pk=said.pk).update(created_at=timezone.now() - timedelta(days=91))

    run_all()

    # The copies that the server made.
    assert not TurnReference.objects.filter(message=said).exists()
    assert not PromptText.objects.filter(text__contains=SAID).exists()
    assert not SearchText.objects.filter(message=said).exists()
    # A separate message, which expires later, and is searched until then.
    reply = Message.objects.get(turn=quoting, role="assistant")
    assert SAID in reply.text
    assert SearchText.objects.filter(message=reply).exists()
    assert AuditEvent.objects.get(type="message.erased").data["quoted_by"] == []
