"""What opening a chat costs: as many statements for a long chat as for a short one, and few.

Of the messages that the next prompt would send, the first two hundred take one statement, and
four times as many take one more.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chats.models import Chat, Compaction, Message, Turn
from tests.chats.web.test_chat_page import fill, url

MOST = 17


def short(chat: Chat, summary: Callable[..., Compaction], now: datetime) -> None:
    """Two turns and nothing else."""


def long(chat: Chat, summary: Callable[..., Compaction], now: datetime) -> None:
    """Six hundred messages."""
    fill(chat, count=600, now=now)


def summed_up(chat: Chat, summary: Callable[..., Compaction], now: datetime) -> Compaction:
    """Create an active summary that covers most of them."""
    long(chat, summary, now)
    return summary(500)


def left_out(chat: Chat, summary: Callable[..., Compaction], now: datetime) -> None:
    """A window on top of the summary."""
    base = summed_up(chat, summary, now)
    summary(550, kind="window", text="", reason="tokens", base=base, from_seq=501)


def pinned(chat: Chat, summary: Callable[..., Compaction], now: datetime) -> None:
    """Pinned messages under the summary, behind the window and in the history."""
    left_out(chat, summary, now)
    Message.objects.filter(seq__in=[10, 520, 590]).update(pinned_at=now)


@pytest.mark.parametrize("state", [short, long, summed_up, left_out, pinned])
def test_a_chat_opens_with_few_statements(
    state: Callable[..., Any],
    page: Client,
    chat: Chat,
    talk: Callable[..., Turn],
    summary: Callable[..., Compaction],
    now: datetime,
) -> None:
    talk("hello")
    talk("hello again")
    state(chat, summary, now)
    # A text that no prompt of the chat had yet is looked up once more.
    chat.refresh_from_db()
    talk("and again")
    assert page.get(url(chat)).status_code == 200
    with CaptureQueriesContext(connection) as heard:
        page.get(url(chat))
    assert len(heard) <= MOST, "\n".join(query["sql"][:150] for query in heard)
