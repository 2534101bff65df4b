"""A renamed setting is still read under its old name, with a warning."""

import pytest

from project import env


def test_the_old_name_works_for_one_release_and_says_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TURNS_PER_USER", raising=False)
    monkeypatch.setenv("RUNS_PER_USER", "7")

    with pytest.warns(FutureWarning, match="RUNS_PER_USER was renamed to TURNS_PER_USER"):
        assert env.read_positive_int("TURNS_PER_USER", 4) == 7


def test_the_new_name_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNS_PER_USER", "3")
    monkeypatch.setenv("RUNS_PER_USER", "7")

    assert env.read_positive_int("TURNS_PER_USER", 4) == 3
