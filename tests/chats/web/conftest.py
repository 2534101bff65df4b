"""Pages as Alice and Charlie see them, and chats with something in them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Chat, Compaction, Message, Turn
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from contextpolicy.models import EffectivePolicy

HTMX = {"HX-Request": "true"}


@pytest.fixture
def page(alice: User) -> Client:
    """Alice's browser."""
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def charlies_page(charlie: User) -> Client:
    """Charlie's browser."""
    client = Client()
    client.force_login(charlie)
    return client


@pytest.fixture
def say(alice: User, chat: Chat, now: datetime) -> Callable[[str], Turn]:
    """Send a message in Alice's chat; the reply is not begun."""
    return lambda text: start_turn(user=alice, chat=chat, text=text, now=now).turn


@pytest.fixture
def talk(say: Callable[[str], Turn], work: Callable[..., Any]) -> Callable[..., Turn]:
    """Send a message and let the model answer."""

    def talking(text: str, answer: str = "An answer.", *, finish: Any = "stop") -> Turn:
        turn = say(text)
        work(turn, [TextDelta(answer), Finished(finish)])
        return turn

    return talking


@pytest.fixture
def summary(chat: Chat, now: datetime) -> Callable[..., Compaction]:
    """Create an active summary (or a row with another `status`) for a range of the chat."""

    def summarise(to_seq: int, **fields: Any) -> Compaction:
        policy, _ = EffectivePolicy.objects.get_or_create(
            digest="d" * 64, defaults={"values": {}, "sources": {}}
        )
        fields = {
            "kind": "summary",
            "status": "published",
            "text": "- Eva has **ticket 48213**.",
            "published_at": now,
            "from_seq": 1,
            "source_count": to_seq,
            **fields,
        }
        assert chat.active_branch is not None
        row = Compaction.objects.create(
            branch=chat.active_branch,
            to_seq=to_seq,
            trigger="auto",
            effective_policy=policy,
            tokens_before=12_418,
            tokens_after=604,
            created_at=now,
            **fields,
        )
        if row.status == "published":
            chat.active_branch.refresh_from_db()
            chat.active_branch.active_compaction = row
            chat.active_branch.save()
        return row

    return summarise


@pytest.fixture
def newest(chat: Chat) -> Callable[[], Message]:
    """The newest message of the chat."""
    return lambda: Message.objects.filter(branch__chat=chat).order_by("accepted").reverse()[0]
