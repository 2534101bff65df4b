"""Finds the words of a question in a text, and selects the excerpt to show."""

from collections.abc import Sequence

from chats.memory.search.question import ParsedQuestion
from chats.memory.search.words import Word, find_words

Mark = tuple[int, int]
# Characters of an excerpt, and how many of them precede the first match.
SHOWN = 260
BEFORE = 70


def find_question_matches(text: str, asked: ParsedQuestion) -> list[Mark]:
    """Return the non-overlapping ranges of a text that match words of the question."""

    def is_asked(word: Word) -> bool:
        begins = asked.beginning and word.full.startswith(asked.beginning)
        return word.stem in asked.telling or bool(begins)

    found: list[Mark] = []
    for word in find_words(text, only=is_asked):
        if found and word.start <= found[-1][1]:
            found[-1] = (min(found[-1][0], word.start), max(found[-1][1], word.end))
        else:
            found.append((word.start, word.end))
    return found


def select_match_excerpt(text: str, marks: Sequence[Mark]) -> Mark:
    """Return the range around the first match; without a match, the beginning of the text."""
    first = marks[0][0] if marks else 0
    start = max(first - BEFORE, 0)
    if start:
        # Start at a word boundary if the script has spaces.
        start = text.find(" ", start, first) + 1 or start
    return start, min(start + SHOWN, len(text))


def split_excerpt(text: str, marks: Sequence[Mark], *, part: Mark) -> list[tuple[str, bool]]:
    """Split an excerpt into pieces (text, is_match).

    White space becomes single spaces, and an ellipsis marks omitted text.
    """
    start, end = part
    found: list[tuple[str, bool]] = [("… ", False)] if start else []
    at = start
    for first, last in marks:
        if first >= end or last <= start:
            continue
        found.append((text[at : max(first, at)], False))
        found.append((text[max(first, at) : min(last, end)], True))
        at = min(last, end)
    found.append((text[at:end], False))
    if end < len(text):
        found.append((" …", False))
    return [(collapse_whitespace(piece), marked) for piece, marked in found if piece]


def collapse_whitespace(text: str) -> str:
    """Return the text with each run of white space replaced by one space, also at its ends."""
    inner = " ".join(text.split())
    if not inner:
        return " " * bool(text)
    return " " * text[0].isspace() + inner + " " * text[-1].isspace()
