"""Names and hashes of files of skills."""

import hashlib

import pytest

from contextpolicy import skill_files


@pytest.mark.parametrize("name", ["a", "a.md", "forms/refund.csv", "_a/-b/c.d.e", "x" * 200])
def test_relative_paths_are_names(name: str) -> None:
    assert skill_files.is_skill_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".a",
        "a/.b",
        "/a",
        "a/",
        "a//b",
        "a/../b",
        "a b",
        "a\n",
        "ß",
        "a\\b",
        "SKILL.MD",
    ],
)
def test_other_paths_are_no_names(name: str) -> None:
    assert not skill_files.is_skill_file_name(name)


def test_a_hash_is_that_of_the_file_in_utf_8() -> None:
    assert skill_files.hash_file_text("ä\n") == hashlib.sha256("ä\n".encode()).hexdigest()
