"""An admin action on many rows has a limit and few messages."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from chats.admin import confirm
from chats.ground.refusals import Refusal


class Page:
    """Stands for an admin page, and keeps its messages."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def message_user(self, _request: Any, words: str, _level: int, code: str) -> None:
        self.said.append((code, words))


def run_action(rows: int, *, refused: int = 0) -> tuple[list[tuple[str, str]], int]:
    """Run an action; return the messages and the number of attempted rows."""
    page, tried = Page(), []

    def act(row: Any) -> None:
        tried.append(row)
        if row.number < refused:
            raise Refusal

    request: Any = SimpleNamespace(POST={"action": "act"})
    found = [SimpleNamespace(number=number) for number in range(rows)]
    confirm.apply_to_rows(
        cast(Any, page),
        request,
        cast(Any, found),
        action=act,
        done="done.",
        name=lambda row: f"Row {cast(Any, row).number}",
    )
    return page.said, len(tried)


@pytest.mark.parametrize(
    ("rows", "words"), [(1, "Row 0: done."), (3, "3 rows: done."), (500, "500 rows: done.")]
)
def test_changed_rows_are_counted_in_one_message(rows: int, words: str) -> None:
    assert run_action(rows) == ([("act", words)], rows)


def test_more_rows_than_the_limit_do_not_change() -> None:
    [(code, words)], tried = run_action(501)
    assert (code, tried) == ("too_many_rows", 0)
    assert "more than 500 rows" in words


def test_only_the_first_refusals_are_listed() -> None:
    said, _ = run_action(70, refused=60)
    codes = [code for code, _ in said]
    assert codes == ["act", *["refused"] * 50, "more_refused"]
    assert said[0][1] == "10 rows: done."
    assert said[-1][1] == "10 more rows were refused."
