"""The originals under a summary stay readable."""

from collections.abc import Callable
from datetime import datetime

import pytest
from django.test import Client

from chats.models import Chat, Compaction, Message
from tests.support.chat_messages import add_messages
from tests.support.chat_pages import HTMX, get_chat_url


@pytest.mark.requirement("S4.5")
def test_originals_come_page_by_page(
    page: Client, chat: Chat, summary: Callable[..., Compaction], now: datetime
) -> None:
    add_messages(chat, count=60, now=now)
    row = summary(45)
    address = get_chat_url(chat, f"compactions/{row.pk}/originals")

    found = []
    for number, left in ((1, 25), (2, 5), (3, 0)):
        html = page.get(address, {"page": str(number)}, headers=HTMX).content.decode()
        found.append(html.count('class="under__msg"'))
        assert (f"Show {left} more" in html) == bool(left)
        assert "message 46<" not in html

    assert found == [20, 20, 5]


def test_originals_are_a_page_of_their_own_without_htmx(
    page: Client, chat: Chat, summary: Callable[..., Compaction], now: datetime
) -> None:
    add_messages(chat, count=4, now=now)
    row = summary(2)

    html = page.get(get_chat_url(chat, f"compactions/{row.pk}/originals")).content.decode()

    assert "Originals of messages 1 to 2" in html
    assert "message 2" in html
    assert "message 3" not in html


def test_a_message_that_is_no_source_says_why(
    page: Client, chat: Chat, summary: Callable[..., Compaction], now: datetime
) -> None:
    add_messages(chat, count=4, now=now)
    Message.objects.filter(seq=1).update(pinned_at=now)
    Message.objects.filter(seq=2).update(excluded=True)
    row = summary(4, exceptions=[1, 2, 3])

    html = page.get(
        get_chat_url(chat, f"compactions/{row.pk}/originals"), headers=HTMX
    ).content.decode()

    assert html.count('data-sent="pinned"') == 1
    assert html.count('data-reason="excluded"') == 1
    assert html.count('data-sent="full"') == 1
