"""Erase a chat or a message: erased and remaining data, quotations, the certificate."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from chats.actions import deletion, erasure, marks
from chats.ground.commitments import is_commitment_valid
from chats.ground.refusals import NotFound
from chats.models import Chat, Message, Turn
from chats.record import message_erasure
from contextpolicy.models import AuditEvent
from tests.chats.web.markup import tight
from tests.support.chat_pages import get_chat_url, set_sign_in_time

Talk = Callable[..., Turn]
SECRET = "The door in Prinsens gate 12 opens with the code 7781, then the blue key."


def shown(html: str, name: str) -> str:
    """A fact of the proof on a page."""
    found = re.search(f'<dt>{name}</dt><dd class="hash">([0-9a-f]{{64}})</dd>', tight(html))
    assert found is not None
    return found[1]


def test_the_menu_and_a_deleted_chat_lead_to_it(fresh: Client, chat: Chat) -> None:
    where = get_chat_url(chat, "erase")
    assert where in fresh.get(get_chat_url(chat)).content.decode()
    html = fresh.post(get_chat_url(chat, "delete"), follow=True).content.decode()
    assert where in html
    assert f'action="{where}"' not in html
    assert f'action="{where}"' in fresh.get(where).content.decode()
    assert fresh.post(where).status_code == 200
    assert not Chat.objects.exists()


def test_a_temporary_chat_has_no_way_only_to_delete_it(fresh: Client, chat: Chat) -> None:
    where = get_chat_url(chat, "erase")
    html = fresh.get(where).content.decode()
    ways = (f'action="{get_chat_url(chat, "delete")}"', 'data-note="erase-or-delete"')
    for way in ways:
        assert way in html
    Chat.objects.update(temporary=True)
    html = fresh.get(where).content.decode()
    assert f'action="{where}"' in html
    assert f'<a class="btn btn--quiet" href="{get_chat_url(chat)}">' in html
    for way in ways:
        assert way not in html


def test_it_asks_for_a_fresh_sign_in(page: Client, chat: Chat) -> None:
    set_sign_in_time(page, timezone.now() - timedelta(hours=1))
    for response in (page.get(get_chat_url(chat, "erase")), page.post(get_chat_url(chat, "erase"))):
        assert (
            response.headers["Location"] == f"/account/confirm/?next={get_chat_url(chat, 'erase')}"
        )
    assert Chat.objects.exists()


def test_a_chat_is_erased_with_a_certificate_that_stays(
    fresh: Client, charlies_page: Client, chat: Chat, talk: Talk
) -> None:
    talk(SECRET)
    html = fresh.get(get_chat_url(chat, "erase")).content.decode()
    for words in (
        "<h2>Erased</h2>",
        "<h2>Kept</h2>",
        'data-note="erase-or-delete"',
        "2 messages",
    ):
        assert words in html
    assert fresh.get(get_chat_url(chat, "erased")).status_code == 404
    rows = list(Message.objects.order_by("accepted").values_list("pk", "parts"))

    response = fresh.post(get_chat_url(chat, "erase"))

    assert not Chat.objects.exists()
    event = AuditEvent.objects.get(type="chat.erased")
    assert shown(response.content.decode(), "Commitment") == event.data["commitment"]
    said = "".join(f"{pk} {message_erasure.format_canonical_parts(parts)}\n" for pk, parts in rows)
    assert is_commitment_valid(
        event.data["commitment"], said, salt=shown(response.content.decode(), "Salt")
    )
    assert get_chat_url(chat, "erased") in response.content.decode()
    html = tight(fresh.get(get_chat_url(chat, "erased")).content.decode())
    assert event.hash in html
    assert "<dt>Salt</dt>" not in html
    assert str(chat.pk) in html
    assert '<th scope="row">Messages</th><td class="n">2</td>' in html
    assert "7781" not in html
    assert charlies_page.get(get_chat_url(chat, "erased")).status_code == 404


@pytest.fixture
def erased_before(monkeypatch: pytest.MonkeyPatch, chat: Chat) -> Callable[..., None]:
    """Let another request erase the chat right before an action locks it."""

    def erasing_before(module: Any, name: str) -> None:
        act, erase = getattr(module, name), erasure.erase_chat

        def erase_first(**given: Any) -> Any:
            erase(user=chat.owner, chat=chat, now=timezone.now())
            return act(**given)

        monkeypatch.setattr(module, name, erase_first)

    return erasing_before


def test_a_chat_that_is_erased_twice_at_once_shows_its_certificate(
    fresh: Client, chat: Chat, erased_before: Callable[..., None]
) -> None:
    erased_before(erasure, "erase_chat")
    response = fresh.post(get_chat_url(chat, "erase"))
    assert (response.status_code, response["Location"]) == (302, get_chat_url(chat, "erased"))
    assert fresh.get(response["Location"]).status_code == 200
    assert AuditEvent.objects.filter(type="chat.erased").count() == 1


@pytest.mark.parametrize(
    ("module", "name", "action"),
    [
        (erasure, "erase_message", "erase"),
        (marks, "pin_message", "pin"),
        (marks, "exclude_message", "exclude"),
    ],
)
def test_a_message_whose_chat_is_erased_meanwhile_is_not_found(
    fresh: Client,
    chat: Chat,
    talk: Talk,
    erased_before: Callable[..., None],
    module: Any,
    name: str,
    action: str,
) -> None:
    talk(SECRET)
    said = Message.objects.get(role="user")
    erased_before(module, name)
    assert fresh.post(get_chat_url(chat, f"messages/{said.pk}/{action}")).status_code == 404
    assert not Chat.objects.exists()


@pytest.mark.parametrize("name", ["delete_chat", "restore_chat"])
def test_a_chat_that_is_erased_meanwhile_is_neither_deleted_nor_restored(
    chat: Chat, name: str
) -> None:
    actor, now = f"user:{chat.owner_id}", timezone.now()
    erasure.erase_chat(user=chat.owner, chat=chat, now=now)
    with pytest.raises(NotFound):
        getattr(deletion, name)(chat=chat, actor=actor, now=now)


def test_nothing_is_erased_while_a_reply_is_written(
    fresh: Client, chat: Chat, say: Callable[[str], Turn]
) -> None:
    turn = say("hello")
    for where in (
        get_chat_url(chat, "erase"),
        get_chat_url(chat, f"messages/{turn.trigger_id}/erase"),
    ):
        html = fresh.get(where).content.decode()
        assert 'data-reason="turn_not_over"' in html
        assert '<button type="submit"' not in html.partition("<main")[2].partition("</main>")[0]
        assert fresh.post(where).status_code == 409
    assert Chat.objects.exists()


def test_charlie_erases_nothing(charlies_page: Client, chat: Chat) -> None:
    set_sign_in_time(charlies_page, timezone.now())
    assert charlies_page.get(get_chat_url(chat, "erase")).status_code == 404
    assert charlies_page.post(get_chat_url(chat, "erase")).status_code == 404
    set_sign_in_time(charlies_page, timezone.now() - timedelta(hours=1))
    assert charlies_page.get(get_chat_url(chat, "erase")).status_code == 404
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
    where = get_chat_url(chat, f"messages/{quoted[0].pk}/erase")
    html = fresh.get(where).content.decode()
    assert "1 other message quotes this message" in html
    assert f'name="also" value="{quoted[1].pk}"' in html
    assert f'value="{quoted[3].pk}"' not in html
    assert "checked" not in html

    response = fresh.post(where, {"also": [str(quoted[1].pk), str(quoted[3].pk), "x"]})

    assert response.content.decode().count("<dt>Salt</dt>") == 2
    assert erased() == [1, 2]


def test_ticked_messages_stay_ticked_after_a_refusal(
    fresh: Client, chat: Chat, quoted: list[Message]
) -> None:
    where = get_chat_url(chat, f"messages/{quoted[0].pk}/erase")
    turns = Turn.objects.filter(reply=quoted[1])
    turns.update(status=Turn.Status.QUEUED, finished_at=None)
    refused = fresh.post(where, {"also": str(quoted[1].pk)})
    assert refused.status_code == 409
    assert f'name="also" value="{quoted[1].pk}" checked' in refused.content.decode()


def test_the_page_after_an_erasure_alone_has_what_proves_it(
    fresh: Client, chat: Chat, quoted: list[Message]
) -> None:
    where = get_chat_url(chat, f"messages/{quoted[2].pk}/erase")
    said = message_erasure.format_canonical_parts(quoted[2].parts)
    response = fresh.post(where)
    event = AuditEvent.objects.get(type="message.erased")
    assert event.data["commitment"] == shown(response.content.decode(), "Commitment")
    assert is_commitment_valid(
        event.data["commitment"], said, salt=shown(response.content.decode(), "Salt")
    )
    for again in (fresh.get(where), fresh.post(where)):
        assert 'data-note="message-erased"' in again.content.decode()
        assert "<dt>Salt</dt>" not in again.content.decode()


def test_what_was_not_ticked_is_named_afterwards_and_can_go_then(
    fresh: Client, chat: Chat, quoted: list[Message]
) -> None:
    where = get_chat_url(chat, f"messages/{quoted[0].pk}/erase")

    assert "1 other message quotes this message" in fresh.post(where).content.decode()

    assert erased() == [1]
    html = fresh.get(where).content.decode()
    assert 'data-note="message-erased"' in html
    assert "1 other message quotes this message" in html
    assert "Noted: &lt;b&gt;" in html
    fresh.post(where, {"also": str(quoted[1].pk)})
    assert erased() == [1, 2]
    assert "other message" not in fresh.get(where).content.decode()


def test_without_quotes_nothing_is_said_of_them(
    fresh: Client, chat: Chat, quoted: list[Message]
) -> None:
    html = fresh.get(get_chat_url(chat, f"messages/{quoted[2].pk}/erase")).content.decode()
    assert "quotes this message" not in html
