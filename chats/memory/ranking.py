"""Ranks the texts that share words with a question: pure, without a model.

Okapi BM25 over stems (Robertson and Zaragoza, 2009), of each message alone and of the message with
its two neighbours, both scaled to 1 and added: an answer often stands beside the words of the
question.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

K1 = 1.5
B = 0.75
NEIGHBOURS_SHARE = 0.7
# So many words are looked for one by one.
FEW = 6
# Marks are compared to so many digits: the sum of the same fractions depends on their order.
DIGITS = 12


@dataclass(frozen=True, slots=True)
class RankedText:
    """One message at its place in the chat: its length, and its count of each word asked for."""

    seq: int
    length: int
    counts: Mapping[str, int]

    @classmethod
    def of(cls, seq: int, words: str, *, telling: Collection[str]) -> Self:
        """Make the text from its words, which stand between single spaces.

        A search reads thousands: most words asked for are not there, and to find that out takes
        less than to split the text, unless many are asked for.
        """
        counts: dict[str, int] = {}
        if len(telling) > FEW:
            said = words.split()
            for word in said:
                if word in telling:
                    counts[word] = counts.get(word, 0) + 1
            return cls(seq, len(said), counts)
        parted = f" {words} "
        for word in telling:
            if number := parted.count(f" {word} "):
                # Two neighbours share the space between them, which is counted once.
                twice = f" {word} {word} " in parted
                counts[word] = words.split().count(word) if twice else number
        return cls(seq, words.count(" ") + 1 if words else 0, counts)


def rank(
    question: Sequence[str], texts: Sequence[RankedText], *, found_in: Mapping[str, int], total: int
) -> list[int]:
    """Return the seqs of the texts, best first; at equal marks the newer first.

    `texts` are those that share a word with the question, and their neighbours. `found_in` says in
    how many of the `total` messages a word of the question stands.
    """
    weights = weights_of(question, found_in=found_in, total=total)
    own = {text.seq: text.counts for text in texts}
    lengths = {text.seq: text.length for text in texts}
    alone = scores(own, lengths, weights=weights)
    beside = {seq: together(seq, own) for seq in own}
    get = lengths.get
    wide = {seq: get(seq - 1, 0) + length + get(seq + 1, 0) for seq, length in lengths.items()}
    around = scores(beside, wide, weights=weights)
    marks = {seq: alone[seq] + NEIGHBOURS_SHARE * around[seq] for seq in own if around[seq]}
    return sorted(marks, key=lambda seq: (-marks[seq], -seq))


def best_alone(
    question: Sequence[str],
    texts: Sequence[RankedText],
    *,
    found_in: Mapping[str, int],
    total: int,
    most: int,
) -> list[RankedText]:
    """Return at most so many of the texts, by their own words; at equal marks the newer ones."""
    if len(texts) <= most:
        return list(texts)
    weights = weights_of(question, found_in=found_in, total=total)
    own = {text.seq: text.counts for text in texts}
    marks = scores(own, {text.seq: text.length for text in texts}, weights=weights)
    return sorted(texts, key=lambda text: (-marks[text.seq], -text.seq))[:most]


def weights_of(
    question: Iterable[str], *, found_in: Mapping[str, int], total: int
) -> dict[str, float]:
    """Weigh each word of the question, in its order: the rarer, the more."""
    return {
        word: math.log(1 + (total - found_in[word] + 0.5) / (found_in[word] + 0.5))
        for word in question
        if found_in.get(word, total + 1) <= total
    }


def together(seq: int, own: Mapping[int, Mapping[str, int]]) -> Mapping[str, int]:
    """Add up the counts of a message and its neighbours."""
    found = own[seq]
    for near in (seq - 1, seq + 1):
        beside = own.get(near)
        if beside:
            found = dict(found)
            for word, count in beside.items():
                found[word] = found.get(word, 0) + count
    return found


def scores(
    counts: Mapping[int, Mapping[str, int]],
    lengths: Mapping[int, int],
    *,
    weights: Mapping[str, float],
) -> dict[int, float]:
    """Compute BM25 of each text, scaled so that the best has 1."""
    average = sum(lengths.values()) / max(len(lengths), 1) or 1.0
    gains = {word: weight * (K1 + 1) for word, weight in weights.items()}
    marks = {}
    for seq, count in counts.items():
        norm = K1 * (1 - B + B * lengths[seq] / average)
        mark = 0.0
        for word, number in count.items():
            mark += gains.get(word, 0.0) * number / (number + norm)
        marks[seq] = mark
    best = max(marks.values(), default=0.0) or 1.0
    return {seq: round(mark / best, DIGITS) for seq, mark in marks.items()}
