"""Names of tools for models, and what several allow-lists allow together."""

import re

import pytest

from contextpolicy.engine.policy.allow_lists import intersect_allow_lists, is_name_allowed
from contextpolicy.tool_servers import LONGEST_WIRE_NAME, build_wire_name

STRANGE = ["read file", "read/file", "x" * 200, "x" * 201, "读", "read.file", "read_file "]


def test_a_plain_name_stays_and_others_are_distinct() -> None:
    assert build_wire_name("files", "read-file") == "files__read-file"
    found = {build_wire_name("files", name) for name in STRANGE}
    assert len(found) == len(STRANGE)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in found)
    assert max(map(len, found)) <= LONGEST_WIRE_NAME


@pytest.mark.parametrize(
    ("lists", "common"),
    [
        ([["a/*"], ["a/read", "b/read"]], ["a/read"]),
        ([["a/read"], ["a/*"]], ["a/read"]),
        ([["a/*"], ["b/*"]], []),
        ([["a/*"], ["a/*"]], ["a/*"]),
        ([["a/read", "a/*"], ["a/*"]], ["a/read", "a/*"]),
        ([["model"], ["model", "other"]], ["model"]),
        ([["a/read"], []], []),
    ],
)
def test_allow_lists_intersect(lists: list[list[str]], common: list[str]) -> None:
    assert intersect_allow_lists(lists) == common


def test_a_server_allows_only_its_own_tools() -> None:
    assert is_name_allowed("a/read", ["a/*"])
    assert not is_name_allowed("ab/read", ["a/*"])
    assert not is_name_allowed("a", ["a/*"])
