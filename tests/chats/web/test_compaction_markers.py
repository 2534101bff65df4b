"""Return the text of a summary's marker."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from chats.compaction.sections import parse_sections
from chats.models import Chat, Compaction, Turn
from tests.chats.web.markup import tight
from tests.support.chat_pages import HTMX, cut_out_chat, get_chat_url, read_page_version
from tests.support.compactions_on_pages import Policy

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]
TEXT = """## Facts
- Eva has **ticket 48213** [#1]
- She waits [#1, #2]
## Decisions
## Open questions
- Who pays? [#9]"""


@pytest.fixture
def marker(page: Client, chat: Chat, talk: Talk, summary: Fold) -> Callable[..., str]:
    """The page with a summary of the first two messages."""

    def showing(**fields: Any) -> str:
        talk("the first question")
        talk("the second question")
        summary(2, **fields)
        return cut_out_chat(page.get(get_chat_url(chat)).content.decode())

    return showing


def test_sections_without_a_line_are_not_shown(marker: Callable[..., str]) -> None:
    html = marker(text=TEXT, sections=parse_sections(TEXT))

    assert "Facts</h3>" in html
    assert "Open questions</h3>" in html
    assert "Decisions" not in html
    assert "<strong>ticket 48213</strong>" in html


def test_a_line_leads_to_the_originals_it_comes_from(marker: Callable[..., str]) -> None:
    html = marker(text=TEXT, sections=parse_sections(TEXT))
    row = Compaction.objects.get()

    address = f"/compactions/{row.pk}/originals?page=1#original-{row.pk}-"
    assert html.count(f'{address}1"') == 2
    assert html.count(f'{address}2"') == 1
    assert f'{address}9"' not in html
    assert "<span>#9</span>" in html


def test_a_summary_that_says_something_outside_its_lines_is_shown_as_it_is(
    marker: Callable[..., str],
) -> None:
    text = f"A word before all.\n\n{TEXT}"
    html = marker(text=text, sections=parse_sections(text))

    assert "A word before all." in html
    assert "Decisions" in html
    assert "data-original" not in html


def test_hostile_words_in_a_summary_stay_words(marker: Callable[..., str]) -> None:
    text = '## <script>alert(1)</script>\n- <img src=x onerror=alert(2)> "><b> [#1]'
    html = marker(
        text=text,
        sections=parse_sections(text),
        retention={"kept": {}, "lost": {"name": ["<script>alert(3)</script>"]}},
    )

    assert "<script>" not in html
    assert "<img" not in html
    assert "&lt;script&gt;alert(3)" in html


def test_it_says_how_many_facts_were_kept_and_which_were_lost(marker: Callable[..., str]) -> None:
    html = tight(
        marker(
            retention={
                "kept": {"number": ["1", "2"], "name": ["Eva"]},
                "lost": {"number": ["3"], "date": ["3 May 2026", "4 May"]},
            }
        )
    )

    assert "3 of 6 checked facts kept" in html
    assert '<dt>Lost dates</dt><dd dir="auto">3 May 2026, 4 May</dd>' in html
    assert '<dt>Lost numbers</dt><dd dir="auto">3</dd>' in html


def test_without_facts_nothing_is_said_of_them(marker: Callable[..., str]) -> None:
    assert "checked fact" not in marker(retention={"kept": {}, "lost": {}, "share": 1.0})


def test_a_refused_summary_says_why_in_words(marker: Callable[..., str]) -> None:
    html = marker(status="rejected", published_at=None, reason="not_smaller, missing_sections")

    assert (
        "the summary was not shorter than the messages that it replaces, the summary lacked" in html
    )
    assert "Prompts did not change. The 2 messages that the summary covers are still sent." in html


def test_the_numbers_are_those_of_the_messages_and_of_the_summary(
    marker: Callable[..., str],
) -> None:
    html = marker(text=TEXT, sections=parse_sections(TEXT))

    assert "12.4k" not in html
    assert "≈ 2" in html or "≈ 1" in html


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"kind": "window", "text": "", "reason": "tokens"}, {"strategy": "sliding_window"}),
        ({"status": "rejected", "reason": "empty", "published_at": None}, {}),
        ({}, {"strategy": "simple", "window_size": 50}),
    ],
    ids=["window", "told", "unused"],
)
def test_the_end_of_a_thread_brings_no_marker_that_stands_before_it(
    page: Client,
    chat: Chat,
    talk: Talk,
    summary: Fold,
    policy: Policy,
    fields: dict[str, Any],
    values: dict[str, Any],
) -> None:
    policy(**values)
    for text in ("one", "two", "three"):
        talk(text)
    row = summary(2, **fields)
    html = page.get(get_chat_url(chat)).content.decode()
    assert html.count(f'id="compaction-{row.pk}"') == 1

    response = page.get(
        get_chat_url(chat, "tail"), {"from": "5", "seen": read_page_version(html)}, headers=HTMX
    )

    html = response.content.decode()
    assert "three" in html
    assert f'id="compaction-{row.pk}"' not in html


def test_a_page_of_earlier_messages_repeats_no_marker(
    page: Client, chat: Chat, talk: Talk, summary: Fold, policy: Policy
) -> None:
    policy(strategy="sliding_window")
    talk("one")
    talk("two")
    row = summary(2, kind="window", text="", reason="tokens")
    html = page.get(get_chat_url(chat), {"before": "3"}, headers=HTMX).content.decode()
    assert "one" in html
    assert f'id="compaction-{row.pk}"' not in html
