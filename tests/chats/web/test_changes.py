"""A page that is notified of a change gets the changed parts, or nothing."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Branch, Chat, Compaction, Message, Turn
from tests.support.chat_messages import add_messages
from tests.support.chat_pages import HTMX, cut_out_chat, get_chat_url, read_page_version
from tests.support.compactions_on_pages import build_preparing_fields

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]


def drawn(html: str) -> dict[str, str]:
    """Return the request that an open page sends after a change notice."""
    found = re.search(r'changes\?turn=([\w.-]*)"', html)
    assert found
    return {"turn": found[1], "seen": read_page_version(html)}


def test_a_page_that_is_up_to_date_gets_nothing(page: Client, chat: Chat, talk: Talk) -> None:
    talk("hello")
    shown = drawn(page.get(get_chat_url(chat)).content.decode())

    response = page.get(get_chat_url(chat, "changes"), shown, headers=HTMX)

    assert (response.status_code, response.content) == (204, b"")


def test_a_message_sent_elsewhere_brings_the_end_of_the_thread(
    page: Client, chat: Chat, talk: Talk
) -> None:
    talk("the first question")
    shown = drawn(page.get(get_chat_url(chat)).content.decode())
    talk("the second question")

    html = page.get(
        get_chat_url(chat, "changes"), {**shown, "from": "1"}, headers=HTMX
    ).content.decode()

    assert "the second question" in html
    assert 'id="tail"' in html
    assert "hx-swap-oob" not in html.partition('id="tail"')[0]


def test_another_branch_brings_the_whole_thread(
    page: Client, chat: Chat, talk: Talk, alice: User
) -> None:
    first = talk("the first question")
    talk("the second question")
    shown = drawn(page.get(get_chat_url(chat)).content.decode())
    page.post(
        get_chat_url(chat, f"messages/{first.trigger_id}/edit"), {"text": "the other question"}
    )

    response = page.get(get_chat_url(chat, "changes"), {**shown, "from": "3"}, headers=HTMX)

    assert response.headers["HX-Reswap"] == "none"
    assert "the other question" in response.content.decode()


def test_a_summary_that_took_effect_brings_its_marker_and_no_message_that_stands(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("the first question")
    talk("the second question")
    talk("the third question")
    seen = read_page_version(page.get(get_chat_url(chat)).content.decode())
    summary(2)

    data = {"seen": seen, "from": "5", "top": "1"}
    response = page.get(get_chat_url(chat, "changes"), data, headers=HTMX)

    html = response.content.decode()
    assert "HX-Reswap" not in response.headers
    assert 'id="messages"' not in html
    assert "2 messages summarised" in html
    standing = re.findall(r'<i id="message-([0-9a-f-]+)" data-sent="full"', html)
    assert standing == [
        str(row.pk) for row in Message.objects.filter(seq__in=[3, 4]).order_by("seq")
    ]
    assert "the second question" not in html
    assert "the third question" in html
    assert 'id="context-meter" hx-swap-oob' in html
    assert f"{get_chat_url(chat, 'changes')}?turn=" in html
    assert 'id="composer"' not in html


def test_what_a_page_has_loaded_stays_and_what_came_out_from_under_is_shown(
    page: Client, chat: Chat, talk: Talk, summary: Fold, now: Any
) -> None:
    talk("the first question")
    add_messages(chat, count=100, now=now)
    row = summary(40)
    seen = read_page_version(page.get(get_chat_url(chat)).content.decode())
    data = {"seen": seen, "from": "101", "top": "41"}

    Compaction.objects.filter(pk=row.pk).update(to_seq=50)
    Branch.objects.update(context_revision=9)
    html = page.get(get_chat_url(chat, "changes"), data, headers=HTMX).content.decode()

    assert html.count("<i id=") == 50
    assert "?before=" not in html
    assert "50 messages summarised" in html

    Branch.objects.update(active_compaction=None)
    html = page.get(get_chat_url(chat, "changes"), data, headers=HTMX).content.decode()

    assert html.count("<i id=") == 60
    assert "?before=41" in html


def test_a_page_on_another_path_gets_the_thread_anew(page: Client, chat: Chat, talk: Talk) -> None:
    talk("the first question")
    shown = drawn(page.get(get_chat_url(chat)).content.decode())
    data = {**shown, "from": "1", "turn": "", "seen": shown["seen"][:-8] + "0" * 8}

    html = page.get(get_chat_url(chat, "changes"), data, headers=HTMX).content.decode()

    assert 'id="messages" hx-swap-oob="true"' in html


@pytest.mark.parametrize(
    ("act", "marks"), [("pin", "pinned"), ("exclude", "excluded"), ("keep", "kept")]
)
@pytest.mark.parametrize("above", [True, False])
def test_a_mark_set_in_another_tab_is_news(
    page: Client, chat: Chat, talk: Talk, act: str, marks: str, above: bool
) -> None:
    talk("the first question")
    reply = Message.objects.get(seq=2)
    Message.objects.filter(pk=reply.pk).update(finish=Message.Finish.INCOMPLETE)
    if above:
        talk("the second question")
    html = page.get(get_chat_url(chat)).content.decode()
    place = {"from": "3" if above else "1", "top": "1"}

    page.post(get_chat_url(chat, f"messages/{reply.pk}/{act}"), headers=HTMX)
    response = page.get(get_chat_url(chat, "changes"), {**drawn(html), **place}, headers=HTMX)

    assert response.status_code == 200
    changed = response.content.decode()
    assert re.search(rf'id="message-{reply.pk}"[^>]* data-marks="{marks}"', changed)
    shown = drawn(changed.replace('hx-swap-oob="true"', ""))
    assert (
        page.get(get_chat_url(chat, "changes"), {**shown, **place}, headers=HTMX).status_code == 204
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"kind": "window", "text": "", "reason": "tokens"}, id="window"),
        pytest.param(build_preparing_fields(), id="being written"),
        pytest.param({"status": "rejected", "reason": "empty", "published_at": None}, id="no use"),
    ],
)
def test_each_change_of_markers_is_news(
    page: Client, chat: Chat, talk: Talk, summary: Fold, change: dict[str, Any]
) -> None:
    talk("the first question")
    before = read_page_version(page.get(get_chat_url(chat)).content.decode())
    summary(2, **change)

    assert read_page_version(page.get(get_chat_url(chat)).content.decode()) != before


def test_a_message_sent_after_a_summary_took_effect_brings_the_marker_too(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("the first question")
    seen = read_page_version(page.get(get_chat_url(chat)).content.decode())
    summary(2)

    data = {"text": "next", "from": "1", "seen": seen}
    response = page.post(get_chat_url(chat, "messages"), data, headers=HTMX)

    html = response.content.decode()
    assert response.headers["HX-Retarget"] == "#tail"
    assert "2 messages summarised" in html
    assert "next</p>" in html
    assert Message.objects.filter(seq=None).count() == 1


def test_being_told_costs_little(
    page: Client, chat: Chat, talk: Talk, django_assert_max_num_queries: Any
) -> None:
    talk("hello")
    shown = drawn(page.get(get_chat_url(chat)).content.decode())

    with django_assert_max_num_queries(8):
        page.get(get_chat_url(chat, "changes"), shown, headers=HTMX)


def test_a_summary_that_is_being_written_is_shown(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("hello")
    summary(2, **build_preparing_fields())

    html = page.get(get_chat_url(chat)).content.decode()

    assert html.count('data-status="preparing"') == 1
    assert "2 messages" in cut_out_chat(html)
