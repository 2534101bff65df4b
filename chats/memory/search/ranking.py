"""Ranks texts by the words they share with a question, without a model.

The score is a sum of Okapi BM25 (Robertson and Zaragoza, 2009) over stems, full words and word
pairs, each scaled so that the best text has 1. Answers are often next to the matching words, so
neighbouring messages and the session count as well. So do a speaker or date in the question, and
the person's own messages if they ask about themselves. Summaries and preferences that cite a text
count as part of it. Among texts of equal score, the newest comes first.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple, Self

# BM25: saturation of repeated words, and the penalty for long texts.
K1 = 1.2
B = 0.75
# Weights of the score's parts; stems have 1. docs/measurements.md explains the choice.
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
# The number of messages before and after a text in its window, and the number of words from which a
# window counts less: short messages depend on their context, long ones do not.
REACH = 2
WINDOW_WORDS = 200
# A text with fewer words carries little information: "Wow, that is great!"
WORDS_THAT_TELL = 20
# The number of a session's best texts that represent its topic.
OF_A_SESSION = 3
# Scores are compared at this many digits, because sums of floats depend on their order.
DIGITS = 12

Pair = tuple[str, str]


class AddressedName(NamedTuple):
    """A name that stands for the messages of a role: its stem and its full word."""

    stem: str
    full: str


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """Search terms: stems, full words, pairs, a prefix, names, times.

    `stems`, `full` and `pairs` have weights. `beginning` is the prefix of a full word.
    `days` are time ranges with an excluded end. `addressed` maps the key of a role to the
    name that stands for those of its messages that have no speaker.
    """

    stems: Mapping[str, float]
    full: Mapping[str, float]
    pairs: Mapping[Pair, float]
    beginning: str = ""
    names: frozenset[str] = frozenset()
    # The question is about the person who asks.
    own: bool = False
    days: Sequence[tuple[datetime, datetime]] = ()
    # Embedding similarity by place, from 0 to 1; missing without a vector.
    meaning: Mapping[int, float] = field(default_factory=dict)
    # Match of texts that cite a text, by place, from 0 to 1.
    cited: Mapping[int, float] = field(default_factory=dict)
    addressed: Mapping[str, AddressedName] = field(default_factory=dict)
    # Scores of texts of the dates in the question that are ranked without a shared word, by place.
    dated: Mapping[int, float] = field(default_factory=dict)

    def is_in_days(self, written_at: Any) -> bool:
        """Return True if a text was written at a time that the question mentions."""
        return any(begin <= written_at < end for begin, end in self.days)

    def get_addressed_name(self, keys: str) -> AddressedName | None:
        """Return the name that stands for the role of a text, or None.

        The role is the last of the text's keys.
        """
        return self.addressed.get(keys[keys.rfind("@") + 1 :]) if self.addressed else None


class RankedText(NamedTuple):
    """A text at its position: lengths, counts of search terms, session, speaker and time.

    Neighbouring texts have consecutive positions. The class is a named tuple, because a question
    creates hundreds of instances.
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
    # Only compared with the times of other texts, unless the question mentions a date.
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
        """Count the search terms in a text whose words are separated by single spaces."""
        words_of_text, said_full = words.split(), full.split()
        counts = count_search_words(words_of_text, wanted.stems)
        if wanted.beginning:
            begun = f" {full}".count(f" {wanted.beginning}")
            if begun:
                counts[wanted.beginning] = begun
        return cls(
            place=place,
            length=len(words_of_text),
            counts=counts,
            full_length=len(said_full),
            full=count_search_words(said_full, wanted.full),
            pairs=count_word_pairs(words_of_text, wanted.pairs) if len(counts) > 1 else {},
            session=session,
            speaker=speaker,
            is_own=is_own,
            written_at=written_at,
        )


def count_search_words(words_of_text: Sequence[str], wanted: Mapping[str, float]) -> dict[str, int]:
    """Return the number of occurrences of each wanted word in a text, in the words' order."""
    there = wanted.keys() & words_of_text
    if not there:
        return {}
    return {word: words_of_text.count(word) for word in wanted if word in there}


def count_word_pairs(words_of_text: Sequence[str], wanted: Collection[Pair]) -> dict[Pair, int]:
    if not wanted:
        return {}
    found: dict[Pair, int] = {}
    for pair in pairwise(words_of_text):
        if pair in wanted:
            found[pair] = found.get(pair, 0) + 1
    return found


def calculate_word_weight(texts: int, *, total: int) -> float:
    """Return the weight of a word by the number of texts that contain it; rare words weigh more."""
    return math.log(1 + (max(total - texts, 0) + 0.5) / (texts + 0.5))


