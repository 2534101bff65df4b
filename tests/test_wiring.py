"""Names that two places must agree on."""

import re
from typing import Any

import pytest

from chats import tasks
from chats.ground import queue
from project import env
from project.celery import app
from tests.support.repository import ROOT


def test_every_enqueued_name_is_a_registered_task() -> None:
    assert tasks.run_turn.name == queue.RUN_TURN
    registered = {name for name in app.tasks if name.startswith("chats.")}
    assert registered == queue.TASKS


@pytest.mark.requirement("S0.4")
@pytest.mark.parametrize("value", ["0", "-3", "twelve", "1.5", "١٢"])
@pytest.mark.parametrize("name", ["HISTORY_WINDOW", "MAX_CHARS_PER_MESSAGE", "TG_HISTORY_WINDOW"])
def test_a_limit_that_is_no_positive_number_names_its_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    window = name != "MAX_CHARS_PER_MESSAGE"
    with pytest.raises(env.Misconfigured, match=name):
        _ = env.read_history_window() if window else env.read_positive_int(name, 4000)


DURATIONS = {
    env.read_days: 36_500,
    env.read_hours: 876_000,
    env.read_seconds: 3_153_600_000,
}


@pytest.mark.parametrize(("read", "most"), DURATIONS.items())
def test_a_duration_has_an_upper_limit(
    read: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (str(most + 1), "9" * 15, "9" * 5000):
        monkeypatch.setenv("SOME_DURATION", value)
        with pytest.raises(env.Misconfigured, match="SOME_DURATION"):
            read("SOME_DURATION", 7)
    monkeypatch.setenv("SOME_DURATION", str(most))
    assert read("SOME_DURATION", 7) == most


def test_every_duration_setting_has_an_upper_limit() -> None:
    name = re.compile(r"(?:_(?:DAYS|HOURS|SECONDS|EVERY|AFTER|TIMEOUT|DELAY|MAX))$")
    readers = {
        match[2]: match[1]
        for file in (ROOT / "project").glob("*.py")
        for match in re.finditer(r"read_(\w+)\(\s*\"([A-Z_]+)\"", file.read_text("utf-8"))
        if name.search(match[2])
    }
    assert len(readers) > 20
    assert set(readers.values()) == {"days", "hours", "seconds"}


def test_the_largest_number_of_a_database_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMPORT_UNPACKED_BYTES", "9223372036854775807")
    assert env.read_positive_int("IMPORT_UNPACKED_BYTES", 1) == 2**63 - 1
    for value in ("9223372036854775808", "9" * 5000):
        monkeypatch.setenv("IMPORT_UNPACKED_BYTES", value)
        with pytest.raises(env.Misconfigured, match="at most 9223372036854775807"):
            env.read_positive_int("IMPORT_UNPACKED_BYTES", 1)


@pytest.mark.requirement("S0.4")
def test_the_older_name_of_the_window_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TG_HISTORY_WINDOW", "7")
    assert env.read_history_window() == 7
    monkeypatch.setenv("HISTORY_WINDOW", "9")
    assert env.read_history_window() == 9


@pytest.mark.requirement("S0.4")
def test_the_defaults_are_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.read_history_window() == 12
    assert env.read_positive_int("MAX_CHARS_PER_MESSAGE", 4000) == 4000
