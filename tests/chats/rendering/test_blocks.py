"""Closed blocks of a growing text: rendering block by block equals rendering the whole text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.rendering.blocks import find_closed_offset
from chats.rendering.markdown import render_markdown

PARAGRAPH = "Some words.\n"


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("", ""),
        ("one", ""),
        ("one\n", ""),
        ("one\n\n", ""),
        ("one\n\nt", "one\n\n"),
        ("- a\n\nt", "- a\n\n"),
        ("- a\n\n-", ""),
        ("one\n- a\n\n- b\n", ""),
        (" 1. a\n\n2. b\n", ""),
        ("1. a\n\n2", ""),
        ("1. a\n\n23", ""),
        ("1. a\n\n2.", ""),
        ("1. a\n\n2x", "1. a\n\n"),
        ("one\n\n  ", ""),
        ("one\n\ntwo\n", "one\n\n"),
        ("one\ntwo\n\nthree\n", "one\ntwo\n\n"),
        ("- a\n\n- b\n", ""),
        ("1. a\n\n2. b\n\nend\n", "1. a\n\n2. b\n\n"),
        ("- a\n\n  more of a\n", ""),
        ("- a\n\nend\n", "- a\n\n"),
        ("```\na\n\nb\n", ""),
        ("```\na\n\nb\n```\n", "```\na\n\nb\n```\n"),
        ("~~~\n```\n\n~~~\n", "~~~\n```\n\n~~~\n"),
        ("````\n```\n\nx\n", ""),
        ("one\n\n```\na\n\nb", "one\n\n"),
        ("one\n```\na\n\nb", "one\n"),
        ("| a |\n|---|\n| b |\n", ""),
    ],
)
def test_only_what_cannot_change_is_closed(text: str, closed: str) -> None:
    assert text[: find_closed_offset(text)] == closed


LINES = st.sampled_from(
    [
        "a b",
        "**c**",
        "",
        "",
        "- x",
        " - v",
        "  y",
        "1. z",
        "> q",
        "```",
        "~~~py",
        "# h",
        "| a |",
        "|---|",
        "---",
    ]
)


@given(st.lists(LINES, max_size=14).map(lambda lines: "".join(f"{line}\n" for line in lines)))
def test_the_closed_part_and_the_rest_look_as_the_whole(text: str) -> None:
    closed = find_closed_offset(text)

    whole = render_markdown(text)
    parts = render_markdown(text[:closed]) + render_markdown(text[closed:])
    assert words_and_blocks(parts) == words_and_blocks(whole)


def words_and_blocks(html: str) -> str:
    """Collapse whitespace, which browsers do not display."""
    return re.sub(r"\s+", " ", html).strip()


@given(st.lists(LINES, max_size=14).map(lambda lines: "".join(f"{line}\n" for line in lines)))
def test_what_is_closed_stays_closed_letter_by_letter(text: str) -> None:
    before = 0
    for end in range(len(text)):
        after = find_closed_offset(text[:end])
        assert after >= before
        assert text[:after] == text[: find_closed_offset(text)][:after]
        before = after
