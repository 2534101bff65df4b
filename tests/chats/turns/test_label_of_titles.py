"""A title that a model labels as one in its language is stored without the label."""

import pytest

from chats.background.titles import parse_title


@pytest.mark.parametrize(
    ("written", "title", "said"),
    [
        ("Title: Trip to Oslo", "Trip to Oslo", "A trip to Oslo"),
        ("**Titel:** Reise nach Oslo", "Reise nach Oslo", "Meine Reise nach Oslo"),
        ("标题：挪威旅行计划", "挪威旅行计划", "帮我做挪威旅行计划"),
        ("**标题**：挪威旅行", "挪威旅行", "挪威旅行"),
        ("「標題: 挪威旅行」", "挪威旅行", "挪威旅行"),
        ("Título: Viaje a Oslo", "Viaje a Oslo", "Un viaje a Oslo"),
        ("Titles of Oslo", "Titles of Oslo", "Titles of Oslo"),
    ],
)
def test_the_label_is_removed(written: str, title: str, said: str) -> None:
    assert parse_title(written, said=said) == title
