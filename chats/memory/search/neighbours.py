"""Adds the messages next to matches, which often have the answer."""

from collections.abc import Sequence
from typing import NamedTuple

# A message next to a match has this share of its score, and each further message this share of the
# nearer one. The message that follows a match has slightly more, because it may be the answer.
AFTER, BEFORE, FARTHER = 0.52, 0.5, 0.5
# Messages on each side of a match that may be added.
REACH = 20
# A neighbour of fewer characters is too short to be useful, unless it answers a question.
SHORTEST = 20


class MatchingMessage(NamedTuple):
    """A message that matches a question: its `seq`, the number of shared words, its score.

    `near`: the `seq` of the match that this message is next to; 0: it is a match itself.
    """

    seq: int
    strength: int
    score: float
    near: int = 0


def order_with_neighbours(
    found: Sequence[MatchingMessage], *, reach: int = REACH
) -> list[MatchingMessage]:
    """Return matches and the messages around them, best first.

    An answer, or the message that defines "it", often shares no word with the question. A
    neighbour's score is a fraction of the match's score. A match near a better match can
    get a higher score in the same way.
    """
    scores: dict[int, float] = {}
    # The match from which a message has its score.
    sources: dict[int, int] = {}
    for each in found:
        scores[each.seq] = max(each.score, scores.get(each.seq, 0.0))
        for step, share in ((1, AFTER), (-1, BEFORE)):
            score = each.score * share
            for distance in range(1, reach + 1):
                seq = each.seq + step * distance
                if score <= scores.get(seq, 0.0):
                    # A better match is nearer: all further messages gain more by that one.
                    break
                scores[seq] = score
                sources[seq] = each.seq
                score *= FARTHER
    strengths = {each.seq: each.strength for each in found}
    # Among messages of equal score, the newer one comes first.
    best = sorted(scores, key=lambda seq: (-scores[seq], -seq))
    return [
        MatchingMessage(seq, strengths[seq], scores[seq])
        if seq in strengths
        else MatchingMessage(seq, 0, scores[seq], near=sources[seq])
        for seq in best
    ]
