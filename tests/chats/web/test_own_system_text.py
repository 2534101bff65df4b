"""A chat's own system text on its page: written, sent, refused, locked, taken away, erased."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.actions import erasure, system_texts
from chats.models import Chat, PromptText, Turn
from chats.providers.base import Finished, TextDelta
from contextpolicy.linter.errors import LONGEST_TEXT
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.contextpolicy.pages import Page
from tests.support.chat_pages import HTMX, get_chat_url
from tests.support.clocks import NOON

OWN = "Answer like a pirate.\nAlways."
Govern = Callable[..., None]


@pytest.fixture
def govern(db: None) -> Govern:
    """Publish a policy for everyone."""

    def governing(slug: str = "p", **values: Any) -> None:
        policy = create_policy(slug=slug, name="P", values=values, actor="system", now=NOON)
        assign_policy(policy=policy, level="instance", actor="system", now=NOON)

    return governing


def write(page: Client, chat: Chat, text: str, **options: Any) -> Any:
    """Send the form."""
    return page.post(get_chat_url(chat, "system-text"), {"text": text}, **options)


def test_the_menu_of_a_chat_leads_to_it(page: Client, chat: Chat) -> None:
    body = page.get(get_chat_url(chat)).content.decode()

    assert f'href="{get_chat_url(chat, "system-text")}"' in body
    assert 'data-note="own-instructions"' not in body


def test_it_is_written_and_shown_with_its_length(page: Client, chat: Chat) -> None:
    answer = write(page, chat, OWN.replace("\n", "\r\n"))

    assert (answer.status_code, answer["Location"]) == (302, get_chat_url(chat, "system-text"))
    chat.refresh_from_db()
    assert chat.system_text == OWN
    body = page.get(get_chat_url(chat, "system-text")).content.decode()
    assert Page(body).fields["text"] == [OWN]
    assert f"<span data-count>{len(OWN)}</span> / 20,000" in body
    assert 'data-reason="append"' in body
    assert 'data-note="own-instructions"' in page.get(get_chat_url(chat)).content.decode()


def test_a_page_that_is_there_gets_the_part(page: Client, chat: Chat) -> None:
    body = write(page, chat, OWN, headers=HTMX).content.decode()

    assert body.startswith('<div class="stack" id="system-text">')
    assert 'data-note="text-saved"' in body


@pytest.mark.requirement("S1.5")
@pytest.mark.parametrize(
    ("layout", "system"),
    [
        ("A", OWN),
        ("C", f"Be brief.\n\n{OWN}"),
        ("B", f"Be brief.\n\n{OWN}"),
        ("multi_turn", f"Be brief.\n\n{OWN}"),
    ],
)
def test_layouts_a_and_c_differ_in_what_becomes_of_it(
    page: Client,
    chat: Chat,
    say: Callable[[str], Turn],
    work: Callable[..., Any],
    govern: Govern,
    layout: str,
    system: str,
) -> None:
    govern(layout=layout, system_text="Be brief.")
    write(page, chat, OWN)
    turn = say("Hello")
    request = work(turn, [TextDelta("Arr."), Finished("stop")]).scripted.requests[0]

    assert request.messages[0].role == "system"
    assert request.messages[0].content == system
    words = Page(page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()).words
    assert "Chat text" in words
    assert ("Policy text" in words) == (layout != "A")
    assert "Answer like a pirate." in words


def test_the_ledger_says_how_long_it_is_and_never_its_words(page: Client, chat: Chat) -> None:
    write(page, chat, OWN)
    write(page, chat, OWN)
    write(page, chat, "")

    events = AuditEvent.objects.filter(type="chat.system_text_changed").order_by("seq")
    assert [event.data for event in events] == [
        {"from_characters": 0, "to_characters": len(OWN)},
        {"from_characters": len(OWN), "to_characters": 0},
    ]
    chat.refresh_from_db()
    assert chat.system_text == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x" * (LONGEST_TEXT + 5), "has 20,005 characters. The limit is 20,000. Shorten it by 5."),
        ("a\0b", "contains a character that cannot be stored, at position 2."),
    ],
)
def test_what_cannot_be_kept_is_refused_and_stays_in_the_box(
    page: Client, chat: Chat, text: str, sentence: str
) -> None:
    answer = write(page, chat, text)

    assert answer.status_code == 422
    body = answer.content.decode()
    assert sentence in body
    assert 'aria-invalid="true"' in body
    assert ("composer__count is-over" in body) == (len(text) > LONGEST_TEXT)
    assert Page(body).fields["text"] == [text]
    chat.refresh_from_db()
    assert chat.system_text == ""


def test_one_that_leaves_no_room_is_refused_with_the_fields(
    page: Client, chat: Chat, govern: Govern
) -> None:
    govern(strategy="sliding_window", token_budget=4_000, reserve_tokens=1_000)
    text = "word " * 3_000
    answer = write(page, chat, text)

    assert answer.status_code == 422
    assert 'data-reason="policy_impossible"' in answer.content.decode()
    with pytest.raises(system_texts.NoRoomForSystemText) as refused:
        system_texts.validate_system_text(chat, text=text)
    fields = refused.value.details["fields"]
    assert {"system_text", "token_budget"} <= set(fields)
    words = Page(answer.content.decode()).words
    assert refused.value.localized in words
    assert all(field in words for field in fields)


def test_a_policy_locks_it_with_a_sentence(page: Client, chat: Chat, govern: Govern) -> None:
    govern(chat_system="ignore")
    body = page.get(get_chat_url(chat, "system-text")).content.decode()

    assert "The policy P v1 does not allow chats to have their own system text." in body
    assert "<textarea" not in body
    assert write(page, chat, OWN).status_code == 403
    chat.refresh_from_db()
    assert chat.system_text == ""


def test_under_a_lock_it_can_still_be_taken_away(page: Client, chat: Chat, govern: Govern) -> None:
    write(page, chat, OWN)
    govern(chat_system="ignore")
    html = page.get(get_chat_url(chat, "system-text")).content.decode()
    assert 'data-note="saved-not-sent"' in html
    assert "Always." in Page(html).words
    refused = write(page, chat, "Something new.").content.decode()
    assert 'id="typed"' in refused
    assert "Something new." in Page(refused).words

    assert write(page, chat, "").status_code == 302
    chat.refresh_from_db()
    assert chat.system_text == ""


def test_charlie_neither_reads_nor_writes_it(
    charlies_page: Client, page: Client, chat: Chat
) -> None:
    write(page, chat, OWN)

    assert charlies_page.get(get_chat_url(chat, "system-text")).status_code == 404
    assert write(charlies_page, chat, "Mine.").status_code == 404
    chat.refresh_from_db()
    assert chat.system_text == OWN


def test_an_erased_chat_leaves_no_word_of_it(
    page: Client, chat: Chat, talk: Callable[..., Turn], alice: User
) -> None:
    write(page, chat, "The first words.")
    talk("Hello")
    write(page, chat, OWN)
    talk("Hello again")
    assert PromptText.objects.filter(text__contains="pirate").exists()

    erasure.erase_chat(user=alice, chat=chat, now=NOON)

    kept = "".join(PromptText.objects.values_list("text", flat=True))
    assert "first words" not in kept
    assert "pirate" not in kept
    told = [str(event.data) for event in AuditEvent.objects.all()]
    assert not any("pirate" in words or "first words" in words for words in told)
