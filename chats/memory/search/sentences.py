"""Selects the sentences of a long text that share the most with a question."""

import re
from collections.abc import Iterator, Mapping, Sequence

from chats.memory.search.words import find_words
from contextpolicy.engine.text.sentence_ends import SPACED_ENDS, UNSPACED_ENDS, find_breaks

# The end of a sentence or of a line, with the white space after it.
_END = re.compile(rf"""[{SPACED_ENDS}]['"”’»)\]*_]*\s+|[{UNSPACED_ENDS}]['"”’」』）]*\s*|\n\s*""")
# Shorter sentences are joined with the next one. This limits the number of ranges to compare.
SHORTEST = 40
# The maximum number of characters that are added to complete a sentence.
MOST_ADDED = 300
# Digits of a score, because sums of floats depend on their order.
DIGITS = 9

Range = tuple[int, int]


def select_best_sentences(text: str, *, weights: Mapping[str, float], most: int) -> Range:
    """Return the range of consecutive sentences that best match a question.

    The range has at most `most` characters. `weights` maps the question's stems to their weights.
    The range with the largest sum of weights wins. Each stem counts once. Ties go to the shortest
    range, then to the first. The range is then extended with the sentences after and before it that
    fit. Without any of the stems, the first sentences are returned.
    """
    if len(text) <= most:
        return 0, len(text)
    sentences = list_sentence_ranges(text, most=most)
    stems = list_stems_by_sentence(text, sentences, weights=weights)
    first, last = find_heaviest_range(sentences, stems, weights=weights, most=most)
    has_grown = True
    while has_grown:
        has_grown = False
        # The next sentences on both sides are added in turn.
        if last + 1 < len(sentences) and sentences[last + 1][1] - sentences[first][0] <= most:
            last, has_grown = last + 1, True
        if first and sentences[last][1] - sentences[first - 1][0] <= most:
            first, has_grown = first - 1, True
    return sentences[first][0], sentences[last][1]


def extend_to_sentences(text: str, start: int, end: int) -> Range:
    """Return a part of a text, extended to the borders of its sentences.

    A border that is more than `MOST_ADDED` characters away is not used.
    """
    first = max(start - MOST_ADDED, 0)
    borders = [found.end() for found in _END.finditer(text, first, start)]
    after = _END.search(text, max(end - 1, start), end + MOST_ADDED)
    return (
        borders[-1] if borders else (0 if first == 0 else start),
        after.end() if after else min(len(text), end),
    )


def list_sentence_ranges(text: str, *, most: int) -> list[Range]:
    """Return the ranges of a text's sentences. Sentences longer than `most` are split."""
    found: list[Range] = []
    start = 0
    for end in _list_ends(text):
        if end - start < SHORTEST and end < len(text):
            continue
        while end - start > most:
            space = text.rfind(" ", start + most // 2, start + most)
            cut = space + 1 if space >= 0 else start + most
            found.append((start, cut))
            start = cut
        if end > start:
            found.append((start, end))
        start = end
    return found


def _list_ends(text: str) -> Iterator[int]:
    """Yield the ends of the sentences, and of the clauses of long pieces without sentence ends."""
    start = 0
    for end in (*(match.end() for match in _END.finditer(text)), len(text)):
        yield from (start + place for place in find_breaks(text[start:end]))
        yield end
        start = end


def list_stems_by_sentence(
    text: str, sentences: Sequence[Range], *, weights: Mapping[str, float]
) -> list[frozenset[str]]:
    """Return the stems of a question in each sentence."""
    stems: list[set[str]] = [set() for _ in sentences]
    at = 0
    for word in find_words(text, only=lambda word: word.stem in weights):
        while word.start >= sentences[at][1]:
            at += 1
        stems[at].add(word.stem)
    return [frozenset(found) for found in stems]


def find_heaviest_range(
    sentences: Sequence[Range],
    stems: Sequence[frozenset[str]],
    *,
    weights: Mapping[str, float],
    most: int,
) -> Range:
    """Return the indexes of the first and last sentence of the best range."""
    best, chosen = (0.0, 0), (0, 0)
    for first, found in enumerate(stems):
        if not found:
            continue
        begin, together = sentences[first][0], set[str]()
        for last in range(first, len(sentences)):
            length = sentences[last][1] - begin
            if length > most:
                break
            together |= stems[last]
            weight = round(sum(weights[stem] for stem in together), DIGITS)
            if stems[last] and (weight, -length) > best:
                best, chosen = (weight, -length), (first, last)
    return chosen
