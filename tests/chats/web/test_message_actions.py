"""Pin, exclude, edit, regenerate, branch, choose a version and erase, with permissions."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from chats.models import Branch, Chat, Compaction, Message, Turn
from chats.providers.base import Finished, TextDelta
from chats.web.reasons import LEFT_OUT
from chats.web.thread.message_acts import list_message_actions
from contextpolicy.models import AuditEvent
from tests.chats.web.markup import tight
from tests.support.chat_pages import (
    HTMX,
    cut_out_chat,
    get_chat_url,
    read_page_version,
    set_sign_in_time,
)
from tests.support.compactions_on_pages import Policy

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]
Work = Callable[..., Any]


@pytest.fixture
def messages(chat: Chat, talk: Talk) -> list[Message]:
    """Two turns: question, reply, question, reply."""
    talk("the first question", "an early reply")
    talk("the second question", "the second reply")
    return list(Message.objects.filter(branch__chat=chat).order_by("seq"))


def act(client: Client, row: Message, action: str, **data: str) -> Any:
    """Press a button of the message as a page with scripts does."""
    where = f"/chats/{row.branch.chat_id}/messages/{row.pk}/{action}"
    return client.post(where, data, headers=HTMX)


def body(client: Client, chat: Chat) -> str:
    """The thread of the chat's page."""
    chat.refresh_from_db()
    return cut_out_chat(client.get(get_chat_url(chat)).content.decode())


@pytest.mark.parametrize(
    ("action", "part", "back"),
    [
        ("pin", 'data-note="pinned-message"', "unpin"),
        ("exclude", f"<span data-where>{LEFT_OUT['excluded'].beside}</span>", "include"),
    ],
)
def test_a_mark_swaps_its_message_and_the_meter(
    page: Client, messages: list[Message], action: str, part: str, back: str
) -> None:
    row = messages[2]

    response = act(page, row, action)

    html = response.content.decode()
    assert response.headers["HX-Retarget"] == f"#message-{row.pk}"
    assert part in html
    assert html.count("<article") == 1
    assert 'id="context-meter" hx-swap-oob' in html
    html = act(page, row, back).content.decode()
    assert part not in html


def test_without_scripts_a_mark_leads_back_to_the_message(
    page: Client, chat: Chat, messages: list[Message]
) -> None:
    row = messages[0]
    response = page.post(get_chat_url(chat, f"messages/{row.pk}/pin"))
    assert response.headers["Location"] == f"{get_chat_url(chat)}#message-{row.pk}"
    assert "Pins use" in page.get(get_chat_url(chat)).content.decode()


def test_a_pin_over_the_budget_is_refused_in_place(
    page: Client, chat: Chat, messages: list[Message], policy: Policy
) -> None:
    policy(pins_tokens=1)

    response = page.post(get_chat_url(chat, f"messages/{messages[0].pk}/pin"))

    assert response.status_code == 409
    assert 'data-reason="pins_full"' in response.content.decode()
    assert act(page, messages[0], "pin").status_code == 409
    assert not Message.objects.exclude(pinned_at=None).exists()


def test_a_mark_that_changes_markers_brings_them_and_what_came_out(
    page: Client, chat: Chat, messages: list[Message], summary: Fold
) -> None:
    row = summary(2, exceptions=[])
    seen = read_page_version(page.get(get_chat_url(chat)).content.decode())

    response = act(page, messages[0], "exclude", seen=seen)

    row.refresh_from_db()
    assert row.status == "overtaken"
    html = response.content.decode()
    assert 'id="standing" hx-swap-oob="true"' in html
    assert "the first question" in html
    assert 'id="messages"' not in html


def test_a_message_of_an_earlier_page_is_swapped_too(
    page: Client, chat: Chat, messages: list[Message]
) -> None:
    html = page.get(
        get_chat_url(chat, f"messages/{messages[1].pk}/"), headers=HTMX
    ).content.decode()
    assert "an early reply" in html
    assert "is-last" not in html


def test_without_scripts_a_message_has_a_page_with_its_actions(
    page: Client, chat: Chat, messages: list[Message]
) -> None:
    address = get_chat_url(chat, f"messages/{messages[1].pk}/")
    assert f'href="{address}"' in page.get(get_chat_url(chat)).content.decode()

    html = page.get(address).content.decode()

    assert "an early reply" in html
    for action in ("regenerate", "pin", "branch", "exclude", "erase"):
        assert get_chat_url(chat, f"messages/{messages[1].pk}/{action}") in html, action
    assert get_chat_url(chat, f"messages/{messages[1].pk}/edit") not in html
    assert get_chat_url(chat, f"turns/{messages[1].turn_id}/receipt") in html
    assert "hx-post" not in html.partition('id="acts-title"')[2]


