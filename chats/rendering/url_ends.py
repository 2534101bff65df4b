"""Finds where a bare URL in Markdown ends: before a footnote, a link or emphasis next to it."""

import re

from markdown_it.common.utils import normalizeReference
from markdown_it.rules_inline import StateInline

# An address as a host, such as http://[::1]:8080/.
IPV6 = re.compile(r"https?://(?:[^/?#\[@]*@)?\[[0-9a-f:.%]+\]", re.IGNORECASE)
# Text in brackets, which may contain brackets, and a second label.
LABEL = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*+\]){0,300}+)\](\(|\[([^\[\]]{0,300}+)\])?")
# Marks of emphasis, and the characters that separate the parts of a URL.
MARKS = re.compile(r"\*+|~~+|_+")
SEPARATORS = frozenset("/.?&=#-:,;+@")
# Limits of a search: characters of emphasised text, marks before a URL.
LONGEST_EMPHASIS = 500
MOST_MARKS = 100


def find_link_text(state: StateInline, start: int, end: int) -> int:
    """Return the position of the first bracket that is not part of the URL, or the end.

    `start`, `end`: the text that may be a URL. A URL has brackets only around its host and in its
    query, as in "?filter[name]=x". Other brackets are a footnote, a link or a citation.
    """
    host = IPV6.match(state.src, start, end)
    query = state.src.find("?", start, end)
    at = state.src.find("[", host.end() if host else start, end)
    while at >= 0 and 0 <= query < at and not is_link_text(state, at):
        at = state.src.find("[", at + 1, end)
    return at if at >= 0 else end


def is_link_text(state: StateInline, at: int) -> bool:
    """Return True if a bracket starts a footnote, or the text of a link or an image."""
    if state.src.startswith("[^", at):
        return True
    found = LABEL.match(state.src, at, state.posMax)
    if found is None:
        return False
    known = state.env.get("references", {})
    # Other labels after each other are a query, such as "?page[a][b]=1".
    return found[2] == "(" or any(
        label and normalizeReference(label) in known for label in (found[1], found[3])
    )


def find_emphasis(state: StateInline, start: int, end: int) -> int:
    """Return the position of the first marks in the URL that are emphasis, or the end.

    They end emphasis that has started before the URL, or emphasise the text after it. Other marks
    are part of the URL, such as "/__init__.py", "/*/" and "?$select=*".
    """
    runs = [run for run in MARKS.finditer(state.src, start, end) if run.end() < end]
    opened = find_open_marks(state) if runs else set()
    for run in runs:
        if ends_emphasis(state, run, opened) or starts_emphasis(state, run):
            return run.start()
    return end


def find_open_marks(state: StateInline) -> set[tuple[str, int]]:
    """Return the marks before the position that may start emphasis, with their numbers."""
    opened: list[tuple[str, int]] = []
    for delimiter in state.delimiters[-MOST_MARKS:]:
        marks = (chr(delimiter.marker), delimiter.length)
        if delimiter.close and marks in opened:
            opened.remove(marks)
        elif delimiter.open:
            opened.append(marks)
    return set(opened)


def ends_emphasis(state: StateInline, run: re.Match[str], opened: set[tuple[str, int]]) -> bool:
    """Return True if marks in a URL end emphasis that one of the open marks has started."""
    mark, length = run[0][0], len(run[0])
    # Strikethrough marks have no number, and three marks are two kinds of emphasis.
    is_open = any(
        mark == other and (number in (0, length) or max(number, length) > 2)
        for other, number in opened
    )
    before, after = state.src[run.start() - 1], state.src[run.end()]
    is_part = after in "&=" or (after in SEPARATORS and (mark == "_" or before in SEPARATORS))
    return is_open and not is_part and state.scanDelims(run.start(), mark != "_").can_close


def starts_emphasis(state: StateInline, run: re.Match[str]) -> bool:
    """Return True if marks in a URL start emphasis, which other marks end."""
    marks, after = run[0], state.src[run.end()]
    is_pattern = len(marks) == 1 and state.src[run.start() - 1] in SEPARATORS and after.isascii()
    if marks[0] == "_" or after in SEPARATORS or is_pattern:
        return False
    if not state.scanDelims(run.start(), True).can_open:  # noqa: FBT003 - markdown-it's signature
        return False
    most = min(state.posMax, run.end() + LONGEST_EMPHASIS)
    for other in MARKS.finditer(state.src, run.end(), most):
        if other[0] == marks:
            # The next URL may have the same mark as a part.
            _, scheme, rest = state.src[run.end() : other.end() + 1].rpartition("://")
            is_next = bool(scheme) and len(rest.split()) == 1 and rest[-1].isalnum()
            scanned = state.scanDelims(other.start(), True)  # noqa: FBT003 - markdown-it's signature
            return scanned.can_close and not is_next
    return False
