"""Generated words and texts with the word frequencies of a language."""

import random
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

SYLLABLES = ["ba", "ren", "to", "li", "mak", "su", "dor", "vi", "pel", "han", "co", "gu"]
WORDS = 40_000


@cache
def vocabulary() -> list[str]:
    """Generated words, the most common first."""
    found: dict[str, None] = {}
    chance = random.Random(13)  # noqa: S311  # the same in every run
    while len(found) < WORDS:
        found["".join(chance.choices(SYLLABLES, k=chance.randint(2, 5)))] = None
    return list(found)


def texts(count: int, *, words: Sequence[str], length: int = 40, seed: int = 7) -> list[str]:
    """Texts with the word frequencies of a language: the n-th word is used 1/n as often."""
    chance = random.Random(seed)  # noqa: S311  # the same in every run
    weights = list(accumulate(1 / (place + 1) for place in range(len(words))))
    return [" ".join(chance.choices(words, cum_weights=weights, k=length)) for _ in range(count)]
