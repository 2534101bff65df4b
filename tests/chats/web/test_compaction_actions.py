"""Compaction actions in the chat: each action, its refusal, and its permission."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from chats.compaction import pauses
from chats.models import Chat, Compaction
from contextpolicy.models import AuditEvent
from tests.chats.web.markup import find_action
from tests.support.chat_pages import HTMX, get_chat_url
from tests.support.compactions_on_pages import (
    Fold,
    Policy,
    Talk,
    build_preparing_fields,
    get_branch,
    press_marker_button,
)

PAUSED = 'data-note="compaction-paused"'


def test_a_marker_offers_what_can_be_done_with_it(
    page: Client, chat: Chat, folded: Compaction
) -> None:
    html = page.get(get_chat_url(chat)).content.decode()

    for action in ("undo", "rerun"):
        assert f'action="{get_chat_url(chat, f"compactions/{folded.pk}/{action}")}"' in html
    assert f"{get_chat_url(chat, f'compactions/{folded.pk}/')}?edit=1" in html
    assert "no source" in html


def test_undo_and_redo_swap_the_thread_and_say_where_it_was(
    page: Client, chat: Chat, folded: Compaction
) -> None:
    response = press_marker_button(page, chat, folded, "undo")

    html = response.content.decode()
    assert response.headers["HX-Reswap"] == "none"
    assert f"compaction-{folded.pk}" in response.headers["HX-Trigger-After-Settle"]
    assert 'data-status="undone"' in html
    assert "the first question" in html
    assert f'action="{get_chat_url(chat, f"compactions/{folded.pk}/redo")}"' in html
    assert f'action="{get_chat_url(chat, "resume")}"' in html
    assert get_branch(chat).compaction_paused

    html = press_marker_button(page, chat, folded, "redo").content.decode()
    assert "2 messages summarised" in html
    assert not get_branch(chat).compaction_paused


def test_without_scripts_an_action_leads_back_to_its_marker(
    page: Client, chat: Chat, folded: Compaction
) -> None:
    response = page.post(get_chat_url(chat, f"compactions/{folded.pk}/undo"))
    assert response.headers["Location"] == f"{get_chat_url(chat)}#compaction-{folded.pk}"

    response = page.post(get_chat_url(chat, f"compactions/{folded.pk}/redo"), {"from": "page"})
    assert response.headers["Location"] == get_chat_url(chat, f"compactions/{folded.pk}/")


@pytest.mark.parametrize("origin", ["", "page"])
def test_a_refusal_is_said_on_the_page_that_asked(
    page: Client, chat: Chat, folded: Compaction, policy: Policy, origin: str
) -> None:
    policy(undo_right="nobody")
    where = get_chat_url(chat, f"compactions/{folded.pk}/undo")

    response = page.post(where, {"from": origin})

    html = response.content.decode()
    assert response.status_code == 403
    assert 'data-reason="not_allowed_by_policy"' in html
    assert ('id="ledger"' if origin else 'id="composer"') in html
    response = page.post(where, headers=HTMX)
    assert response.status_code == 403
    assert 'data-reason="not_allowed_by_policy"' in response.content.decode()


def test_what_is_not_in_force_cannot_be_undone(
    page: Client, chat: Chat, folded: Compaction, summary: Fold
) -> None:
    other = summary(2, status="replaced", text="Older.")

    response = press_marker_button(page, chat, other, "undo")

    assert response.status_code == 409
    assert 'data-reason="not_in_force"' in response.content.decode()


def test_the_pause_is_said_and_ended(page: Client, chat: Chat, folded: Compaction) -> None:
    press_marker_button(page, chat, folded, "undo")
    html = page.get(get_chat_url(chat)).content.decode()
    marker = html.split(f'id="compaction-{folded.pk}"')[1].split("</section>")[0]
    assert PAUSED in marker

    html = page.post(get_chat_url(chat, "resume"), headers=HTMX).content.decode()

    assert f'id="compaction-{folded.pk}"' in html
    assert PAUSED not in html
    assert not get_branch(chat).compaction_paused


def test_the_meter_says_the_pause(
    page: Client, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy()
    press_marker_button(page, chat, folded, "undo")

    html = page.get(get_chat_url(chat, "meter")).content.decode()

    line, _, breakdown = html.partition("</summary>")
    assert PAUSED in line
    assert PAUSED in breakdown
    assert get_chat_url(chat, "resume") in breakdown


def test_compact_now_is_asked_for_with_its_focus(page: Client, chat: Chat, policy: Policy) -> None:
    policy()
    assert 'id="compact-now"' in page.get(get_chat_url(chat, "meter")).content.decode()

    html = page.post(
        get_chat_url(chat, "compact"), {"focus": "prices"}, headers=HTMX
    ).content.decode()

    assert 'data-status="asked"' in html
    assert 'data-note="compaction-requested"' in html
    assert "load delay:31s" in html
    asked = get_branch(chat).asked
    assert (asked["focus"], asked["model"]) == ("prices", None)


def test_compact_now_is_refused_in_place(page: Client, chat: Chat, policy: Policy) -> None:
    policy(strategy="sliding_window")

    response = page.post(get_chat_url(chat, "compact"))

    assert response.status_code == 409
    assert 'data-reason="no_summaries"' in response.content.decode()
    assert 'id="compact-now"' not in page.get(get_chat_url(chat)).content.decode()


def test_too_long_a_focus_is_refused(page: Client, chat: Chat, policy: Policy) -> None:
    policy()
    response = page.post(get_chat_url(chat, "compact"), {"focus": "x" * 501})
    assert response.status_code == 422
    assert 'data-reason="focus_too_long"' in response.content.decode()
    assert "501" in response.content.decode()


@pytest.mark.parametrize(("chosen", "model"), [("", None), ("extractive", "")])
def test_a_summary_is_written_again(
    page: Client, chat: Chat, folded: Compaction, policy: Policy, chosen: str, model: str | None
) -> None:
    policy()
    press_marker_button(page, chat, folded, "rerun", summariser=chosen, focus="prices")
    asked = get_branch(chat).asked
    assert (asked["compaction"], asked["model"]) == (str(folded.pk), model)


def test_an_unknown_summariser_is_refused(
    page: Client, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy()
    response = press_marker_button(page, chat, folded, "rerun", summariser="nobody")
    assert response.status_code == 422
    assert 'data-reason="unknown_summariser"' in response.content.decode()


def test_a_summary_that_is_being_written_is_stopped(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("hello")
    row = summary(2, **build_preparing_fields())
    cancel = f'action="{get_chat_url(chat, f"compactions/{row.pk}/cancel")}"'
    assert cancel in page.get(get_chat_url(chat)).content.decode()

    html = press_marker_button(page, chat, row, "cancel").content.decode()

    row.refresh_from_db()
    assert (row.status, row.reason) == ("failed", "cancelled")
    assert 'data-reason="cancelled"' in html
    assert press_marker_button(page, chat, row, "cancel").status_code == 409


def test_a_draft_is_shown_and_approved(page: Client, chat: Chat, draft: Compaction) -> None:
    html = page.get(get_chat_url(chat)).content.decode()
    assert 'data-status="pending_approval"' in html
    assert "The draft." in html

    html = press_marker_button(page, chat, draft, "approve").content.decode()

    assert "2 messages summarised" in html
    response = press_marker_button(page, chat, draft, "approve")
    assert response.status_code == 409
    assert 'data-reason="not_waiting"' in response.content.decode()


def test_a_draft_is_rejected_with_its_reason(page: Client, chat: Chat, draft: Compaction) -> None:
    html = press_marker_button(
        page, chat, draft, "reject", reason="<b>Wrong</b> price"
    ).content.decode()

    assert 'data-reason="rejected_by_person"' in html
    assert "&lt;b&gt;Wrong&lt;/b&gt; price" in html
    assert 'data-act="read-draft"' in html


def test_a_reason_that_is_too_long_is_refused(page: Client, chat: Chat, draft: Compaction) -> None:
    response = press_marker_button(page, chat, draft, "reject", reason="x" * 401)
    draft.refresh_from_db()
    assert (response.status_code, draft.status) == (422, "prepared")


def test_failures_in_a_row_are_told_and_reset(
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

    html = page.get(get_chat_url(chat)).content.decode()
    assert "3 attempts failed in a row" in html
    assert 'data-note="next-attempt"' in html
    assert 'data-note="attempts-paused"' in html
    assert find_action(html, f"act-{row.pk.hex}") == get_chat_url(chat, "reset")

    html = page.post(get_chat_url(chat, "reset"), headers=HTMX).content.decode()
    assert 'data-note="next-attempt"' not in html
    assert 'data-note="attempts-paused"' not in html
    assert find_action(html, f"act-{row.pk.hex}") == get_chat_url(chat, "compact")
    assert not pauses.list_counted_attempts(get_branch(chat)).exists()


ACTIONS = ("undo", "redo", "cancel", "rerun", "approve", "reject", "revise", "weigh")


@pytest.mark.parametrize("action", ACTIONS)
def test_charlie_may_not_and_reading_changes_nothing(
    page: Client, charlies_page: Client, chat: Chat, folded: Compaction, action: str
) -> None:
    before, events = Compaction.objects.values().get(), AuditEvent.objects.count()

    assert press_marker_button(charlies_page, chat, folded, action).status_code == 404
    assert page.get(get_chat_url(chat, f"compactions/{folded.pk}/{action}")).status_code == 405

    assert Compaction.objects.values().get() == before
    assert AuditEvent.objects.count() == events
