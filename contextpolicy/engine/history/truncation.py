"""Cuts text in prompts to a limit, never inside a character.

Every cut is a pure function of the text, the limit, the style and `CUTTER_VERSION`. A message is
therefore cut the same way at every turn, and the prefix is stable. The stored text is never cut.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.policy.fields.history import CutStyle

CUTTER_VERSION = "cut-1"

# A longer cluster (a letter with thousands of accents) may be cut, because no script needs it.
LONGEST_CLUSTER = 128


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that fits its limit, and the number of characters removed.

    `at`: the position in the original text at which the removed part begins.
    """

    text: str
    removed: int
    at: int = 0


def cut_text(text: str, *, limit: int, style: CutStyle) -> Cut:
    """Cut `text` to at most `limit` characters, including the marker.

    A text that fits is unchanged. `head` keeps the beginning. `head_tail` keeps two thirds
    of the limit from the beginning and one third from the end. The marker states how many
    characters are missing. An open code fence is closed before the marker and opened again
    after it. If the limit is too small for the marker, only a beginning is kept. Raises
    ValueError for a limit below 1.
    """
    if limit < 1:
        raise ValueError("The limit of a cut must be a positive number of characters.")
    if len(text) <= limit:
        return Cut(text, 0)
    room = limit - len(_marker(len(text)))
    if room < 1:
        kept = find_border_before(text, limit)
        return Cut(text[:kept], len(text) - kept, kept)
    start, tail = _tail(text, room // 3 if style == "head_tail" else 0)
    end, head = _head(text, room - len(tail))
    removed = start - end
    return Cut(f"{head}{_marker(removed)}{tail}", removed, end)


def cut_tool_result(text: str, *, limit: int) -> Cut:
    """Cut a tool result in its middle, because errors are at the start or end of an output."""
    return cut_text(text, limit=limit, style="head_tail")


def cut_texts(
    wires: Sequence[WireMessage], *, max_chars: int | None, style: CutStyle
) -> tuple[WireMessage, ...]:
    """Cut the texts of wire messages to `max_chars` (None: not at all), except tool results."""
    return tuple(
        wire
        if max_chars is None or wire.role == "tool" or len(wire.content) <= max_chars
        else wire._replace(content=cut_text(wire.content, limit=max_chars, style=style).text)
        for wire in wires
    )


def _marker(removed: int) -> str:
    return f"\n[… {removed:,} characters cut …]\n"


def _head(text: str, room: int) -> tuple[int, str]:
    """Return the end of the kept beginning, and its text with open fences closed.

    The text has at most `room` characters.
    """
    end = find_border_before(text, room)
    closing = _close_fence(text[:end])
    while end and end + len(closing) > room:
        end = find_border_before(text, min(end - 1, max(0, room - len(closing))))
        closing = _close_fence(text[:end])
    return end, text[:end] + closing


def _tail(text: str, room: int) -> tuple[int, str]:
    """Return the start of the kept end, and its text with its open fence opened again."""
    start = find_border_after(text, len(text) - room)
    while start < len(text):
        start = _past_fence_line(text, start)
        fence = find_open_fence(text[:start])
        opening = f"{fence}\n" if fence else ""
        excess = len(opening) + len(text) - start - room
        if excess <= 0:
            return start, opening + text[start:]
        start = find_border_after(text, start + excess)
    return len(text), ""


def _past_fence_line(text: str, start: int) -> int:
    """Skip the rest of a line that is a fence or that would be parsed as one."""
    line_start = text.rfind("\n", 0, start) + 1
    if line_start == start:
        return start
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    # A slice, because with a start position `^` matches only after a line end.
    looks_fenced = _FENCE.fullmatch(text, line_start, line_end) or _FENCE.fullmatch(
        text[start:line_end]
    )
    return line_end if looks_fenced else start


_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)


def find_open_fence(text: str) -> str:
    """Return the code fence still open at the end of `text`, as CommonMark reads it, or ""."""
    fence = ""
    if "```" not in text and "~~~" not in text:
        return fence
    for match in _FENCE.finditer(text):
        fence = _after(fence, *match.groups())
    return fence


