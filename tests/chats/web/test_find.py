"""Find in originals: messages covered by a summary or window are found and lead to the original."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.test import Client

from chats.memory.search import archive
from chats.memory.search.marking import find_question_matches, select_match_excerpt, split_excerpt
from chats.memory.search.question import parse_question
from chats.memory.search.search import LONGEST, QuestionTooLong, search_archive
from chats.models import Branch, Chat, Compaction, Message, Turn
from chats.web.find import MOST
from chats.web.thread.compaction_marker import ORIGINALS_PAGE
from tests.support.chat_pages import HTMX, get_chat_url

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]


@pytest.fixture
def covered(chat: Chat, talk: Talk, summary: Fold) -> Compaction:
    """Three turns, two of them under a summary."""
    talk("The <b>compressor</b> board failed in Oslo", "Order board 77-2041 for it.")
    talk("What about the compressor fan?", "It still works.")
    talk("And the compressor belt?", "Nobody knows.")
    return summary(4)


def found(page: Client, chat: Chat, question: str) -> str:
    """The part with the matches, once the index has caught up."""
    archive.index_branch(Branch.objects.select_related("active_compaction").get(chat=chat))
    return page.get(get_chat_url(chat, "find"), {"q": question}, headers=HTMX).content.decode()


def test_it_finds_originals_alone_and_leads_to_each(
    page: Client, chat: Chat, covered: Compaction
) -> None:
    html = found(page, chat, "compressors board")

    assert html.strip().startswith('<div class="found" id="found"')
    first = Message.objects.get(seq=1)
    address = get_chat_url(chat, f"compactions/{covered.pk}/originals")
    assert f'href="{address}?page=1#original-{covered.pk}-1"' in html
    assert f'datetime="{first.created_at.isoformat()}"' in html
    assert "&lt;b&gt;<mark>compressor</mark>&lt;/b&gt; <mark>board</mark> failed" in html
    assert "belt" not in html
    assert f'id="original-{covered.pk}-1"' in page.get(f"{address}?page=1").content.decode()


def test_what_is_not_indexed_yet_is_said_and_nothing_is_indexed_by_looking(
    page: Client, chat: Chat, covered: Compaction
) -> None:
    def look() -> str:
        return page.get(
            get_chat_url(chat, "find"), {"q": "compressor"}, headers=HTMX
        ).content.decode()

    html = look()
    assert re.search(r'data-note="not-indexed">\s*4 ', html)
    assert "<mark>" not in html
    assert look() == html
    assert 'data-note="not-indexed"' not in found(page, chat, "compressor")


def test_the_order_is_that_of_the_tool(page: Client, chat: Chat, covered: Compaction) -> None:
    branch = Branch.objects.select_related("active_compaction").get(chat=chat)
    html = found(page, chat, "compressor fan")
    rows = search_archive(branch, question="compressor fan", most=MOST).rows
    places = [html.index(f"#original-{covered.pk}-{row.seq}") for row in rows]
    assert len(places) > 1
    assert places == sorted(places)


def test_a_match_behind_a_window_leads_to_the_window(
    page: Client, chat: Chat, covered: Compaction, summary: Fold
) -> None:
    window = summary(6, kind="window", text="", reason="tokens", base=covered, from_seq=5)
    html = found(page, chat, "belt")
    assert f"compactions/{window.pk}/originals?page=1#original-{window.pk}-5" in html
    page_ = page.get(get_chat_url(chat, f"compactions/{window.pk}/originals")).content.decode()
    assert 'data-note="left-out-by-window"' in page_


def test_a_match_of_a_later_page_leads_there(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    for number in range(ORIGINALS_PAGE // 2 + 1):
        talk(f"Question {number}", f"Answer {number}")
    talk("Where is the zebra?")
    row = summary(ORIGINALS_PAGE + 4)
    assert f"page=2#original-{row.pk}-{ORIGINALS_PAGE + 3}" in found(page, chat, "zebra")


def test_without_scripts_it_is_a_page_of_its_own(
    page: Client, chat: Chat, covered: Compaction
) -> None:
    html = page.get(get_chat_url(chat)).content.decode()
    assert (
        f'<form class="find" role="search" action="{get_chat_url(chat, "find")}" method="get"'
        in html
    )

    archive.index_branch(Branch.objects.select_related("active_compaction").get(chat=chat))
    html = page.get(get_chat_url(chat, "find"), {"q": "fan"}).content.decode()

    assert '<form class="find" role="search"' in html
    assert 'value="fan"' in html
    assert "<mark>fan</mark>" in html


def test_nothing_found_says_so_in_words(page: Client, chat: Chat, covered: Compaction) -> None:
    html = found(page, chat, '<script>"')
    assert re.search(r'data-note="no-match">[^<]* 1 to 4 ', html)
    assert "<script>" not in html
    assert re.search(r'data-note="find-hint">[^<]* 1 to 4,', found(page, chat, "  "))


def test_without_originals_it_says_where_everything_is(
    page: Client, chat: Chat, talk: Talk
) -> None:
    talk("hello")
    assert 'id="find"' not in page.get(get_chat_url(chat)).content.decode()
    assert 'data-note="no-originals"' in found(page, chat, "hello")


def test_excluded_and_erased_messages_are_not_found(
    page: Client, chat: Chat, covered: Compaction
) -> None:
    Message.objects.filter(seq=1).update(excluded=True)
    assert "Oslo" not in found(page, chat, "Oslo compressor")


def test_a_question_that_is_too_long_is_refused(
    page: Client, chat: Chat, covered: Compaction
) -> None:
    refusal = QuestionTooLong(length=LONGEST + 1, limit=LONGEST)
    response = page.get(get_chat_url(chat, "find"), {"q": "x" * (LONGEST + 1)})
    assert response.status_code == 422
    assert refusal.localized in response.content.decode()
    assert f'data-reason="{refusal.code}"' in found(page, chat, "x" * (LONGEST + 1))


def test_charlie_finds_nothing(charlies_page: Client, chat: Chat, covered: Compaction) -> None:
    response = charlies_page.get(get_chat_url(chat, "find"), {"q": "compressor"})
    assert response.status_code == 404
    assert "Oslo" not in response.content.decode()


def shown_of(text: str, question: str) -> list[tuple[str, bool]]:
    """Return the excerpt of a match."""
    marks = find_question_matches(
        text, parse_question(question, at=datetime(2026, 11, 23, tzinfo=UTC))
    )
    return split_excerpt(text, marks, part=select_match_excerpt(text, marks))


def test_the_words_around_a_match_begin_and_end_between_words() -> None:
    text = "so it goes " * 40 + "the needle is here " + "and on " * 60

    shown = shown_of(text, "needles")

    assert [piece for piece, hit in shown if hit] == ["needle"]
    assert shown[0] == ("… ", False)
    assert shown[1][0].split()[0] in {"so", "it", "goes"}
    assert shown[-1] == (" …", False)


def test_a_message_that_only_its_neighbours_explain_is_shown_from_its_beginning() -> None:
    assert shown_of("It still works.", "fan") == [("It still works.", False)]
    assert shown_of("", "fan") == []


PLANNER = {"roleId": "planner", "roleName": "Trip <b>Planner", "type": "ai"}


def test_a_chat_of_a_team_is_searched_by_speaker(
    page: Client, chat: Chat, covered: Compaction
) -> None:
    Message.objects.filter(branch__chat=chat, role="assistant").update(speaker=PLANNER)
    html = found(page, chat, "compressor fan board")
    # The form is already on the page and gets the choice with the first matches.
    assert 'id="find-speaker" hx-swap-oob="true"' in html
    assert '<option value="planner" dir="auto">Trip &lt;b&gt;Planner</option>' in html
    assert '<option value="user" dir="auto">You</option>' in html

    query = {"q": "board", "speaker": "planner"}
    html = page.get(get_chat_url(chat, "find"), query).content.decode()
    assert "hx-swap-oob" not in html
    assert '<option value="planner" dir="auto" selected>' in html
    assert "77-2041" in html
    assert f"original-{covered.pk}-1" not in html
    assert "<bdi><b>Trip &lt;b&gt;Planner</b></bdi>" in html
    mine = page.get(get_chat_url(chat, "find"), {**query, "speaker": "user"}).content.decode()
    assert f"original-{covered.pk}-1" in mine
    assert "77-2041" not in mine
    none = page.get(get_chat_url(chat, "find"), {**query, "speaker": "nobody"}).content.decode()
    assert re.search(r'data-note="no-speaker-match">[^<]* 1 to 4 ', none)


def test_a_chat_without_roles_offers_no_speaker(
    page: Client, chat: Chat, covered: Compaction
) -> None:
    assert "hx-swap-oob" not in found(page, chat, "compressor")
    html = page.get(get_chat_url(chat, "find"), {"q": "compressor"}).content.decode()
    assert 'name="speaker"' not in html
    assert 'id="find-speaker"' in html
