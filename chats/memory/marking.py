"""Finds the places of a question's words in a text, and the part of it to show: pure."""

from collections.abc import Sequence

from chats.memory.question import ParsedQuestion
from chats.memory.words import Word, spans

Mark = tuple[int, int]
# The characters of a text that are shown, and how many of them stand before its first mark.
SHOWN = 260
BEFORE = 70


def marks_of(text: str, asked: ParsedQuestion) -> list[Mark]:
    """Return the places in a text at which words of the question stand, none over another."""

    def is_asked(word: Word) -> bool:
        begins = asked.beginning and word.full.startswith(asked.beginning)
        return word.stem in asked.telling or bool(begins)

    found: list[Mark] = []
    for word in spans(text, only=is_asked):
        if found and word.start <= found[-1][1]:
            found[-1] = (min(found[-1][0], word.start), max(found[-1][1], word.end))
        else:
            found.append((word.start, word.end))
    return found


def around(text: str, marks: Sequence[Mark]) -> Mark:
    """Return the part of a text around the first mark, or its beginning without one."""
    first = marks[0][0] if marks else 0
    start = max(first - BEFORE, 0)
    if start:
        # Never in the middle of a word, as far as the script has spaces.
        start = text.find(" ", start, first) + 1 or start
    return start, min(start + SHOWN, len(text))


def pieces(text: str, marks: Sequence[Mark], *, part: Mark) -> list[tuple[str, bool]]:
    """Cut a part of a text where a mark begins and ends: (text, whether it is marked).

    In one line, with dots where the text goes on.
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
    return [(in_a_line(piece), marked) for piece, marked in found if piece]


def in_a_line(text: str) -> str:
    """Return the text with a space in place of each white space, its ends kept."""
    inner = " ".join(text.split())
    if not inner:
        return " " * bool(text)
    return " " * text[0].isspace() + inner + " " * text[-1].isspace()
