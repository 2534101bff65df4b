"""Erase a chat or a message for good: what goes, what stays, what quotes it, the certificate."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from chats.models import Chat, Message, Turn
from contextpolicy.models import AuditEvent
from tests.chats.web.test_chat_page import url
from tests.chats.web.test_message_actions import sign_in_at

Talk = Callable[..., Turn]
SECRET = "The door in Prinsens gate 12 opens with the code 7781, then the blue key."


@pytest.fixture
def fresh(page: Client) -> Client:
    """Alice, who signed in just now."""
    sign_in_at(page, timezone.now())
    return page


def test_the_menu_and_the_question_of_deleting_lead_to_it(page: Client, chat: Chat) -> None:
    where = url(chat, "erase")
    assert where in page.get(url(chat)).content.decode()
    html = page.get(url(chat, "delete")).content.decode()
    assert where in html
    assert "does not look for copies" in html


def test_it_asks_for_a_fresh_sign_in(page: Client, chat: Chat) -> None:
    sign_in_at(page, timezone.now() - timedelta(hours=1))
    for response in (page.get(url(chat, "erase")), page.post(url(chat, "erase"))):
        assert response.headers["Location"] == f"/login/?next={url(chat, 'erase')}"
    assert Chat.objects.exists()


def test_a_chat_is_erased_with_a_certificate_that_stays(
    fresh: Client, charlies_page: Client, chat: Chat, talk: Talk
) -> None:
    talk(SECRET)
    html = fresh.get(url(chat, "erase")).content.decode()
    for words in ("What goes", "What stays", "How this differs from deleting", "2 messages"):
        assert words in html
    assert fresh.get(url(chat, "erased")).status_code == 404

    response = fresh.post(url(chat, "erase"))

    assert response.headers["Location"] == url(chat, "erased")
    assert not Chat.objects.exists()
    event = AuditEvent.objects.get(type="chat.erased")
    html = fresh.get(url(chat, "erased")).content.decode()
    assert event.hash in html
    assert str(chat.pk) in html
    assert '<th scope="row">Messages</th><td class="n">2</td>' in html
    assert "7781" not in html
    assert charlies_page.get(url(chat, "erased")).status_code == 404


def test_nothing_is_erased_while_a_reply_is_written(
    fresh: Client, chat: Chat, say: Callable[[str], Turn]
) -> None:
    turn = say("hello")
    for where in (url(chat, "erase"), url(chat, f"messages/{turn.trigger_id}/erase")):
        html = fresh.get(where).content.decode()
        assert "Stop it first, then erase" in html
        assert '<button type="submit"' not in html
        assert fresh.post(where).status_code == 409
    assert Chat.objects.exists()


def test_charlie_erases_nothing(charlies_page: Client, chat: Chat) -> None:
    sign_in_at(charlies_page, timezone.now())
    assert charlies_page.get(url(chat, "erase")).status_code == 404
    assert charlies_page.post(url(chat, "erase")).status_code == 404
    sign_in_at(charlies_page, timezone.now() - timedelta(hours=1))
    assert charlies_page.get(url(chat, "erase")).status_code == 404
    assert Chat.objects.exists()


@pytest.fixture
def quoted(chat: Chat, talk: Talk) -> list[Message]:
    """A secret, a reply that quotes it, and a turn that does not."""
    talk(SECRET, f"Noted: <b>{SECRET}</b>")
    talk("And now?", "Nothing.")
    return list(Message.objects.order_by("seq"))


def erased() -> list[int | None]:
    """The places of the erased messages."""
    rows = Message.objects.filter(erased_at__isnull=False).order_by("seq")
    return list(rows.values_list("seq", flat=True))


def test_messages_that_quote_it_are_listed_and_go_when_ticked(
    fresh: Client, chat: Chat, quoted: list[Message]
) -> None:
    where = url(chat, f"messages/{quoted[0].pk}/erase")
    html = fresh.get(where).content.decode()
    assert "1 other message quotes it" in html
    assert f'name="also" value="{quoted[1].pk}"' in html
    assert f'value="{quoted[3].pk}"' not in html
    assert "checked" not in html

    response = fresh.post(where, {"also": [str(quoted[1].pk), str(quoted[3].pk), "x"]})

    assert response.headers["Location"].endswith(f"#message-{quoted[0].pk}")
    assert erased() == [1, 2]


def test_what_was_not_ticked_is_named_afterwards_and_can_go_then(
    fresh: Client, chat: Chat, quoted: list[Message]
) -> None:
    where = url(chat, f"messages/{quoted[0].pk}/erase")

    assert fresh.post(where).headers["Location"] == where

    assert erased() == [1]
    html = fresh.get(where).content.decode()
    assert "This message was erased on" in html
    assert "1 other message quotes it" in html
    assert "Noted: &lt;b&gt;" in html
    fresh.post(where, {"also": str(quoted[1].pk)})
    assert erased() == [1, 2]
    assert "other message" not in fresh.get(where).content.decode()


def test_without_quotes_nothing_is_said_of_them(
    fresh: Client, chat: Chat, quoted: list[Message]
) -> None:
    html = fresh.get(url(chat, f"messages/{quoted[2].pk}/erase")).content.decode()
    assert "quotes it" not in html
