"""Ranks the texts that share words with a question: pure, without a model.

Okapi BM25 (Robertson and Zaragoza, 2009) over stems, over full words and over pairs of words, each
scaled so that its best text has 1, and added up. An answer often stands beside the words of the
question, so the messages around a text count as well, and the talk that it belongs to; so do the
speaker and the day that the question names, and what the person said where they ask about
themselves. What a summary or a preference says of a text that it cites counts as a part of it.
Texts of equal marks stand with the newer first.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Self

# BM25: how soon more of the same word adds little, and how much a long text is held against it.
K1 = 1.2
B = 0.75
# The shares of the parts of a mark; stems have 1. How they were chosen: docs/measurements.md.
FULL = 0.15
PAIRS = 0.3
MEANING = 1.0
CITED = 0.5
NEIGHBOURS = 0.3
WINDOW = 1.1
SESSION = 0.4
SPEAKER = 1.2
OWN = 0.6
DAY = 0.4
LENGTH = 0.4
# The messages before and after a text that its window has; and the words of a window from which on
# it counts less: short messages live on what stands around them, long ones speak for themselves.
REACH = 2
WINDOW_WORDS = 200
# A text of fewer words tells little: "Wow, that is great!"
WORDS_THAT_TELL = 20
# The best texts of a talk that say what it is about.
OF_A_SESSION = 3
# Marks are compared to so many digits: the sum of the same fractions depends on their order.
DIGITS = 12

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """The things looked for in texts: stems, full words, pairs, one beginning, names, times.

    `stems`, `full` and `pairs` have their weight each. `beginning` starts a full word, `days` are
    from a moment (included) to another (not included).
    """

    stems: Mapping[str, float]
    full: Mapping[str, float]
    pairs: Mapping[Pair, float]
    beginning: str = ""
    names: frozenset[str] = frozenset()
    # The question is about the person who asks it.
    own: bool = False
    days: Sequence[tuple[datetime, datetime]] = ()
    # The likeness of texts with the question, by place, from 0 to 1; those without have none.
    meaning: Mapping[int, float] = field(default_factory=dict)
    # How much of the question stands in what was written about texts, by place, from 0 to 1.
    cited: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankedText:
    """A text at its place: its lengths, its counts of what is wanted, its talk, speaker and time.

    Neighbours have places that follow each other.
    """

    place: int
    length: int
    counts: Mapping[str, int]
    full_length: int
    full: Mapping[str, int]
    pairs: Mapping[Pair, int]
    session: tuple[int, int]
    speaker: str
    is_own: bool
    # Compared with each other alone, unless a question names a day.
    written_at: Any

    @classmethod
    def of(
        cls,
        place: int,
        *,
        words: str,
        full: str,
        wanted: SearchTerms,
        session: tuple[int, int],
        speaker: str,
        is_own: bool,
        written_at: Any,
    ) -> Self:
        """Count what is wanted in a text, whose words stand apart by one space each."""
        counts = counted(words, wanted.stems)
        if wanted.beginning:
            begun = f" {full}".count(f" {wanted.beginning}")
            if begun:
                counts[wanted.beginning] = begun
        return cls(
            place=place,
            length=number_of(words),
            counts=counts,
            full_length=number_of(full),
            full=counted(full, wanted.full),
            pairs=paired(words.split(), wanted.pairs) if len(counts) > 1 else {},
            session=session,
            speaker=speaker,
            is_own=is_own,
            written_at=written_at,
        )


def number_of(words: str) -> int:
    """Count the words of a text, which stand apart by one space each."""
    return words.count(" ") + 1 if words else 0


def counted(words: str, wanted: Iterable[str]) -> dict[str, int]:
    """Count the words that are wanted, in the order in which they are looked for."""
    inside = f" {words} "
    there = [word for word in wanted if f" {word} " in inside]
    if not there:
        return {}
    said = words.split()
    return {word: said.count(word) for word in there}


def paired(said: Sequence[str], wanted: Collection[Pair]) -> dict[Pair, int]:
    """Count the wanted pairs of words that follow each other."""
    if not wanted:
        return {}
    found: dict[Pair, int] = {}
    for pair in pairwise(said):
        if pair in wanted:
            found[pair] = found.get(pair, 0) + 1
    return found


def weight(texts: int, *, total: int) -> float:
    """Weigh a word that stands in so many of all texts: the rarer, the more."""
    return math.log(1 + (max(total - texts, 0) + 0.5) / (texts + 0.5))


def alone(texts: Sequence[RankedText], *, wanted: SearchTerms) -> dict[int, float]:
    """Mark each text by its own words, by what cites it, and by its likeness if that is known."""
    places = [text.place for text in texts]
    parts = (
        (1.0, scores([(text.counts, text.length) for text in texts], wanted.stems)),
        (FULL, scores([(text.full, text.full_length) for text in texts], wanted.full)),
        (PAIRS, scores([(text.pairs, text.length) for text in texts], wanted.pairs)),
    )
    marks = [sum(share * found[at] for share, found in parts) for at in range(len(texts))]
    if wanted.cited:
        told = (wanted.cited.get(place, 0.0) for place in places)
        marks = [mark + CITED * value for mark, value in zip(marks, told, strict=True)]
    if wanted.meaning:
        meant = (wanted.meaning.get(place, 0.0) for place in places)
        marks = [mark + MEANING * value for mark, value in zip(marks, meant, strict=True)]
    return dict(zip(places, marks, strict=True))


def best_alone(texts: Sequence[RankedText], *, wanted: SearchTerms, most: int) -> list[RankedText]:
    """Return at most so many of the texts, by their own words; at equal marks the newer ones."""
    if len(texts) <= most:
        return list(texts)
    marks = alone(texts, wanted=wanted)
    return sorted(texts, key=lambda text: (-round(marks[text.place], DIGITS), -text.place))[:most]


def rank(texts: Sequence[RankedText], *, wanted: SearchTerms) -> list[tuple[int, float]]:
    """Return the places of the texts with their marks, best first.

    `texts` are those that share a word with the question, and their neighbours.
    """
    own = alone(texts, wanted=wanted)
    window = windows(texts, wanted=wanted)
    sessions = of_sessions(texts, own=own)
    marks: dict[int, float] = {}
    for text in texts:
        at = text.place
        if not own[at] and not window[at]:
            continue
        mark = own[at] + NEIGHBOURS * (own.get(at - 1, 0.0) + own.get(at + 1, 0.0))
        mark += WINDOW * window[at] + SESSION * sessions[text.session]
        if is_named(text.speaker, wanted.names):
            mark += SPEAKER
        elif wanted.own and text.is_own:
            mark += OWN
        mark += LENGTH * min(text.length / WORDS_THAT_TELL, 1.0)
        mark += DAY * any(begin <= text.written_at < end for begin, end in wanted.days)
        marks[at] = round(mark, DIGITS)
    newest = {text.place: text.written_at for text in texts}
    best = sorted(marks, key=lambda at: (newest[at], at), reverse=True)
    return [(at, marks[at]) for at in sorted(best, key=lambda at: -marks[at])]


def windows(texts: Sequence[RankedText], *, wanted: SearchTerms) -> dict[int, float]:
    """Mark each text together with those around it."""
    found = {text.place: text for text in texts}
    places = list(found)
    steps = range(-REACH, REACH + 1)
    sizes: list[tuple[Mapping[str, int], int]] = []
    for place in places:
        around = [found[place + step] for step in steps if place + step in found]
        total: dict[str, int] = {}
        for text in around:
            for word, number in text.counts.items():
                total[word] = total.get(word, 0) + number
        sizes.append((total, sum(text.length for text in around)))
    marks = scores(sizes, wanted.stems)
    return {
        place: mark * min(1.0, WINDOW_WORDS / max(length, 1))
        for place, mark, (_, length) in zip(places, marks, sizes, strict=True)
    }


def of_sessions(
    texts: Sequence[RankedText], *, own: Mapping[int, float]
) -> dict[tuple[int, int], float]:
    """Mark each talk by its best texts."""
    found: dict[tuple[int, int], list[float]] = {}
    for text in texts:
        found.setdefault(text.session, []).append(own[text.place])
    sums = {key: sum(sorted(marks)[-OF_A_SESSION:]) for key, marks in found.items()}
    best = max(sums.values(), default=0.0) or 1.0
    return {key: mark / best for key, mark in sums.items()}


def is_named(speaker: str, names: Collection[str]) -> bool:
    """Tell whether a question names a speaker: every word of the name."""
    return bool(speaker) and all(word in names for word in speaker.split())


def scores(
    texts: Sequence[tuple[Mapping[str, int], int] | tuple[Mapping[Pair, int], int]],
    weights: Mapping[str, float] | Mapping[Pair, float],
) -> list[float]:
    """Compute BM25 of each text, scaled so that the best has 1."""
    average = sum(length for _, length in texts) / max(len(texts), 1) or 1.0
    gains = {word: value * (K1 + 1) for word, value in weights.items()}
    marks = []
    for count, length in texts:
        norm = K1 * (1 - B + B * length / average)
        marks.append(sum(gains[word] * n / (n + norm) for word, n in count.items()))
    best = max(marks, default=0.0) or 1.0
    return [mark / best for mark in marks]
