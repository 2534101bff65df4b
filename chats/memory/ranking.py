"""Which of the texts that share words with a question answers it best: pure, without a model.

Okapi BM25 over stems (Robertson and Zaragoza, 2009), of each message alone and of the message with
its two neighbours, both scaled to 1 and added: an answer often stands beside the words of the
question.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

K1 = 1.5
B = 0.75
NEIGHBOURS_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Text:
    """One message's words, at its place in the chat."""

    seq: int
    words: Sequence[str]


def rank(
    question: Sequence[str], texts: Sequence[Text], *, found_in: Mapping[str, int], total: int
) -> list[int]:
    """The seqs of the texts, best first; at equal marks the newer first.

    `texts` are those that share a word with the question, and their neighbours. `found_in` says in
    how many of the `total` messages a word of the question stands.
    """
    weights = {
        word: math.log(1 + (total - count + 0.5) / (count + 0.5))
        for word, count in found_in.items()
        if count <= total
    }
    own = {text.seq: Counter(w for w in text.words if w in weights) for text in texts}
    lengths = {text.seq: len(text.words) for text in texts}
    alone = scores(question, own, lengths, weights=weights)
    beside = {seq: together(seq, own) for seq in own}
    wide = {seq: sum(lengths.get(near, 0) for near in (seq - 1, seq, seq + 1)) for seq in own}
    around = scores(question, beside, wide, weights=weights)
    marks = {seq: alone[seq] + NEIGHBOURS_SHARE * around[seq] for seq in own if around[seq]}
    return sorted(marks, key=lambda seq: (-marks[seq], -seq))


def together(seq: int, own: Mapping[int, Counter[str]]) -> Counter[str]:
    """The counts of a message and its neighbours."""
    found: Counter[str] = Counter()
    for near in (seq - 1, seq, seq + 1):
        found.update(own.get(near, {}))
    return found


def scores(
    question: Iterable[str],
    counts: Mapping[int, Counter[str]],
    lengths: Mapping[int, int],
    *,
    weights: Mapping[str, float],
) -> dict[int, float]:
    """BM25 of each text, scaled so that the best has 1."""
    average = sum(lengths.values()) / max(len(lengths), 1) or 1.0
    asked = [word for word in question if word in weights]
    marks = {}
    for seq, count in counts.items():
        norm = K1 * (1 - B + B * lengths[seq] / average)
        marks[seq] = sum(
            weights[word] * count[word] * (K1 + 1) / (count[word] + norm)
            for word in asked
            if count[word]
        )
    best = max(marks.values(), default=0.0) or 1.0
    return {seq: mark / best for seq, mark in marks.items()}