def test_a_message_is_copied_as_it_was_written(
    page: Client, charlies_page: Client, chat: Chat, talk: Talk
) -> None:
    talk("**bold** <b>\n\n| a |", "`code`")
    row = Message.objects.get(seq=1)

    response = page.get(get_chat_url(chat, f"messages/{row.pk}/source"))

    assert response.content.decode() == "**bold** <b>\n\n| a |"
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert charlies_page.get(get_chat_url(chat, f"messages/{row.pk}/source")).status_code == 404


def test_an_edit_makes_versions_to_go_between(
    page: Client, chat: Chat, messages: list[Message], work: Work
) -> None:
    old, row = chat.active_branch_id, messages[2]
    form = page.get(get_chat_url(chat, f"messages/{row.pk}/edit"), headers=HTMX).content.decode()
    assert "the second question</textarea>" in form

    html = act(page, row, "edit", text="another question").content.decode()
    turn = Turn.objects.order_by("-accepted")[0]
    work(turn, [TextDelta("another reply"), Finished("stop")])

    assert 'id="messages"' in html
    html = body(page, chat)
    assert "another reply" in html
    assert "the second question" not in html
    assert 'aria-label="Version 2 of 2"' in html

    response = page.post(get_chat_url(chat, f"branches/{old}/choose"))
    assert response.headers["Location"] == get_chat_url(chat) + "#tail"
    html = body(page, chat)
    assert "the second reply" in html
    assert "another reply" not in html
    assert 'aria-label="Version 1 of 2"' in html


def test_versions_of_the_first_message_and_of_versions(
    page: Client, chat: Chat, messages: list[Message], work: Work
) -> None:
    for text in ("b", "c"):
        first = Message.objects.filter(branch__chat=chat, seq=1).order_by("-accepted")[0]
        act(page, first, "edit", text=text)
        work(Turn.objects.order_by("-accepted")[0], [TextDelta("ok"), Finished("stop")])

    html = body(page, chat)
    assert 'aria-label="Version 3 of 3"' in html
    assert Branch.objects.filter(chat=chat).count() == 3


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "htmx"])
def test_a_refused_edit_keeps_its_text(
    page: Client, chat: Chat, messages: list[Message], headers: dict[str, str]
) -> None:
    where = get_chat_url(chat, f"messages/{messages[1].pk}/edit")
    response = page.post(where, {"text": "my words"}, headers=headers)

    html = response.content.decode()
    assert response.status_code == (200 if headers else 409)
    assert 'role="alert" data-reason="not_a_user_message"' in html
    assert "my words</textarea>" in html
    assert Branch.objects.filter(chat=chat).count() == 1


def test_a_team_members_words_have_their_name_and_are_not_edited(
    page: Client, chat: Chat, messages: list[Message]
) -> None:
    row = messages[2]
    where = f"messages/{row.pk}"
    Message.objects.filter(pk=row.pk).update(
        speaker={"roleId": "ann", "roleName": "Ann <b>", "type": "human"}
    )
    assert "edit" in list_message_actions(messages[0], pin_lock="")
    row.refresh_from_db()
    assert not {"edit", "regenerate"} & {*list_message_actions(row, pin_lock="")}
    html = page.get(get_chat_url(chat, f"{where}/edit")).content.decode()
    assert 'aria-label="Message 3 from Ann &lt;b&gt;, being edited"' in html
    refused = page.post(get_chat_url(chat, f"{where}/edit"), {"text": "my words"})
    assert refused.status_code == 409
    assert 'data-reason="not_a_user_message"' in refused.content.decode()
    assert Branch.objects.filter(chat=chat).count() == 1

    set_sign_in_time(page, timezone.now())
    html = tight(page.get(get_chat_url(chat, f"{where}/erase")).content.decode())
    assert "from<bdi>Ann &lt;b&gt;</bdi></p>" in html
    html = tight(page.get(get_chat_url(chat, f"messages/{messages[0].pk}/erase")).content.decode())
    assert re.search(r"Message 1\b[^<]+, from you</p>", html)


