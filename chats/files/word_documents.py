"""Yields the text of Word documents from their XML, without loading the whole document.

Only the tags of text and tables matter. Damaged tables, missing parts, macros and unknown
elements therefore do not prevent reading. Deleted text is skipped; inserted text is read.
"""

import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from chats.files.office_xml import ENTRY_ERRORS, create_parser

CHUNK_BYTES = 64 * 1024
DAMAGED_PART = "(A part of this document is damaged and could not be read.)"
# The main part. Some programs number it.
MAIN_PART = r"word/document\d*\.xml"
# The other parts with text, in order.
PARTS = (
    r"word/footnotes\d*\.xml",
    r"word/endnotes\d*\.xml",
    r"word/comments\d*\.xml",
)
# The headers and footers of sections, and of their first, left and right pages.
MARGINS = {"Header: ": r"word/header\d*\.xml", "Footer: ": r"word/footer\d*\.xml"}
# The maximum number of different lines of headers and footers.
MOST_MARGIN_LINES = 1_000
# The main namespace, also of strict documents, and that of formulas.
WORDS = ("/wordprocessingml/2006/main", "/ooxml/wordprocessingml/main")
FORMULAS = ("/officeDocument/2006/math", "/ooxml/officeDocument/math")
# Elements whose text is not part of the document: an older form of the element before, deleted
# text, and text that was moved away.
SKIPPED = frozenset({"Fallback", "del", "moveFrom"})
SIGNS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
# A cell that spans more columns than Word allows is damaged.
MOST_COLUMNS = 63


@dataclass(slots=True)
class Row:
    """A row of a table that is being read."""

    cells: list[str] = field(default_factory=list)
    # The text of the current cell, and the column at which it begins.
    texts: list[str] = field(default_factory=list)
    column: int = 0
    span: int = 1
    is_continued: bool = False


@dataclass(slots=True)
class Table:
    """A table that is being read, with the last text of each column for merged cells."""

    row: Row = field(default_factory=Row)
    above: dict[int, str] = field(default_factory=dict)


