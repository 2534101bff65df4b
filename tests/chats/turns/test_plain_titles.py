"""Titles and search hits show Markdown as plain text."""

import pytest

from chats.ground.texts import strip_inline_signs
from chats.turns.derived_titles import derive_title, is_derived_title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("## Offers for **Oslo**", "Offers for Oslo"),
        ("> - `npm` fails", "npm fails"),
        ("2**3 and snake_case stay", "2**3 and snake_case stay"),
        ("1. First", "1. First"),
        ("***", "***"),
    ],
)
def test_a_title_has_no_signs_of_markdown(text: str, title: str) -> None:
    assert derive_title(text) == title
    assert is_derived_title(title, text=text)


def test_a_title_of_an_older_version_still_belongs_to_its_text() -> None:
    assert is_derived_title("## Offers", text="## Offers")
    assert not is_derived_title("Other", text="## Offers")


def test_a_piece_of_a_search_hit_has_no_signs_of_markdown() -> None:
    assert strip_inline_signs("… ## Plan: **") == "… Plan: "
    assert strip_inline_signs("`code` ~~old~~ 2**3") == "code old 2**3"
