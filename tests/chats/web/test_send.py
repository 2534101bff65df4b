"""Sending a message: accepted once, or refused with the text still in its box."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.ground import rates
from chats.models import Chat, Message, Turn
from chats.prompt.model_choice import PolicyRefused
from tests.contextpolicy.pages import Page
from tests.support.chat_messages import add_messages
from tests.support.chat_pages import HTMX, get_chat_url, mark_running


def test_a_plain_form_sends_and_leads_back_to_the_end(page: Client, chat: Chat) -> None:
    response = page.post(get_chat_url(chat, "messages"), {"text": "hello", "key": "k"})

    assert response.headers["Location"] == get_chat_url(chat) + "#tail"
    assert Message.objects.get().text == "hello"


def test_htmx_gets_the_end_and_an_empty_box(page: Client, chat: Chat) -> None:
    data = {"text": "hello", "key": "k", "from": "1"}
    html = page.post(get_chat_url(chat, "messages"), data, headers=HTMX).content.decode()

    assert "hello" in html
    assert "data-live" in html
    assert "sse-connect" in html
    for part in ("composer", "context-meter", "state-place", f"chat-{chat.pk}"):
        assert re.search(rf'id="{part}"[^>]*hx-swap-oob', html), part
    assert html.count("hx-swap-oob") == 4
    assert "Send next" in html
    assert 'value="k"' not in html


def test_the_same_key_is_the_same_message(page: Client, chat: Chat) -> None:
    for _ in range(3):
        page.post(get_chat_url(chat, "messages"), {"text": "hello", "key": "k"})

    assert Message.objects.count() == 1
    assert Turn.objects.count() == 1


def test_the_same_key_with_another_text_says_what_happened(page: Client, chat: Chat) -> None:
    page.post(get_chat_url(chat, "messages"), {"text": "hello", "key": "k"})
    response = page.post(get_chat_url(chat, "messages"), {"text": "hello again", "key": "k"})

    html = response.content.decode()
    assert response.status_code == 409
    assert 'data-reason="already_sent"' in html
    assert "hello again</textarea>" in html


def test_line_ends_of_browsers_become_plain_ones(page: Client, chat: Chat) -> None:
    page.post(get_chat_url(chat, "messages"), {"text": " a\r\nb \r\n", "key": "k"})

    assert Message.objects.get().text == " a\nb \n"


@pytest.mark.parametrize(
    ("text", "code", "numbers"),
    [
        ("", "message_empty", []),
        (" \n ", "message_empty", []),
        ("x" * 32_001, "message_too_long", ["32,001", "32,000", "1"]),
    ],
)
def test_a_refused_text_stays_in_its_box(
    page: Client, chat: Chat, text: str, code: str, numbers: list[str]
) -> None:
    def said(html: str) -> list[str]:
        error = re.findall(rf'id="composer-error"[^>]+data-reason="{code}".*?</div>', html, re.S)
        return re.findall(r"\d[\d,]*", Page(error[0].partition(">")[2]).words)

    plain = page.post(get_chat_url(chat, "messages"), {"text": text, "key": "k"})
    assert plain.status_code == 422
    assert said(plain.content.decode()) == numbers
    assert f"\n{text}</textarea>" in plain.content.decode()

    part = page.post(get_chat_url(chat, "messages"), {"text": text, "key": "k"}, headers=HTMX)
    assert part.status_code == 200
    assert part.headers["HX-Retarget"] == "#composer"
    assert part.headers["HX-Reswap"] == "outerHTML"
    assert said(part.content.decode()) == numbers
    assert 'aria-describedby="composer-count composer-error"' in part.content.decode()
    assert not Message.objects.exists()


def test_a_character_that_cannot_be_stored_is_replaced(page: Client, chat: Chat) -> None:
    assert (
        page.post(get_chat_url(chat, "messages"), {"text": "a\x00b", "key": "k"}).status_code == 302
    )

    assert Message.objects.get().text == "a\ufffdb"


def test_a_box_that_was_refused_during_a_reply_still_says_send_next(
    page: Client, chat: Chat
) -> None:
    data = {"text": "", "key": "k", "replying": "1"}
    html = page.post(get_chat_url(chat, "messages"), data, headers=HTMX).content.decode()

    assert "Send next" in html


def test_too_many_waiting_messages_are_refused_with_the_text_kept(
    page: Client, chat: Chat, settings: Any
) -> None:
    settings.WAITING_PER_CHAT = 1
    page.post(get_chat_url(chat, "messages"), {"text": "one"})
    response = page.post(get_chat_url(chat, "messages"), {"text": "two"})

    assert response.status_code == 409
    assert "two</textarea>" in response.content.decode()


def test_too_many_messages_in_a_minute_are_refused_with_the_text_kept(
    page: Client, alice: User, chat: Chat, settings: Any
) -> None:
    settings.MESSAGES_PER_MINUTE = 1
    page.post(get_chat_url(chat, "messages"), {"text": "first"}, headers=HTMX)

    response = page.post(get_chat_url(chat, "messages"), {"text": "second"}, headers=HTMX)

    html = response.content.decode()
    assert response.headers["HX-Retarget"] == "#composer"
    assert "More than 1 requests in a minute" in html
    assert "second</textarea>" in html
    assert Message.objects.count() == 1
    assert page.post("/chats/new", {"text": "third"}).status_code == 429
    turn = Turn.objects.get()
    assert page.post(get_chat_url(chat, f"turns/{turn.pk}/retry"), headers=HTMX).status_code == 429
    with pytest.raises(rates.RateLimited):
        rates.MESSAGES.take(f"user:{alice.pk}", now=time.monotonic())


@pytest.mark.requirement("S4.6", by="user")
def test_a_message_sent_during_a_reply_is_shown_as_waiting(
    page: Client, chat: Chat, say: Callable[[str], Turn]
) -> None:
    turn = say("first")
    Message.objects.update(seq=1, turn=turn)
    chat.active_branch.last_seq = 1  # type: ignore[union-attr]  # made with the chat
    chat.active_branch.save()  # type: ignore[union-attr]  # the same
    mark_running(turn)

    page.post(get_chat_url(chat, "messages"), {"text": "second"})
    html = page.get(get_chat_url(chat)).content.decode()

    assert html.index("data-live") < html.index("second</p>")
    assert html.count("waiting</span>") == 1


def test_messages_that_left_the_tail_come_back_as_still_ones(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    talk("first", "answer one")
    before = page.get(get_chat_url(chat)).content.decode()
    tail_from = re.search(r'id="tail-from" value="(\d+)"', before)
    assert tail_from
    assert tail_from[1] == "1"

    data = {"text": "second", "from": tail_from[1]}
    html = page.post(get_chat_url(chat, "messages"), data, headers=HTMX).content.decode()

    still, tail = html.split('id="tail"')
    assert "answer one" in still
    assert "second" in tail
    assert 'id="tail-from" value="3"' in tail


def test_a_page_that_is_far_behind_gets_the_whole_thread(
    page: Client, chat: Chat, talk: Callable[..., Turn], now: Any
) -> None:
    talk("first")
    add_messages(chat, count=100, now=now)

    response = page.get(get_chat_url(chat, "tail"), {"from": "1"}, headers=HTMX)

    assert response.headers["HX-Reswap"] == "none"
    assert (
        response.content.decode()
        .lstrip()
        .startswith('<div class="messages" id="messages" hx-swap-oob="true"')
    )


def test_the_tail_without_htmx_is_the_chat(page: Client, chat: Chat) -> None:
    assert page.get(get_chat_url(chat, "tail")).headers["Location"] == get_chat_url(chat) + "#tail"


def test_a_message_without_a_token_is_refused(alice: Any, chat: Chat) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)

    response = client.post(get_chat_url(chat, "messages"), {"text": "hello"})

    assert response.status_code == 403
    assert 'id="refusal" data-stale' in response.content.decode()
    assert not Message.objects.exists()


def test_an_impossible_policy_is_a_sentence_and_not_an_error(
    page: Client, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_engine = "Does not fit: system text alone has 20,000 tokens."
    monkeypatch.setattr("chats.prompt.model_choice.choose_chat_model", raising(from_engine))

    response = page.post(get_chat_url(chat, "messages"), {"text": "hello"})

    assert response.status_code == 409
    assert from_engine in response.content.decode()
    assert "hello</textarea>" in response.content.decode()
    assert page.get(get_chat_url(chat)).status_code == 200


def raising(words: str) -> Callable[..., Any]:
    """A `choose` that refuses, as it does under policies that cannot work."""

    def refuse(**_arguments: Any) -> None:
        raise PolicyRefused(reason=words)

    return refuse
