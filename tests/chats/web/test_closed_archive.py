"""A policy that keeps the archive closed: Find, the divider, and what stays legible."""

import pytest
from django.test import Client

from chats.memory.search import archive
from chats.models import Chat, Compaction
from chats.web import find
from tests.support.chat_pages import HTMX, get_chat_url
from tests.support.chat_summaries import reload_branch
from tests.support.compactions_on_pages import Policy, change_policy_values

CLOSED = 'data-note="archive-locked"'


@pytest.fixture
def row(folded: Compaction, policy: Policy) -> Compaction:
    """A summary of the first question, under a policy that leaves the archive open."""
    policy()
    return folded


def html(page: Client, chat: Chat, rest: str = "", **options: object) -> str:
    """A page of the chat."""
    return page.get(get_chat_url(chat, rest), **options).content.decode()  # type: ignore[arg-type]  # as given


@pytest.mark.requirement("S4.5")
def test_find_searches_nothing_where_the_archive_is_closed(
    page: Client, chat: Chat, row: Compaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.index_branch(reload_branch(chat))
    question = {"q": "first question"}
    assert "<mark>" in html(page, chat, "find", data=question)

    change_policy_values(archive=False)
    monkeypatch.setattr(find, "search_archive", lambda *a, **k: pytest.fail("it was searched"))

    answer = page.get(get_chat_url(chat, "find"), question)
    told = answer.content.decode()
    assert answer.status_code == 403
    assert CLOSED in told
    assert "<mark>" not in told
    assert 'data-note="find-hint"' not in told
    assert 'id="find-question"' not in told
    part = page.get(get_chat_url(chat, "find"), question, headers=HTMX)
    assert part.status_code == 200
    assert 'data-reason="archive_closed"' in part.content.decode()


@pytest.mark.requirement("S4.5")
def test_the_divider_offers_originals_only_where_the_archive_is_open(
    page: Client, chat: Chat, row: Compaction
) -> None:
    address = get_chat_url(chat, f"compactions/{row.pk}/originals")
    opened = html(page, chat)
    assert opened.count(address) >= 2
    assert 'id="find-question"' in opened
    assert CLOSED not in opened

    change_policy_values(archive=False)

    closed = html(page, chat)
    assert address not in closed
    assert 'id="find-question"' not in closed
    # At the control of Find, and under the summary.
    assert closed.count(CLOSED) == 2
    assert "ticket 48213" in closed


def test_what_the_archive_holds_stays_legible(page: Client, chat: Chat, row: Compaction) -> None:
    change_policy_values(archive=False)
    whole = html(page, chat, f"compactions/{row.pk}/")
    assert "the first question" in whole
    assert f'href="{get_chat_url(chat, f"compactions/{row.pk}/originals")}' in whole
    originals = html(page, chat, f"compactions/{row.pk}/originals")
    assert "the first question" in originals
    assert 'id="find-question"' not in originals
    page.post(get_chat_url(chat, f"compactions/{row.pk}/undo"))
    assert "the first question" in html(page, chat)


def test_a_policy_that_cannot_be_used_closes_nothing(
    page: Client, chat: Chat, row: Compaction
) -> None:
    change_policy_values(archive=False, allowed_models=["another"])
    assert page.get(get_chat_url(chat, "find"), {"q": "first question"}).status_code == 200


def test_charlie_is_not_told_of_it(charlies_page: Client, chat: Chat, row: Compaction) -> None:
    change_policy_values(archive=False)
    assert charlies_page.get(get_chat_url(chat, "find"), {"q": "x"}).status_code == 404