class TextOfDocument:
    """Collects the lines of one part of a Word document."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.paragraphs: list[list[str]] = []
        self.tables: list[Table] = []
        self.runs = self.skipped = self.in_text = 0
        # The beginning of the next line: the author of a comment.
        self.beginning = ""

    def start_element(self, name: str, attributes: dict[str, str]) -> None:
        space, _, tag = name.rpartition(" ")
        if self.skipped or tag in SKIPPED:
            self.skipped += 1
        elif tag == "t" and space.endswith(WORDS + FORMULAS):
            self.in_text += 1
        elif space.endswith(WORDS):
            self.start_word_element(tag, attributes)
        elif tag == "docPr" and (text := attributes.get("descr", "")):
            self.write(f"[Image: {' '.join(text.split())}]")

    def start_word_element(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "p":
            self.paragraphs.append([])
        elif tag == "r":
            self.runs += 1
        elif tag == "tbl":
            self.tables.append(Table())
        elif tag == "comment":
            author = get_value(attributes, "author")
            self.beginning = f"Comment by {author}: " if author else "Comment: "
        elif tag in SIGNS and self.runs:
            self.write(SIGNS[tag])
        elif self.tables:
            self.start_table_element(tag, get_value(attributes, "val"))

    def start_table_element(self, tag: str, value: str) -> None:
        row = self.tables[-1].row
        if tag == "tr":
            self.tables[-1].row = Row()
        elif tag == "tc":
            row.texts, row.span, row.is_continued = [], 1, False
        elif tag == "gridSpan":
            row.span = parse_columns(value, default=1)
        elif tag == "gridBefore":
            row.column = parse_columns(value, default=0)
        elif tag == "vMerge":
            row.is_continued = value != "restart"

    def end_element(self, name: str) -> None:
        space, _, tag = name.rpartition(" ")
        if self.skipped:
            self.skipped -= 1
        elif tag == "t" and space.endswith(WORDS + FORMULAS):
            self.in_text -= 1
        elif space.endswith(WORDS) and (end := self.ENDS.get(tag)):
            end(self)

    def add_text(self, text: str) -> None:
        if self.in_text and not self.skipped:
            self.write(text)

    def write(self, text: str) -> None:
        """Add text to the current paragraph."""
        if self.paragraphs:
            self.paragraphs[-1].append(text)

    def end_run(self) -> None:
        self.runs -= 1

    def end_paragraph(self) -> None:
        self.add_line("".join(self.paragraphs.pop()))

    def end_cell(self) -> None:
        if not self.tables:
            return
        table = self.tables[-1]
        row = table.row
        text = " ".join(" ".join(row.texts).split())
        if row.is_continued:
            text = table.above.get(row.column, "")
        table.above[row.column] = text
        row.cells.append(text)
        row.column += row.span
        row.texts = []

    def end_row(self) -> None:
        if not self.tables:
            return
        table = self.tables[-1]
        line, table.row = " | ".join(table.row.cells), Row()
        self.tables.pop()
        self.add_line(line)
        self.tables.append(table)

    def end_table(self) -> None:
        if self.tables:
            self.tables.pop()

    def add_line(self, line: str) -> None:
        """Add a line to the cell of the current table, or else to the document."""
        if not line:
            return
        if self.tables:
            self.tables[-1].row.texts.append(line)
        else:
            self.lines.append(f"{self.beginning}{line}\n")
            self.beginning = ""

    ENDS: ClassVar[dict[str, Callable[["TextOfDocument"], None]]] = {
        "p": end_paragraph,
        "r": end_run,
        "tc": end_cell,
        "tr": end_row,
        "tbl": end_table,
    }


def get_value(attributes: dict[str, str], name: str) -> str:
    """Return an attribute of an element by its name without namespace; empty if it has none."""
    return next((each for key, each in attributes.items() if key.endswith(f" {name}")), "")


def parse_columns(text: str, *, default: int) -> int:
    """Return a number of columns; the default if it is not valid."""
    return min(int(text), MOST_COLUMNS) if re.fullmatch(r"[0-9]{1,9}", text) else default


def read_word_lines(path: Path) -> Iterator[str]:
    """Yield the paragraphs and table rows of a Word document, then its notes and comments.

    The different lines of headers and footers follow. A line replaces the rest of a damaged part.
    Raises `ENTRY_ERRORS` for the main part.
    """
    with zipfile.ZipFile(path) as archive:
        names = sorted(set(archive.namelist()))
        for name in [name for name in names if re.fullmatch(MAIN_PART, name)][:1]:
            yield from iterate_part_lines(archive, name)
        for pattern in PARTS:
            for name in [name for name in names if re.fullmatch(pattern, name)][:1]:
                yield from iterate_optional_lines(archive, name)
        for beginning, pattern in MARGINS.items():
            lines: dict[str, None] = {}
            for name in [name for name in names if re.fullmatch(pattern, name)]:
                for line in iterate_optional_lines(archive, name):
                    if line.strip() and len(lines) < MOST_MARGIN_LINES:
                        lines[line] = None
            yield from (f"{beginning}{line}" for line in lines)


def iterate_optional_lines(archive: zipfile.ZipFile, name: str) -> Iterator[str]:
    """Yield the lines of a part without which the document can be read."""
    try:
        yield from iterate_part_lines(archive, name)
    except ENTRY_ERRORS:
        yield f"{DAMAGED_PART}\n"


def iterate_part_lines(archive: zipfile.ZipFile, name: str) -> Iterator[str]:
    """Yield the lines of one part of a Word document. Raises `ENTRY_ERRORS`."""
    text = TextOfDocument()
    parser = create_parser(text)
    is_end = False
    with archive.open(name) as part:
        while not is_end:
            piece = part.read(CHUNK_BYTES)
            is_end = not piece
            parser.Parse(piece, is_end)
            yield from text.lines
            text.lines.clear()