def advance_code_fence(fence: str, line: str) -> str:
    """Return the code fence that is open after `line`; `fence` was open at its start ("": none)."""
    match = _FENCE.fullmatch(line)
    return _after(fence, *match.groups()) if match else fence


def _after(fence: str, marks: str, rest: str) -> str:
    if not fence:
        return marks if marks[0] == "~" or "`" not in rest else ""
    closes = marks[0] == fence[0] and len(marks) >= len(fence) and not rest.strip()
    return "" if closes else fence


def _close_fence(head: str) -> str:
    fence = find_open_fence(head)
    if not fence:
        return ""
    return fence if head.endswith("\n") else f"\n{fence}"


def find_border_before(text: str, place: int) -> int:
    """Return the nearest character boundary at or before `place`."""
    for border in range(place, max(0, place - LONGEST_CLUSTER), -1):
        if is_border(text, border):
            return border
    return 0 if place <= LONGEST_CLUSTER else _between_surrogates(text, place)


def find_border_after(text: str, place: int) -> int:
    """Return the nearest character boundary at or after `place`; at most the end of the text."""
    if place >= len(text):
        return len(text)
    last = min(len(text), place + LONGEST_CLUSTER)
    for border in range(place, last + 1):
        if is_border(text, border):
            return border
    return _between_surrogates(text, last)


def _between_surrogates(text: str, place: int) -> int:
    return place - 1 if _splits_surrogates(text[place - 1], text[place]) else place


def is_border(text: str, place: int) -> bool:
    """Return True if the text may be cut before index `place`.

    Approximates the grapheme rules of Unicode (UAX 29) with the data of `unicodedata`: combining
    marks, joined emoji, flags, Hangul syllables, conjuncts of Indic scripts, surrogate pairs, CR
    LF.
    """
    if place <= 0 or place >= len(text):
        return True
    before, after = text[place - 1], text[place]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n") and before != "\xad"
    if before in "\r\n" or unicodedata.category(before) == "Cc":
        return True
    if _extends(after) or before in _PREPENDED or _splits_surrogates(before, after):
        return False
    if _is_flag_letter(before) and _is_flag_letter(after):
        return _flag_letters_before(text, place) % 2 == 0
    return not (_joins(text, place) or _same_syllable(before, after))


_PREPENDED = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd"
)
# Thai and Lao AM, halfwidth Japanese voice marks: letters by category, but used as marks.
_EXTENDING = frozenset("\u200c\u200d\u0e33\u0eb3\uff9e\uff9f")


def _extends(character: str) -> bool:
    return (
        character in _EXTENDING
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
        or unicodedata.category(character) in ("Mn", "Me", "Mc")
    )


def _splits_surrogates(before: str, after: str) -> bool:
    return "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_letters_before(text: str, place: int) -> int:
    start = place
    while start > 0 and _is_flag_letter(text[start - 1]):
        start -= 1
    return place - start


def _joins(text: str, place: int) -> bool:
    """Return True if the text before `place` joins it to the next character.

    A zero-width joiner joins two pictures, an Indic virama two consonants.
    """
    before, after = text[place - 1], text[place]
    if before == "\u200d":
        if after >= "\U0001f000" or unicodedata.category(after) == "So":
            return True
        before = text[place - 2] if place >= 2 else before
    return (
        "\u0900" <= after <= "\u0d7f"
        and unicodedata.combining(before) == 9
        and unicodedata.category(after) == "Lo"
    )


def _same_syllable(before: str, after: str) -> bool:
    first, second = _hangul(before), _hangul(after)
    if first == "L":
        return second in ("L", "V", "LV", "LVT")
    if first in ("V", "LV"):
        return second in ("V", "T")
    return first in ("T", "LVT") and second == "T"


def _hangul(character: str) -> str:
    if "\uac00" <= character <= "\ud7a3":
        return "LVT" if (ord(character) - 0xAC00) % 28 else "LV"
    if "\u1100" <= character <= "\u115f" or "\ua960" <= character <= "\ua97c":
        return "L"
    if "\u1160" <= character <= "\u11a7" or "\ud7b0" <= character <= "\ud7c6":
        return "V"
    if "\u11a8" <= character <= "\u11ff" or "\ud7cb" <= character <= "\ud7fb":
        return "T"
    return ""