def score_single_texts(texts: Sequence[RankedText], *, wanted: SearchTerms) -> dict[int, float]:
    """Score each text by its words, its citations, and its similarity if known."""
    places = [text.place for text in texts]
    parts = (
        (1.0, calculate_bm25_scores([(text.counts, text.length) for text in texts], wanted.stems)),
        (
            FULL,
            calculate_bm25_scores([(text.full, text.full_length) for text in texts], wanted.full),
        ),
        (PAIRS, calculate_bm25_scores([(text.pairs, text.length) for text in texts], wanted.pairs)),
    )
    marks = [sum(share * found[at] for share, found in parts) for at in range(len(texts))]
    if wanted.cited:
        told = (wanted.cited.get(place, 0.0) for place in places)
        marks = [mark + CITED * value for mark, value in zip(marks, told, strict=True)]
    if wanted.meaning:
        meant = (wanted.meaning.get(place, 0.0) for place in places)
        marks = [mark + MEANING * value for mark, value in zip(marks, meant, strict=True)]
    return dict(zip(places, marks, strict=True))


def select_best_texts(
    texts: Sequence[RankedText], *, wanted: SearchTerms, most: int
) -> list[RankedText]:
    """Return the best texts by their own words; newer ones first at equal scores.

    If there are at most `most` texts, they are returned in the given order.
    """
    if len(texts) <= most:
        return list(texts)
    marks = score_single_texts(texts, wanted=wanted)
    return sorted(texts, key=lambda text: (-round(marks[text.place], DIGITS), -text.place))[:most]


def rank_texts(texts: Sequence[RankedText], *, wanted: SearchTerms) -> list[tuple[int, float]]:
    """Return the positions of the texts with their scores, best first.

    `texts` share a word with the question, or are next to such texts.
    """
    own = score_single_texts(texts, wanted=wanted)
    window = score_text_windows(texts, wanted=wanted)
    sessions = score_sessions(texts, own=own)
    named = {
        speaker
        for speaker in {text.speaker for text in texts}
        if is_speaker_named(speaker, wanted.names)
    }
    marks: dict[int, float] = {}
    for text in texts:
        at = text.place
        if not own[at] and not window[at] and at not in wanted.dated:
            continue
        mark = own[at] + NEIGHBOURS * (own.get(at - 1, 0.0) + own.get(at + 1, 0.0))
        mark += WINDOW * window[at] + SESSION * sessions[text.session]
        if text.speaker in named:
            mark += SPEAKER
        elif wanted.own and text.is_own:
            mark += OWN
        mark += LENGTH * min(text.length / WORDS_THAT_TELL, 1.0)
        if wanted.days:
            mark += DAY * wanted.is_in_days(text.written_at) + wanted.dated.get(at, 0.0)
        marks[at] = round(mark, DIGITS)
    newest = {text.place: text.written_at for text in texts}
    best = sorted(marks, key=lambda at: (newest[at], at), reverse=True)
    return [(at, marks[at]) for at in sorted(best, key=lambda at: -marks[at])]


def score_text_windows(texts: Sequence[RankedText], *, wanted: SearchTerms) -> dict[int, float]:
    found = {text.place: text for text in texts}
    places = list(found)
    steps = [step for step in range(-REACH, REACH + 1) if step]
    sizes: list[tuple[Mapping[str, int], int]] = []
    for place, text in found.items():
        total, length = dict(text.counts), text.length
        for step in steps:
            near = found.get(place + step)
            if near is not None:
                length += near.length
                for word, number in near.counts.items():
                    total[word] = total.get(word, 0) + number
        sizes.append((total, length))
    marks = calculate_bm25_scores(sizes, wanted.stems)
    return {
        place: mark * min(1.0, WINDOW_WORDS / max(length, 1))
        for place, mark, (_, length) in zip(places, marks, sizes, strict=True)
    }


def score_sessions(
    texts: Sequence[RankedText], *, own: Mapping[int, float]
) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], list[float]] = {}
    for text in texts:
        found.setdefault(text.session, []).append(own[text.place])
    sums = {key: sum(sorted(marks)[-OF_A_SESSION:]) for key, marks in found.items()}
    best = max(sums.values(), default=0.0) or 1.0
    return {key: mark / best for key, mark in sums.items()}


def is_speaker_named(speaker: str, names: Collection[str]) -> bool:
    """Return True if a question contains every word of a speaker's name."""
    return bool(speaker) and all(word in names for word in speaker.split())


def calculate_bm25_scores(
    texts: Sequence[tuple[Mapping[str, int], int] | tuple[Mapping[Pair, int], int]],
    weights: Mapping[str, float] | Mapping[Pair, float],
) -> list[float]:
    """Compute BM25 of each text, scaled so that the best has 1."""
    average = sum(length for _, length in texts) / max(len(texts), 1) or 1.0
    gains = {word: value * (K1 + 1) for word, value in weights.items()}
    marks = []
    for count, length in texts:
        mark = 0.0
        if count:
            norm = K1 * (1 - B + B * length / average)
            for word, n in count.items():
                mark += gains[word] * n / (n + norm)
        marks.append(mark)
    best = max(marks, default=0.0) or 1.0
    return [mark / best for mark in marks]
