"""The page of requirements lists each requirement once, and names code and pages that exist."""

import re

from tests.requirements_plugin import people
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
IDS = re.compile(r"^\| (S\d\.\d+) \|", re.MULTILINE)
PATHS = re.compile(r"`((?:chats|contextpolicy|project)/[\w/.]+)`")


def test_each_requirement_has_one_row_in_order() -> None:
    assert IDS.findall(PAGE) == [name for name in people() if not name.startswith("S5")]


def test_each_row_names_code_that_exists() -> None:
    rows = [line for line in PAGE.splitlines() if IDS.match(line)]
    named = [PATHS.findall(row) for row in rows]
    assert all(named)
    assert [path for paths in named for path in paths if not (ROOT / path).exists()] == []
