"""Content that is erased after a prompt was composed, and before its receipt is stored."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions import erasure, lifecycle, memory
from chats.memory.preferences import memory_settings
from chats.models import Chat, Message, Preference, PromptText, Receipt, Turn
from chats.turns import call_receipts
from chats.turns.start import start_turn
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

SECRET = "Zanzibar"


@pytest.mark.parametrize("kind", ["message", "chat", "preference"])
def test_nothing_of_it_is_sent_or_stored(
    kind: str,
    alice: User,
    chat: Chat,
    now: datetime,
    work: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind != "preference":
        values = {"recent_by_user": 20}
        policy = create_policy(slug="p", name="P", values=values, actor="system", now=now)
        assign_policy(policy=policy, level="instance", actor="system", now=now)
    memory_settings.set_consent(owner_id=alice.pk, agrees=kind == "preference", now=now)
    elsewhere = lifecycle.create_chat(owner=alice, now=now)
    said = start_turn(
        user=alice, chat=elsewhere, text=f"Remember that I like {SECRET}.", now=now
    ).turn
    work(said)
    later = now + timedelta(days=31)
    create = call_receipts.create_receipt
    composed: list[str] = []

    def erase_and_create(**more: Any) -> Any:
        composed.append(str(more["prompt"].request.messages))
        if len(composed) == 1:
            if kind == "preference":
                row = Preference.objects.get()
                memory.delete_saved_preference(owner=alice, preference_id=row.pk, now=later)
            elif kind == "chat":
                erasure.erase_chat(user=alice, chat=elsewhere, now=later)
            else:
                message = Message.objects.get(triggered=said)
                erasure.erase_message(user=alice, message=message, now=later, with_quotes=True)
        return create(**more)

    monkeypatch.setattr(call_receipts, "create_receipt", erase_and_create)
    place = lifecycle.create_chat(owner=alice, now=later)
    work(start_turn(user=alice, chat=place, text="And here?", now=later).turn)
    assert SECRET in composed[0]
    assert SECRET not in composed[-1]
    assert Turn.objects.get(branch__chat=place).status == Turn.Status.COMPLETED
    assert Receipt.objects.filter(turn__branch__chat=place).count() == 1
    assert not PromptText.objects.filter(text__contains=SECRET).exists()