def test_a_reply_is_asked_for_again(
    page: Client, chat: Chat, messages: list[Message], work: Work
) -> None:
    assert "data-live" in act(page, messages[3], "regenerate").content.decode()
    work(Turn.objects.order_by("-accepted")[0], [TextDelta("a better reply"), Finished("stop")])

    html = body(page, chat)
    assert "a better reply" in html
    reply = html.split("a better reply")[1].split("</article>")[0]
    assert 'class="versions" role="group"' in reply
    assert act(page, messages[2], "regenerate").status_code == 409


def test_a_branch_goes_on_behind_a_message_and_the_menu_leads_back(
    page: Client, chat: Chat, messages: list[Message]
) -> None:
    old = chat.active_branch_id

    html = act(page, messages[1], "branch").content.decode()

    assert "the second question" not in html.split('id="branches"')[0]
    whole = page.get(get_chat_url(chat)).content.decode()
    assert "2 branches" in whole
    assert get_chat_url(chat, f"branches/{old}/choose") in whole
    page.post(get_chat_url(chat, f"branches/{old}/choose"), headers=HTMX)
    assert "the second question" in body(page, chat)


def test_a_message_under_a_summary_can_be_marked_and_erased(
    page: Client, chat: Chat, messages: list[Message], summary: Fold
) -> None:
    row = summary(2)
    html = page.get(
        get_chat_url(chat, f"compactions/{row.pk}/originals"), headers=HTMX
    ).content.decode()
    for action in ("pin", "exclude", "erase"):
        assert get_chat_url(chat, f"messages/{messages[0].pk}/{action}") in html

    act(page, messages[0], "pin")

    assert "the first question" in body(page, chat)
    html = page.get(
        get_chat_url(chat, f"compactions/{row.pk}/originals"), headers=HTMX
    ).content.decode()
    assert "always sent" in html
    assert get_chat_url(chat, f"messages/{messages[0].pk}/unpin") in html


def test_erasing_says_what_goes_and_asks_for_a_fresh_sign_in(
    page: Client, chat: Chat, messages: list[Message], summary: Fold
) -> None:
    where = get_chat_url(chat, f"messages/{messages[0].pk}/erase")
    set_sign_in_time(page, timezone.now() - timedelta(hours=1))
    for response in (page.get(where), page.post(where)):
        assert response.headers["Location"] == f"/account/confirm/?next={where}"

    set_sign_in_time(page, timezone.now())
    html = page.get(where).content.decode()
    assert "<h2>Erased</h2>" in html
    assert "<h2>Kept</h2>" in html
    assert "the first question" in html
    assert Message.objects.get(pk=messages[0].pk).erased_at is None

    response = page.post(where)
    assert f"#message-{messages[0].pk}" in response.content.decode()
    assert Message.objects.get(pk=messages[0].pk).text == ""
    assert AuditEvent.objects.filter(type="message.erased").exists()
    assert "the first question" not in body(page, chat)
    assert 'data-note="message-erased"' in page.get(where).content.decode()


def test_a_message_that_is_being_answered_is_not_erased(
    page: Client, chat: Chat, say: Callable[[str], Turn]
) -> None:
    turn = say("hello")
    set_sign_in_time(page, timezone.now())

    response = page.post(get_chat_url(chat, f"messages/{turn.trigger_id}/erase"))

    assert response.status_code == 409
    assert 'id="refusal" data-reason="turn_not_over"' in response.content.decode()


ACTIONS = ("pin", "unpin", "exclude", "include", "regenerate", "branch", "edit", "erase")


@pytest.mark.parametrize("action", ACTIONS)
def test_charlie_may_not_and_reading_changes_nothing(
    page: Client, charlies_page: Client, chat: Chat, messages: list[Message], action: str
) -> None:
    set_sign_in_time(charlies_page, timezone.now())
    before, events = list(Message.objects.order_by("seq").values()), AuditEvent.objects.count()

    assert act(charlies_page, messages[1], action, text="x").status_code == 404
    response = page.get(get_chat_url(chat, f"messages/{messages[1].pk}/{action}"))
    assert response.status_code == (
        405 if action not in {"edit", "erase"} else response.status_code
    )

    assert list(Message.objects.order_by("seq").values()) == before
    assert AuditEvent.objects.count() == events
    assert Branch.objects.filter(chat=chat).count() == 1


def test_a_branch_of_another_chat_is_not_found(
    page: Client, charlies_page: Client, chat: Chat, messages: list[Message]
) -> None:
    nowhere = "00000000-0000-0000-0000-000000000000"
    assert page.post(get_chat_url(chat, f"branches/{nowhere}/choose")).status_code == 404
    where = get_chat_url(chat, f"branches/{chat.active_branch_id}/choose")
    assert charlies_page.post(where).status_code == 404
