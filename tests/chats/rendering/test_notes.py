"""Footnotes: numbering, position at the end, links within one message, complete text."""

import re

import pytest

from chats.rendering.markdown import render_markdown
from chats.rendering.notes import link_footnotes

TEXT = "One[^b] and two[^a], one again[^b].\n\n[^a]: **Note** a.\n[^b]: Note b.\n\n    More of b."


def test_numbers_follow_the_text_and_notes_stand_at_its_end() -> None:
    html = render_markdown(TEXT)

    assert re.findall(r"<sup[^>]*>(\d)</sup>", html) == ["1", "2", "1"]
    notes = html.partition('<ol class="notes">')[2]
    assert re.findall(r'<li class="note" value="(\d)"', notes) == ["1", "2"]
    assert notes.index("More of b.") < notes.index("<strong>Note</strong> a.")


def test_what_is_stored_has_neither_ids_nor_links() -> None:
    html = render_markdown(TEXT)

    assert " id=" not in html
    assert "href" not in html


def test_links_lead_to_the_note_and_back_within_their_message() -> None:
    html = link_footnotes(render_markdown(TEXT), key="m7") + link_footnotes(
        render_markdown(TEXT), key="m8"
    )
    ids = re.findall(r' id="([^"]+)"', html)

    assert len(ids) == len(set(ids)) == 8
    assert set(re.findall(r'href="#([^"]+)"', html)) == set(ids)
    assert "target" not in html
    assert 'aria-label="Back to the text, 1"' in html


def test_a_text_that_looks_like_a_footnote_s_html_is_left_alone() -> None:
    text = '`<sup class="note first">1</sup>` <li class="note" value="1" x'
    html = render_markdown(text)

    assert link_footnotes(html, key="m7") == html


@pytest.mark.parametrize(
    "text",
    [
        "[^a]: nobody asked",
        "[^a]:\n\n    ```\n    nobody asked\n    ```",
        "x[^a]\n\n[^a]: the first\n[^a]: nobody asked",
        "[^a]: x\n    [^b]: nobody asked",
        "x[^a]\n\n[^a]: x\n    [^b]: nobody asked\n",
        "x[^a] y[^b]\n\n[^a]: x\n\n    [^b]: nobody asked\n",
        "> [^a]: nobody asked",
        "- [^a]: nobody asked",
        "[^" + "a" * 100 + "]: nobody asked",
    ],
)
def test_no_word_of_a_note_is_dropped(text: str) -> None:
    assert "nobody asked" in render_markdown(text)


def test_a_number_without_a_note_stays_as_it_was_written() -> None:
    assert "x[^1]" in render_markdown("x[^1]")
