"""A page that stays open learns that a summary took effect, and stops asking."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from chats.models import Chat, Compaction, Message, Turn
from chats.web.looks import DELAYS, HOPEFUL, next_look
from tests.chats.web.conftest import HTMX
from tests.chats.web.test_chat_page import url

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]
NOW = timezone.now()


def state(html: str) -> str:
    """What the page says that it was drawn from."""
    found = re.search(r'id="tail-seen" value="([\w.]+)"', html)
    assert found
    return found[1]


def preparing(**fields: Any) -> dict[str, Any]:
    """A summary that is being written."""
    lease = {"lease_token": "x", "lease_until": timezone.now() + timedelta(minutes=2)}
    return {"status": "preparing", "text": "", "published_at": None, **lease, **fields}


def test_a_page_that_is_up_to_date_gets_the_next_look_alone(
    page: Client, chat: Chat, talk: Talk
) -> None:
    talk("hello")
    seen = state(page.get(url(chat)).content.decode())

    response = page.get(url(chat, "look"), {"n": "0", "seen": seen}, headers=HTMX)

    html = response.content.decode()
    assert "HX-Reswap" not in response.headers
    assert html.strip().startswith('<span id="look"')
    assert f'{url(chat, "look")}?n=1" hx-trigger="load delay:{DELAYS[1]}s"' in html
    assert "tail" not in html


def test_the_last_look_asks_for_no_other(page: Client, chat: Chat, talk: Talk) -> None:
    talk("hello")
    seen = state(page.get(url(chat)).content.decode())

    response = page.get(url(chat, "look"), {"n": str(HOPEFUL - 1), "seen": seen}, headers=HTMX)

    assert response.content.strip() == b""


def test_a_summary_that_took_effect_brings_the_whole_thread(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("the first question")
    talk("the second question")
    seen = state(page.get(url(chat)).content.decode())
    summary(2)

    data = {"n": "1", "seen": seen, "from": "3"}
    response = page.get(url(chat, "look"), data, headers=HTMX)

    html = response.content.decode()
    assert response.headers["HX-Reswap"] == "none"
    assert 'id="messages" hx-swap-oob="true"' in html
    assert "2 messages summarised" in html
    assert "the second question" in html
    assert 'id="context-meter" hx-swap-oob' in html
    assert f'{url(chat, "look")}?n=2"' in html
    assert 'id="composer"' not in html


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"kind": "window", "text": "", "reason": "tokens"}, id="window"),
        pytest.param(preparing(), id="being written"),
        pytest.param({"status": "rejected", "reason": "empty", "published_at": None}, id="no use"),
    ],
)
def test_each_change_of_seams_is_news(
    page: Client, chat: Chat, talk: Talk, summary: Fold, change: dict[str, Any]
) -> None:
    talk("the first question")
    before = state(page.get(url(chat)).content.decode())
    summary(2, **change)

    assert state(page.get(url(chat)).content.decode()) != before


def test_a_message_sent_after_a_summary_took_effect_brings_the_seam_too(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("the first question")
    seen = state(page.get(url(chat)).content.decode())
    summary(2)

    data = {"text": "next", "from": "1", "seen": seen}
    response = page.post(url(chat, "messages"), data, headers=HTMX)

    html = response.content.decode()
    assert response.headers["HX-Reswap"] == "none"
    assert "2 messages summarised" in html
    assert "next</p>" in html
    assert Message.objects.filter(seq=None).count() == 1


def test_a_page_asks_while_a_summary_is_being_written(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("hello")
    Turn.objects.update(finished_at=timezone.now() - timedelta(hours=1))
    assert 'id="look"' not in page.get(url(chat)).content.decode()

    summary(2, **preparing())

    html = page.get(url(chat)).content.decode()
    assert 'id="look"' in html
    assert "Summarising</span>" not in html
    assert "Summarising 2 messages" in html


def test_a_page_with_a_running_reply_does_not_ask(page: Client, chat: Chat, say: Talk) -> None:
    say("hello")

    assert 'id="look"' not in page.get(url(chat)).content.decode()


def test_a_look_costs_little(
    page: Client, chat: Chat, talk: Talk, django_assert_max_num_queries: Any
) -> None:
    talk("hello")
    seen = state(page.get(url(chat)).content.decode())

    with django_assert_max_num_queries(8):
        page.get(url(chat, "look"), {"n": "0", "seen": seen}, headers=HTMX)


def test_looks_end_whatever_is_being_written() -> None:
    delays = []
    number = 0
    while found := next_look(number=number, turn=None, is_preparing=True, now=NOW):
        delays.append(found.delay)
        number += 1

    assert delays == sorted(delays)
    assert 120 < sum(delays) < 240
    assert next_look(number=0, turn=None, is_preparing=False, now=NOW) is None
