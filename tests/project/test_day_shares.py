"""Files of properties take turns: on one day of each group a file has more examples."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.faults import shares

FILES = [f"tests/engine/test_file_{number}.py" for number in range(200)]
LONGEST = [f"tests/engine/{name}.py" for name in ("test_engine_laws", "test_engine_laws_in_time")]


def test_each_file_has_one_day_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "EVERY_ROW", False)
    days: dict[str, list[int]] = {file: [] for file in FILES}
    for day in range(20_001, 20_001 + shares.PARTS):
        monkeypatch.setattr(shares, "DAY", day)
        for file in FILES:
            days[file] += [day] if shares.is_of_today(file) else []
    assert {len(each) for each in days.values()} == {1}
    assert len({each[0] for each in days.values()}) == shares.PARTS


def test_the_two_longest_files_have_different_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "EVERY_ROW", False)
    for day in range(20_001, 20_001 + shares.PARTS):
        monkeypatch.setattr(shares, "DAY", day)
        assert sum(shares.is_of_today(file) for file in LONGEST) <= 1
    assert all((Path(__file__).parents[2] / file).exists() for file in LONGEST)


def test_without_a_day_no_file_has_more_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "EVERY_ROW", False)
    monkeypatch.setattr(shares, "DAY", 0)
    assert not any(shares.is_of_today(file) for file in FILES)


def test_the_profile_of_this_file_was_loaded_before_its_import(
    pytestconfig: pytest.Config,
) -> None:
    chosen = pytestconfig.getoption("--hypothesis-profile")
    of_today = "whole" if shares.is_of_today("tests/project/test_day_shares.py") else "short"
    assert settings.get_profile(chosen or of_today).max_examples == LOADED


# The examples that a property of this file would have.
LOADED = settings().max_examples
