"""The page of all compactions of a chat: every row in words, what rests, why there were none."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from chats.models import Chat, Compaction, Message, Turn
from chats.web.compactions.listing import PAGE
from tests.chats.web.conftest import HTMX
from tests.chats.web.markup import tight
from tests.chats.web.test_changes import preparing
from tests.chats.web.test_chat_page import url
from tests.chats.web.test_compaction_actions import Policy, policy

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]

__all__ = ["policy"]


def body(page: Client, chat: Chat, number: int = 1) -> str:
    """The page."""
    response = page.get(url(chat, "compactions/"), {"page": number})
    assert response.status_code == 200
    return response.content.decode()


def line(html: str, row: Compaction) -> str:
    """The line of a compaction."""
    found = [part for part in html.split("<tr>") if f"compactions/{row.pk}/" in part]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "In use"),
        ({"status": "replaced"}, "Replaced by a later one"),
        ({"status": "undone"}, "Undone"),
        (
            {"status": "rejected", "reason": "not_smaller"},
            "not shorter than the messages that it covers",
        ),
        ({"status": "failed", "reason": "provider_timeout"}, "did not respond in time"),
        ({"status": "overtaken", "reason": "context_changed"}, "Outdated before use"),
        ({"status": "prepared", "needs_approval": True}, "Pending approval"),
        ({"status": "prepared"}, "Ready, not in use yet"),
        (preparing(), "Being written"),
        ({"kind": "window", "text": "", "reason": "tokens"}, "the prompt reached its limit"),
    ],
)
def test_every_state_stands_there_in_words(
    page: Client, chat: Chat, talk: Talk, summary: Fold, fields: dict[str, object], words: str
) -> None:
    talk("hello")
    row = summary(2, cost="0.0012", **fields)

    told = line(body(page, chat), row)

    assert words in told
    assert f"{row.get_kind_display()} of 1 to 2" in told
    assert "12,418 → 604" in told
    assert "0.0012" in told


def test_the_chat_leads_to_it(page: Client, chat: Chat, talk: Talk, summary: Fold) -> None:
    talk("hello")
    where = url(chat, "compactions/")
    assert where in page.get(url(chat, "meter")).content.decode()
    assert 'aria-label="1 compaction"' not in page.get(url(chat)).content.decode()

    row = summary(2)

    html = page.get(url(chat)).content.decode()
    assert 'aria-label="1 compaction"' in html
    assert where in page.get(url(chat, f"compactions/{row.pk}/")).content.decode()


def test_an_empty_list_says_so(page: Client, chat: Chat, policy: Policy) -> None:
    policy()
    html = body(page, chat)
    assert "No compactions yet" in html
    assert "when you request it" in html
    assert "<table" not in html


def test_under_a_policy_without_summaries_it_says_that(
    page: Client, chat: Chat, policy: Policy
) -> None:
    policy(strategy="sliding_window")
    html = body(page, chat)
    assert "This policy writes no summaries" in html
    assert "Compact now" not in html


def test_it_comes_in_pages(page: Client, chat: Chat, talk: Talk, summary: Fold) -> None:
    talk("hello")
    for number in range(PAGE + 2):
        row = summary(2, status="rejected", reason="empty", published_at=None)
        later = row.created_at + timedelta(seconds=number)
        Compaction.objects.filter(pk=row.pk).update(created_at=later)

    html = body(page, chat)
    assert html.count('data-label="State"') == PAGE
    assert "?page=2" in html
    assert f"{PAGE + 2} attempts failed" in html
    html = body(page, chat, 2)
    assert html.count('data-label="State"') == 2
    assert 'rel="next"' not in html
    assert "No more compactions" in body(page, chat, 3)


def test_what_was_made_on_another_branch_says_so(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("one")
    talk("two")
    row, early = summary(4), summary(2, status="replaced")
    assert "on another branch" not in line(body(page, chat), row)
    page.post(url(chat, f"messages/{Message.objects.get(seq=2).pk}/branch"))

    assert "on another branch" not in line(body(page, chat), early)
    told = line(body(page, chat), row)
    assert "on another branch" in told
    assert "In use on another branch" in told


def test_rests_are_told_and_ended_here(
    page: Client, chat: Chat, talk: Talk, summary: Fold, policy: Policy
) -> None:
    policy()
    turn = talk("hello")
    at = timezone.now() - timedelta(minutes=2)
    for number in (1, 2, 3):
        row = summary(2, status="rejected", reason="not_smaller", rung="model", attempt=number)
        Compaction.objects.filter(pk=row.pk).update(
            created_at=at + timedelta(seconds=number), effective_policy=turn.effective_policy
        )
    html = body(page, chat)
    assert "The next summary attempt starts at" in html
    assert "3 attempts failed in a row" in html

    response = page.post(url(chat, "reset"), {"from": "page"})

    assert response.headers["Location"] == url(chat, "compactions/")
    assert "The next summary attempt starts at" not in body(page, chat)


def test_a_resting_model_is_told(
    page: Client, chat: Chat, talk: Talk, summary: Fold, policy: Policy
) -> None:
    policy(summarization_model="demo")
    turn = talk("hello")
    at = timezone.now() - timedelta(minutes=2)
    for number in (1, 2, 3):
        row = summary(2, status="failed", reason="provider_timeout", rung="model")
        Compaction.objects.filter(pk=row.pk).update(
            created_at=at + timedelta(seconds=number), model_name="demo"
        )
    row = summary(2, status="replaced", rung="extractive", attempt=4)
    Compaction.objects.filter(pk=row.pk).update(
        created_at=timezone.now(), effective_policy=turn.effective_policy
    )

    html = body(page, chat)
    assert "The summarising model is paused until" in html
    assert f'action="{url(chat, "reset")}"' in html


def test_a_refusal_is_said_on_the_list(page: Client, chat: Chat, policy: Policy) -> None:
    policy(strategy="sliding_window")
    response = page.post(url(chat, "compact"), {"from": "page"})
    html = response.content.decode()
    assert response.status_code == 409
    assert "writes no summaries" in html
    assert "Compactions of this chat</h1>" in html


def test_each_of_the_newest_replies_says_why_nothing_was_folded(
    page: Client, chat: Chat, talk: Talk, policy: Policy
) -> None:
    policy()
    turn = talk("hello")

    html = body(page, chat)

    assert "The prompt was below the size from which a summary is prepared." in html
    assert url(chat, f"turns/{turn.pk}/receipt") in html
    Turn.objects.update(compaction_outcome="keep_last")
    assert "All messages were among the newest ones, which are never summarised." in body(
        page, chat
    )


def test_the_answer_to_a_request_brings_the_rest_of_the_page(
    page: Client, chat: Chat, talk: Talk, summary: Fold, policy: Policy
) -> None:
    policy()
    talk("hello")
    page.post(url(chat, "compact"), {"from": "page"})
    html = body(page, chat)
    where = url(chat, "compactions/")
    notice = re.findall(r'<div id="answer"[^>]*>', tight(html))[0]
    assert f'hx-get="{where}"' in notice
    for part in re.findall(r'hx-select-oob="([^"]+)"', notice)[0].split(","):
        assert html.count(f'id="{part[1:]}"') == 1
    replaced = html[html.index('id="compacting"') :]
    assert "Compaction requested. It starts" in replaced
    assert "No compactions yet" in replaced
    notice = re.findall(r'<div id="answer"[^>]*>', tight(body(page, chat, 2)))[0]
    assert f'hx-get="{where}?page=2"' in notice
    assert "hx-select-oob" not in page.get(url(chat)).content.decode()


def test_charlie_sees_nothing(charlies_page: Client, chat: Chat) -> None:
    assert charlies_page.get(url(chat, "compactions/")).status_code == 404
    assert charlies_page.post(url(chat, "compactions/"), headers=HTMX).status_code == 405
