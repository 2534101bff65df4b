"""Stop, retry, continue, keep: each shows the current end of the thread."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.actions import lifecycle
from chats.models import Chat, Message, Turn
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.turns.start import start_turn
from chats.web.thread.entries import PLACES
from tests.chats.web.markup import tight
from tests.support.chat_pages import HTMX, get_chat_url, mark_running

Say = Callable[[str], Turn]
Talk = Callable[..., Turn]
Work = Callable[..., Any]

PROVIDER_GONE = ProviderError("provider_timeout", sentence="The provider stopped answering.")


def test_a_queued_reply_is_stopped_at_once(page: Client, chat: Chat, say: Say) -> None:
    turn = say("hello")

    html = page.post(get_chat_url(chat, f"turns/{turn.pk}/stop"), headers=HTMX).content.decode()

    turn.refresh_from_db()
    assert turn.status == Turn.Status.STOPPED
    assert 'data-note="stopped-before-reply"' in html
    assert "Try again" in html
    assert "data-live" not in html


def test_stopping_what_is_over_shows_it(page: Client, chat: Chat, talk: Talk) -> None:
    turn = talk("hello", "all of it")

    response = page.post(get_chat_url(chat, f"turns/{turn.pk}/stop"), headers=HTMX)

    assert response.status_code == 200
    assert "all of it" in response.content.decode()


def test_without_htmx_an_action_leads_back_to_the_end(page: Client, chat: Chat, say: Say) -> None:
    turn = say("hello")

    response = page.post(get_chat_url(chat, f"turns/{turn.pk}/stop"))

    assert response.headers["Location"] == get_chat_url(chat) + "#tail"


def test_a_failed_reply_names_its_cause_and_offers_another_try(
    page: Client, chat: Chat, say: Say, work: Work
) -> None:
    turn = say("hello")
    work(turn, [TextDelta("Half an"), PROVIDER_GONE])

    html = page.get(get_chat_url(chat)).content.decode()

    assert 'data-note="no-complete-reply"' in html
    assert "The provider stopped answering." in html
    assert "incomplete</span>" in tight(html)
    assert f"/turns/{turn.pk}/retry" in html


def test_trying_again_is_a_new_turn_for_the_same_message(
    page: Client, chat: Chat, say: Say, work: Work
) -> None:
    turn = say("hello")
    work(turn, [TextDelta("Half an"), PROVIDER_GONE])

    html = page.post(get_chat_url(chat, f"turns/{turn.pk}/retry"), headers=HTMX).content.decode()

    assert "data-live" in html
    assert 'data-note="no-complete-reply"' not in html
    assert Turn.objects.latest("accepted").trigger_id == turn.trigger_id


def test_an_earlier_failure_offers_nothing_once_the_chat_went_on(
    page: Client, chat: Chat, say: Say, work: Work, talk: Talk
) -> None:
    turn = say("hello")
    work(turn, [TextDelta("Half an"), PROVIDER_GONE])
    talk("again please")

    html = page.get(get_chat_url(chat)).content.decode()

    assert 'data-note="no-complete-reply"' in html
    assert "/retry" not in html


def test_a_refused_action_answers_with_its_sentence(page: Client, chat: Chat, talk: Talk) -> None:
    turn = talk("one")
    talk("two")

    response = page.post(get_chat_url(chat, f"turns/{turn.pk}/retry"), headers=HTMX)

    html = response.content.decode()
    assert response.status_code == 409
    assert 'data-reason="not_the_last_turn"' in html
    assert '<section class="notice ' in html


def test_a_complete_reply_is_not_tried_again(page: Client, chat: Chat, talk: Talk) -> None:
    turn = talk("one", "The reply")

    response = page.post(get_chat_url(chat, f"turns/{turn.pk}/retry"), headers=HTMX)

    assert response.status_code == 409
    assert 'data-reason="turn_completed"' in response.content.decode()
    assert Turn.objects.count() == 1


def test_a_cut_reply_can_be_continued(page: Client, chat: Chat, talk: Talk) -> None:
    turn = talk("hello", "As far as it w", finish="length")
    assert "truncated" in page.get(get_chat_url(chat)).content.decode()

    html = page.post(get_chat_url(chat, f"turns/{turn.pk}/continue"), headers=HTMX).content.decode()

    assert "data-live" in html
    assert Turn.objects.latest("accepted").continues_id == turn.pk


def test_a_continued_reply_stands_behind_the_cut_one(
    page: Client, chat: Chat, talk: Talk, work: Work
) -> None:
    turn = talk("hello", "As far as it w", finish="length")
    page.post(get_chat_url(chat, f"turns/{turn.pk}/continue"))
    work(Turn.objects.latest("accepted"), [TextDelta("ent."), Finished("stop")])

    html = page.get(get_chat_url(chat)).content.decode()

    assert html.index("As far as it w") < html.index("ent.</p>")
    assert "<span>continued</span>" in html
    assert "/continue" not in html


def test_a_complete_reply_offers_no_continuation(page: Client, chat: Chat, talk: Talk) -> None:
    talk("hello")

    assert "/continue" not in page.get(get_chat_url(chat)).content.decode()


def test_an_incomplete_reply_can_be_kept(page: Client, chat: Chat, say: Say, work: Work) -> None:
    turn = say("hello")
    work(turn, [TextDelta("Half an"), PROVIDER_GONE])
    reply = Message.objects.get(role="assistant")
    assert 'data-sent="none"' in page.get(get_chat_url(chat)).content.decode()

    html = page.post(get_chat_url(chat, f"messages/{reply.pk}/keep"), headers=HTMX).content.decode()

    reply.refresh_from_db()
    assert reply.kept
    assert "incomplete, kept" in tight(html)
    assert 'data-sent="none"' not in html


def test_a_queued_reply_says_that_it_waits_for_a_worker(page: Client, chat: Chat, say: Say) -> None:
    turn = say("hello")
    Turn.objects.filter(pk=turn.pk).update(queued_at=timezone.now())

    html = page.get(get_chat_url(chat)).content.decode()

    assert html.index("hello</p>") < html.index("data-live")
    assert 'data-note="waiting-for-worker"' in html
    assert "waiting</span>" not in html


@pytest.mark.parametrize(("seconds", "late"), [(5, False), (31, True)])
def test_a_reply_that_nobody_begins_says_that_no_worker_runs(
    page: Client, chat: Chat, say: Say, seconds: int, late: bool
) -> None:
    turn = say("hello")
    queued_at = timezone.now() - timedelta(seconds=seconds)
    Turn.objects.filter(pk=turn.pk).update(queued_at=queued_at)

    shown = page.get(get_chat_url(chat)).content.decode()
    asked = page.get(get_chat_url(chat, f"turns/{turn.pk}/queue"), headers=HTMX).content.decode()

    for html in (shown, asked):
        assert ('data-note="no-worker"' in html) == late
        assert ('data-before="0"' in html) == late
        assert ('data-note="waiting-for-worker"' in html) != late
        looks = re.search(r'/queue" hx-trigger="load delay:(\d+)s"', tight(html))
        assert (looks is None) == late
        # A second or more may pass until the page is made.
        assert looks is None or 20 <= int(looks[1]) <= 30 - seconds


def test_a_late_reply_has_its_place_in_the_line_and_knows_of_busy_workers(
    page: Client, alice: User, chat: Chat
) -> None:
    long_ago = timezone.now() - timedelta(minutes=1)
    for minutes, text in ((1, "before"), (2, "in progress")):
        other = lifecycle.create_chat(owner=alice, now=long_ago)
        earlier = long_ago - timedelta(minutes=minutes)
        found = start_turn(user=alice, chat=other, text=text, now=earlier).turn
    mark_running(found)
    later = timezone.now() + timedelta(seconds=30)
    Turn.objects.filter(pk=found.pk).update(lease_until=later)
    start_turn(user=alice, chat=chat, text="hello", now=long_ago)

    html = page.get(get_chat_url(chat)).content.decode()

    assert 'data-note="workers-busy"' in html
    assert 'data-before="1"' in html
    assert str(PLACES[1]) in html


def test_a_reply_that_has_begun_waits_for_no_worker(page: Client, chat: Chat, say: Say) -> None:
    turn = say("hello")
    mark_running(turn)

    response = page.get(get_chat_url(chat, f"turns/{turn.pk}/queue"), headers=HTMX)

    assert response.content.strip() == b""


def test_a_reply_says_until_when_its_provider_wants_a_pause(
    page: Client, chat: Chat, say: Say
) -> None:
    turn = say("hello")
    later = timezone.now() + timedelta(minutes=5)
    mark_running(turn)
    Turn.objects.filter(pk=turn.pk).update(waiting_until=later)

    html = page.get(get_chat_url(chat)).content.decode()
    pause = html.partition('<span data-note="provider-pause">')[2].partition("</span>")[0]
    assert f"{later:%H:%M:%S}" in pause
    Turn.objects.filter(pk=turn.pk).update(waiting_until=later - timedelta(minutes=6))
    assert 'data-note="provider-pause"' not in page.get(get_chat_url(chat)).content.decode()


def test_a_page_opened_during_a_reply_shows_the_text_so_far(
    page: Client, chat: Chat, say: Say
) -> None:
    turn = say("hello")
    mark_running(turn)
    Turn.objects.filter(pk=turn.pk).update(partial_text="A **done** part.\n\nAn <open> one")

    html = page.get(get_chat_url(chat)).content.decode()

    assert "A <strong>done</strong> part." in html
    assert "An &lt;open&gt; one</span>" in html
    assert 'aria-busy="true"' in html
