"""The page shows the result of a requested compaction, whenever it ends."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from chats.compaction import maintain
from chats.compaction.report.skip_reasons import SENTENCES
from chats.models import Branch, Chat, Compaction, Turn
from chats.web.reasons import NEXT_STEPS, describe_unused_reason
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import PolicyVersion
from tests.chats.web.markup import tight
from tests.support.chat_pages import HTMX, get_chat_url, read_page_version
from tests.support.compactions_on_pages import Policy, press_marker_button

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]
WORDS = "The order 4711 of 3 May 2026 goes to Anna Berg in Oslo. " * 12


def answer(html: str) -> str:
    """The notice."""
    return html.split('id="answer"')[1].split("</section>")[0] if 'id="answer"' in html else ""


def shown(page: Client, chat: Chat) -> str:
    """The notice on the page of the chat."""
    return answer(page.get(get_chat_url(chat)).content.decode())


def work(chat: Chat) -> None:
    """Run the compaction as the worker does."""
    maintain.maintain_chat_context(
        chat_id=chat.pk, counter=ApproximateCounter(), now=timezone.now()
    )


@pytest.fixture
def foldable(chat: Chat, talk: Talk, policy: Policy) -> Chat:
    """Three turns, of which two can be folded."""
    policy(keep_last_messages=2)
    for number in range(3):
        talk(f"Question {number}. {WORDS}", f"Answer {number}. {WORDS}")
    return chat


def test_a_summary_says_how_much_it_folded(page: Client, foldable: Chat) -> None:
    assert shown(page, foldable) == ""
    html = page.post(get_chat_url(foldable, "compact"), headers=HTMX).content.decode()
    assert 'data-status="asked"' in answer(html)
    seen = read_page_version(html)

    work(foldable)

    html = page.get(
        get_chat_url(foldable, "changes"), {"seen": seen}, headers=HTMX
    ).content.decode()
    row = Compaction.objects.get(status="published")
    told = answer(html)
    assert 'data-status="done"' in told
    assert "4 messages" in told
    assert f"{row.tokens_after} tokens" in told
    assert get_chat_url(foldable, f"compactions/{row.pk}/") in told


@pytest.mark.parametrize("turns", [2, 3, 15])
def test_a_chat_shorter_than_what_the_policy_keeps_is_compacted_when_asked_for(
    turns: int, page: Client, chat: Chat, talk: Talk, policy: Policy
) -> None:
    policy()
    for number in range(turns):
        talk(f"Question {number}. {WORDS}", f"Answer {number}. {WORDS}")
    page.post(get_chat_url(chat, "compact"))
    work(chat)
    assert 'data-status="done"' in shown(page, chat)
    row = Compaction.objects.get(status="published")
    assert turns <= row.source_count < 2 * turns
    # The same request again changes nothing, and says so.
    page.post(get_chat_url(chat, "compact"))
    work(chat)
    assert 'data-status="nothing"' in shown(page, chat)
    assert Compaction.objects.count() == 1


def test_without_a_worker_it_says_so(page: Client, foldable: Chat) -> None:
    html = page.post(get_chat_url(foldable, "compact"), headers=HTMX).content.decode()
    assert 'data-status="asked"' in answer(html)
    Branch.objects.update(asked_at=timezone.now() - timedelta(seconds=40))
    data = {"seen": read_page_version(html)}
    html = page.get(get_chat_url(foldable, "changes"), data, headers=HTMX).content.decode()
    assert 'data-status="late"' in answer(html)


def test_it_goes_with_the_next_message(page: Client, foldable: Chat, talk: Talk) -> None:
    page.post(get_chat_url(foldable, "compact"))
    work(foldable)
    assert 'data-status="done"' in shown(page, foldable)
    talk("And now?")
    assert shown(page, foldable) == ""


def test_it_goes_when_the_person_does_something_else(page: Client, foldable: Chat) -> None:
    page.post(get_chat_url(foldable, "compact"))
    work(foldable)
    row = Compaction.objects.get(status="published")
    assert answer(press_marker_button(page, foldable, row, "undo").content.decode()) == ""


def test_with_nothing_to_fold_it_says_why_and_what_to_do(
    page: Client, chat: Chat, talk: Talk, policy: Policy
) -> None:
    policy()
    talk("hello")
    html = page.post(get_chat_url(chat, "compact"), headers=HTMX).content.decode()
    seen = read_page_version(html)

    work(chat)

    html = page.get(get_chat_url(chat, "changes"), {"seen": seen}, headers=HTMX).content.decode()
    told = answer(html)
    reason = Turn.objects.get().compaction_outcome
    assert f'data-status="nothing" data-reason="{reason}"' in tight(told)
    assert SENTENCES[reason] in told
    assert str(NEXT_STEPS[reason]) in told


def test_a_failure_says_that_nothing_changed_and_offers_ways_on(
    page: Client, foldable: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chats.compaction.perform.build_extractive_summary", lambda *a, **k: "")
    page.post(get_chat_url(foldable, "compact"))
    work(foldable)
    row = Compaction.objects.order_by("created_at").last()
    assert row is not None

    told = shown(page, foldable)

    assert f'data-status="failed" data-reason="{row.reason}"' in tight(told)
    assert describe_unused_reason(row.reason) in told
    assert Branch.objects.get(chat=foldable).active_compaction is None
    # No model is set up here, so that the last resort was tried.
    assert row.rung == "extractive"
    assert 'name="summariser"' not in told
    assert told.count(f'action="{get_chat_url(foldable, "compact")}"') == 1
    Compaction.objects.filter(pk=row.pk).update(rung="model")
    told = shown(page, foldable)
    assert told.count(f'action="{get_chat_url(foldable, "compact")}"') == 2
    assert '<input type="hidden" name="summariser" value="extractive">' in told
    page.post(get_chat_url(foldable, "compact"), {"summariser": "extractive"})
    assert Branch.objects.get(chat=foldable).asked["model"] == ""


def test_a_draft_waits_for_approval(page: Client, foldable: Chat) -> None:
    version = PolicyVersion.objects.get()
    PolicyVersion.objects.update(values={**version.values, "approval": "owner"})
    page.post(get_chat_url(foldable, "compact"))
    work(foldable)
    assert 'data-status="pending_approval"' in shown(page, foldable)


def test_what_was_stopped_says_so(page: Client, foldable: Chat) -> None:
    page.post(get_chat_url(foldable, "compact"))
    work(foldable)
    Compaction.objects.update(status="failed", reason="cancelled")
    Branch.objects.update(active_compaction=None)
    assert 'data-status="failed" data-reason="cancelled"' in tight(shown(page, foldable))


def test_a_summary_written_again_says_so_where_it_was_asked_for(
    page: Client, foldable: Chat
) -> None:
    page.post(get_chat_url(foldable, "compact"))
    work(foldable)
    row = Compaction.objects.get(status="published")
    where = get_chat_url(foldable, f"compactions/{row.pk}/")
    page.post(f"{where}rerun", {"from": "page", "summariser": "extractive"})
    html = page.get(where).content.decode()
    assert 'data-status="asked"' in answer(html)
    assert f'hx-get="{where}" hx-trigger="changed, load delay:31s"' in tight(answer(html))

    work(foldable)

    html = page.get(where, headers=HTMX).content.decode()
    assert 'data-status="done_again"' in answer(html)
    assert "4 messages" in answer(html)
    assert "load delay" not in answer(html)
    listed = page.get(get_chat_url(foldable, "compactions/")).content.decode()
    assert 'data-status="done_again"' in answer(listed)
    new = Compaction.objects.get(status="published")
    own = page.get(get_chat_url(foldable, f"compactions/{new.pk}/")).content.decode()
    assert answer(own) == ""


def test_asking_again_on_the_list_stays_there(page: Client, foldable: Chat) -> None:
    page.post(get_chat_url(foldable, "compact"))
    work(foldable)
    Compaction.objects.update(status="failed", reason="cancelled")
    Branch.objects.update(active_compaction=None)
    where = get_chat_url(foldable, "compactions/")
    assert '<input type="hidden" name="from" value="page">' in answer(
        page.get(where).content.decode()
    )
    response = page.post(get_chat_url(foldable, "compact"), {"from": "page"})
    assert response.headers["Location"] == where


def test_a_page_that_waits_in_vain_asks_once(page: Client, foldable: Chat) -> None:
    page.post(get_chat_url(foldable, "compact"))
    where = get_chat_url(foldable, "compactions/")
    assert "load delay:31s" in answer(page.get(where).content.decode())
    Branch.objects.update(asked_at=timezone.now() - timedelta(seconds=40))
    assert "load delay" not in answer(page.get(where).content.decode())


def test_what_happens_by_itself_is_no_answer(page: Client, foldable: Chat) -> None:
    work(foldable)
    assert shown(page, foldable) == ""


def test_the_page_is_drawn_from_rows_without_the_ledger(
    page: Client, foldable: Chat, django_assert_max_num_queries: Any
) -> None:
    page.post(get_chat_url(foldable, "compact"))
    work(foldable)
    with django_assert_max_num_queries(30) as asked:
        assert 'data-status="done"' in shown(page, foldable)
    assert not [query["sql"] for query in asked.captured_queries if "auditevent" in query["sql"]]
