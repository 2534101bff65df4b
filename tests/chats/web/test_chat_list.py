"""The chat list in the sidebar: 50 at a time, always including the open chat."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from chats.actions.listing import LISTED
from chats.models import Chat
from tests.support.chat_lists import explain_list_query, find_next_page, list_chat_ids
from tests.support.chat_pages import HTMX, get_chat_url


@pytest.fixture
def many(alice: User, chat: Chat, now: datetime) -> list[Chat]:
    """Alice's chats, newest first: two of the oldest pinned; `chat` is the last of all."""
    rows = [
        Chat(
            owner=alice,
            title=f"Number {place}",
            pinned=place in {2 * LISTED, 2 * LISTED + 1},
            created_at=now,
            updated_at=now - timedelta(hours=place),
        )
        for place in range(2 * LISTED + 5)
    ]
    Chat.objects.bulk_create(rows)
    Chat.objects.filter(pk=chat.pk).update(updated_at=now - timedelta(days=90))
    return rows


def test_a_page_lists_fifty_pinned_ones_first(page: Client, many: list[Chat]) -> None:
    html = page.get("/chats/new").content.decode()
    pinned, rest = [c for c in many if c.pinned], [c for c in many if not c.pinned]
    assert list_chat_ids(html) == [str(c.pk) for c in [*pinned, *rest]][:LISTED]
    headings = re.findall(r'<h2 class="navgroup__title"[^>]*>([^<]+)<', html)
    assert headings[0] == "Pinned"
    assert len(headings) == len(set(headings)) > 2


def test_more_is_shown_in_place_until_every_chat_was_shown_once(
    page: Client, chat: Chat, many: list[Chat]
) -> None:
    html = page.get(get_chat_url(chat)).content.decode()
    shown = list_chat_ids(html)
    assert shown[0] == str(chat.pk)
    assert "Current chat</h2>" in html
    assert html.count('aria-current="page"') == 1
    while address := find_next_page(html):
        assert f'hx-get="{address.replace("&", "&amp;")}"' in html
        html = page.get(address, headers=HTMX).content.decode()
        assert "<html" not in html
        shown += list_chat_ids(html)
    assert len(shown) == len(set(shown)) == len(many) + 1
    assert set(shown) == {str(row.pk) for row in Chat.objects.all()}


def test_a_day_that_goes_on_has_one_heading(page: Client, many: list[Chat]) -> None:
    html = page.get("/chats/new").content.decode()
    last = re.findall(r'id="group-[^"]+">([^<]+)<', html)[-1]
    more = page.get(find_next_page(html), headers=HTMX).content.decode()
    assert f">{last}</h2>" not in more
    assert 'aria-label="More chats"' in more


def test_without_scripts_more_is_a_page_of_its_own(page: Client, many: list[Chat]) -> None:
    address = find_next_page(page.get("/chats/new").content.decode())
    html = page.get(address).content.decode()
    assert "Chats</h1>" in html
    assert len(list_chat_ids(html)) == LISTED
    assert find_next_page(html) != address


NO_PLACES = [
    "",
    "x",
    "1_2_3",
    "0_2026-01-01_x",
    f"0_0001-01-01T00:00+14:00_{'0' * 32}",
    "\x00",
    "9" * 999,
]


@pytest.mark.parametrize("after", NO_PLACES)
def test_a_place_that_is_none_is_the_beginning(page: Client, many: list[Chat], after: str) -> None:
    html = page.get("/chats/list", {"after": after, "current": after}).content.decode()
    assert str(many[0].pk) in list_chat_ids(html)


def test_charlie_sees_none_of_alices_chats(
    page: Client, charlies_page: Client, chat: Chat, many: list[Chat]
) -> None:
    address = find_next_page(page.get(get_chat_url(chat)).content.decode())
    assert list_chat_ids(charlies_page.get(address).content.decode()) == []
    assert list_chat_ids(charlies_page.get("/chats/list").content.decode()) == []


def test_a_page_of_the_list_is_read_in_the_order_of_an_index(
    page: Client, alice: User, now: datetime, many: list[Chat]
) -> None:
    if connection.vendor == "postgresql":
        # For a hundred chats it would sort.
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off")
            cursor.execute("SET LOCAL enable_bitmapscan = off")
    more = find_next_page(page.get("/chats/new").content.decode())
    answer: Any = page.get("/api/v1/chats?limit=20").json()
    rest = f"/api/v1/chats?limit=20&cursor={answer['next_cursor']}"
    for address, index in (
        ("/chats/new", "chat_sidebar"),
        (more, "chat_sidebar"),
        ("/api/v1/chats?limit=20", "chat_recent"),
        (rest, "chat_recent"),
    ):
        plan = explain_list_query(page, address)
        assert index in plan, plan
        assert "TEMP B-TREE" not in plan
        assert "Sort" not in plan


def test_a_later_page_begins_where_the_one_before_ended(page: Client, many: list[Chat]) -> None:
    ids: list[str] = []
    answer: Any = {"next_cursor": ""}
    while answer["next_cursor"] is not None:
        answer = page.get(f"/api/v1/chats?limit=30&cursor={answer['next_cursor']}").json()
        ids += [row["id"] for row in answer["data"]]
    newest = Chat.objects.order_by("-updated_at", "-pk").values_list("pk", flat=True)
    assert ids == [str(pk) for pk in newest]
