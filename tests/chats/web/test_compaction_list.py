"""The page of all compactions of a chat: every row in words, what rests, why there were none."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from chats.compaction.report.skip_reasons import SENTENCES
from chats.models import Chat, Compaction, Message, Turn
from chats.web.compactions.listing import PAGE
from chats.web.reasons import NOT_USED, WINDOW_REASONS
from tests.chats.web.markup import tight
from tests.support.chat_pages import HTMX, get_chat_url
from tests.support.compactions_on_pages import Policy, build_preparing_fields

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]


def body(page: Client, chat: Chat, number: int = 1) -> str:
    """The page."""
    response = page.get(get_chat_url(chat, "compactions/"), {"page": number})
    assert response.status_code == 200
    return response.content.decode()


def line(html: str, row: Compaction) -> str:
    """The line of a compaction."""
    found = [part for part in html.split("<tr>") if f"compactions/{row.pk}/" in part]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "in_use"),
        ({"status": "replaced"}, "replaced"),
        ({"status": "undone"}, "undone"),
        ({"status": "rejected", "reason": "not_smaller"}, "rejected"),
        ({"status": "failed", "reason": "provider_timeout"}, "failed"),
        ({"status": "overtaken", "reason": "context_changed"}, "overtaken"),
        ({"status": "prepared", "needs_approval": True}, "pending_approval"),
        ({"status": "prepared"}, "prepared"),
        (build_preparing_fields(), "preparing"),
        ({"kind": "window", "text": "", "reason": "tokens"}, "in_use"),
    ],
)
def test_every_state_stands_there_in_words(
    page: Client, chat: Chat, talk: Talk, summary: Fold, fields: dict[str, object], code: str
) -> None:
    talk("hello")
    row = summary(2, cost="0.0012", **fields)

    told = tight(line(body(page, chat), row))

    assert re.search(rf'data-status="{code}">\w', told)
    if reason := fields.get("reason"):
        words = NOT_USED.get(row.reason) or WINDOW_REASONS[row.reason]
        assert f'data-reason="{reason}">{words}</span>' in told
    assert f"{row.get_kind_display()} of messages 1 to 2" in told
    assert "12,418 → 604" in told
    assert "0.0012" in told


def test_the_chat_leads_to_it(page: Client, chat: Chat, talk: Talk, summary: Fold) -> None:
    talk("hello")
    where = get_chat_url(chat, "compactions/")
    assert where in page.get(get_chat_url(chat, "meter")).content.decode()
    assert 'aria-label="1 compaction"' not in page.get(get_chat_url(chat)).content.decode()

    row = summary(2)

    html = page.get(get_chat_url(chat)).content.decode()
    assert 'aria-label="1 compaction"' in html
    assert where in page.get(get_chat_url(chat, f"compactions/{row.pk}/")).content.decode()


def test_an_empty_list_says_so(page: Client, chat: Chat, policy: Policy) -> None:
    policy()
    html = body(page, chat)
    assert 'data-note="no-compactions"' in html
    assert 'data-note="summaries-at-limit"' in html
    assert 'id="compact-now"' in html
    assert "<table" not in html


def test_under_a_policy_without_summaries_it_says_that(
    page: Client, chat: Chat, policy: Policy
) -> None:
    policy(strategy="sliding_window")
    html = body(page, chat)
    assert 'data-note="policy-without-summaries"' in html
    assert 'data-note="summaries-at-limit"' not in html
    assert 'id="compact-now"' not in html


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
    assert 'data-note="no-more-compactions"' in body(page, chat, 3)


def test_what_was_made_on_another_branch_says_so(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("one")
    talk("two")
    row, early = summary(4), summary(2, status="replaced")
    note = 'data-note="on-another-branch"'
    assert note not in line(body(page, chat), row)
    page.post(get_chat_url(chat, f"messages/{Message.objects.get(seq=2).pk}/branch"))

    assert note not in line(body(page, chat), early)
    told = line(body(page, chat), row)
    assert note in told
    assert 'data-status="published"' in told


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
    assert 'data-note="attempts-paused"' in html
    assert "3 attempts failed in a row" in html

    response = page.post(get_chat_url(chat, "reset"), {"from": "page"})

    assert response.headers["Location"] == get_chat_url(chat, "compactions/")
    assert 'data-note="attempts-paused"' not in body(page, chat)


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
    assert 'data-note="model-paused"' in html
    assert f'action="{get_chat_url(chat, "reset")}"' in html


def test_a_refusal_is_said_on_the_list(page: Client, chat: Chat, policy: Policy) -> None:
    policy(strategy="sliding_window")
    response = page.post(get_chat_url(chat, "compact"), {"from": "page"})
    html = response.content.decode()
    assert response.status_code == 409
    assert 'data-reason="no_summaries"' in html
    assert 'id="compacted"' in html


def test_each_of_the_newest_replies_says_why_nothing_was_folded(
    page: Client, chat: Chat, talk: Talk, policy: Policy
) -> None:
    policy()
    turn = talk("hello")

    html = body(page, chat)

    assert 'data-reason="below_threshold"' in html
    assert SENTENCES["below_threshold"] in html
    assert get_chat_url(chat, f"turns/{turn.pk}/receipt") in html
    Turn.objects.update(compaction_outcome="keep_last")
    assert 'data-reason="keep_last"' in body(page, chat)


def test_the_answer_to_a_request_brings_the_rest_of_the_page(
    page: Client, chat: Chat, talk: Talk, summary: Fold, policy: Policy
) -> None:
    policy()
    talk("hello")
    page.post(get_chat_url(chat, "compact"), {"from": "page"})
    html = body(page, chat)
    where = get_chat_url(chat, "compactions/")
    notice = re.findall(r'<div id="answer"[^>]*>', tight(html))[0]
    assert f'hx-get="{where}"' in notice
    for part in re.findall(r'hx-select-oob="([^"]+)"', notice)[0].split(","):
        assert html.count(f'id="{part[1:]}"') == 1
    replaced = html[html.index('id="compacting"') :]
    assert 'data-note="compaction-requested"' in replaced
    assert 'data-note="no-compactions"' in replaced
    notice = re.findall(r'<div id="answer"[^>]*>', tight(body(page, chat, 2)))[0]
    assert f'hx-get="{where}?page=2"' in notice
    assert "hx-select-oob" not in page.get(get_chat_url(chat)).content.decode()


def test_charlie_sees_nothing(charlies_page: Client, chat: Chat) -> None:
    assert charlies_page.get(get_chat_url(chat, "compactions/")).status_code == 404
    assert charlies_page.post(get_chat_url(chat, "compactions/"), headers=HTMX).status_code == 405
