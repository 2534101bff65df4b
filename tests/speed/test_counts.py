"""Remembered token counts equal fresh ones, and the memory stays small."""

from typing import Any

import pytest

from speed import counts
from speed.counts import SHORTEST, CountCache


def cache() -> tuple[CountCache, list[str]]:
    """Return a cache and the list of the texts that it really counts."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text.split())

    return CountCache(count), counted


def test_a_long_text_is_counted_once(settings: Any) -> None:
    settings.SPEED = True
    found, counted = cache()
    text = "one two " * SHORTEST
    assert found.count(text) == found.count(text) == 2 * SHORTEST
    assert counted == [text]


@pytest.mark.parametrize("end", ["a", "\ud800", "\0", "é", "e\u0301"])
def test_texts_that_differ_in_one_character_have_separate_counts(end: str) -> None:
    found, counted = cache()
    text = "x" * SHORTEST
    assert found.count(f"{text} {end}") == 2
    assert found.count(f"{text}{end}") == 1
    assert len(counted) == 2


def test_without_speed_each_text_is_counted_again(settings: Any) -> None:
    settings.SPEED = False
    found, counted = cache()
    text = "x " * SHORTEST
    assert found.count(text) == found.count(text)
    assert len(counted) == 2


def test_the_memory_has_a_limit(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SPEED = True
    monkeypatch.setattr(counts, "MOST_KNOWN", 3)
    found, counted = cache()
    texts = [f"{number} " * SHORTEST for number in range(9)]
    for text in texts:
        assert found.count(text) == SHORTEST
        assert found.count(text) == SHORTEST
        assert len(found._known) <= 3
    assert counted == texts
