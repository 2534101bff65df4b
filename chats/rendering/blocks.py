"""Finds the closed blocks of a growing Markdown text, which can already be rendered."""

import re

FENCE = re.compile(r"^( {0,3})(`{3,}(?=[^`\n]*\n)|~{3,})[^\n]*\n", re.MULTILINE)
# From each line end, at most one line is read. Otherwise a long run of empty lines would take
# quadratic time.
BLANK = re.compile(r"\n[ \t]*\n(?=\S)")
MAY_BE_ITEM = re.compile(r"(?:[-+*]|\d{1,9}(?:[.)]|$))(?:[ \t]|\n|$)")
# A list may start within a block: it needs no blank line after a paragraph.
LIST_ITEM = re.compile(r"^ {0,3}(?:[-+*]|\d{1,9}[.)])(?:[ \t]|\n)", re.MULTILINE)


class ListItems:
    """The list items of a text, each of which is found once."""

    def __init__(self, text: str, *, end: int) -> None:
        self.found = LIST_ITEM.finditer(text, 0, end)
        self.next = next(self.found, None)

    def is_between(self, start: int, stop: int) -> bool:
        """Return True if an item begins at `start` or later and its mark ends before `stop`.

        `start` must not be smaller than in earlier calls.
        """
        while self.next is not None and self.next.start() < start:
            self.next = next(self.found, None)
        return self.next is not None and self.next.end() <= stop


def find_closed_offset(text: str) -> int:
    """Return the offset up to which the top-level blocks of `text` are closed.

    A block is closed by a blank line before an unindented line, or by the end of its fence. An
    unindented list item continues the preceding list, as does a line that may become a list item.
    The text is scanned once with regular expressions, which is fast enough for each line of a
    stream.
    """
    end = text.rfind("\n") + 1
    closed = position = 0
    items = ListItems(text, end=end)
    while position < end:
        fence = FENCE.search(text, position, end)
        stop = fence.start() if fence else len(text)
        closed = find_last_border(text, block=closed, start=position, stop=stop, items=items)
        if fence is None:
            break
        finish = find_fence_end(text, fence, end)
        # An indented fence may belong to a list that continues.
        if not fence[1]:
            closed = fence.start() if finish is None else finish
        if finish is None:
            break
        position = finish
    return closed


def find_fence_end(text: str, fence: re.Match[str], end: int) -> int | None:
    """Return the offset after the line that closes this fence. None while it is open."""
    mark = re.escape(fence[2][0])
    closing = re.compile(rf"^ {{0,3}}{mark}{{{len(fence[2])},}}[ \t]*\n", re.MULTILINE)
    match = closing.search(text, fence.end(), end)
    return match.end() if match else None


def find_last_border(text: str, *, block: int, start: int, stop: int, items: ListItems) -> int:
    """Return the start of the last block before `stop`.

    `block` is the start of the block at `start`. `items` are the list items of the text.
    """
    for match in BLANK.finditer(text, max(start - 1, 0), stop):
        begin = match.end()
        if not (MAY_BE_ITEM.match(text, begin) and items.is_between(block, begin)):
            block = begin
    return block
