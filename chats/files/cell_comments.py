"""Reads the comments and notes of the cells of Excel workbooks from their XML.

The library that reads the cells of large workbooks does not read comments.
"""

import posixpath
import re
import zipfile
from collections.abc import Iterator
from typing import NamedTuple
from xml.parsers import expat

from chats.files.office_xml import create_parser, refuse_document_type

SPREADSHEET = ("/spreadsheetml/2006/main", "/ooxml/spreadsheetml/main")
# The maximum number of comments of a sheet.
MOST_COMMENTS = 10_000
# Excel writes a conversation as a note, too, with an explanation for older versions. Its author is
# a number.
CONVERSATION = re.compile(r"\[Threaded comment\].*?\bComment:\s*", re.DOTALL)


class CellComment(NamedTuple):
    """A comment: the reference of its cell, its author, and its text in one line."""

    cell: str
    author: str
    text: str


class TextOfComments:
    """Collects the comments of a part of a workbook."""

    def __init__(self) -> None:
        self.found: list[CellComment] = []
        self.authors: list[str] = []
        self.cell = ""
        self.author = -1
        self.is_open = False
        self.texts: list[str] = []
        # Phonetic texts repeat the words before them.
        self.skipped = 0

    def start_element(self, name: str, attributes: dict[str, str]) -> None:
        space, _, tag = name.rpartition(" ")
        if not space.endswith(SPREADSHEET):
            return
        self.is_open = tag in ("t", "author") and not self.skipped
        self.skipped += tag == "rPh"
        if tag in ("author", "comment"):
            self.texts = []
        if tag == "comment":
            self.cell = attributes.get("ref", "")
            number = attributes.get("authorId", "")
            self.author = int(number) if re.fullmatch("[0-9]{1,6}", number) else -1

    def end_element(self, name: str) -> None:
        space, _, tag = name.rpartition(" ")
        if not space.endswith(SPREADSHEET):
            return
        self.is_open = False
        self.skipped -= tag == "rPh"
        if tag == "author":
            self.authors.append("".join(self.texts).strip())
        elif tag == "comment" and len(self.found) < MOST_COMMENTS:
            text = " ".join(CONVERSATION.sub("", "".join(self.texts), count=1).split())
            if text:
                self.found.append(CellComment(self.cell, self.get_author(), text))

    def get_author(self) -> str:
        """Return the name of the author of the current comment; empty if it has none."""
        author = self.authors[self.author] if 0 <= self.author < len(self.authors) else ""
        return "" if author.startswith("tc={") else author

    def add_text(self, text: str) -> None:
        if self.is_open:
            self.texts.append(text)


def read_cell_comments(archive: zipfile.ZipFile, sheet: str) -> Iterator[CellComment]:
    """Yield the comments of a sheet, named by its entry in the archive.

    Raises `ENTRY_ERRORS`.
    """
    for name in list_comment_entries(archive, sheet):
        found = TextOfComments()
        parse_entry(archive, name, parser=create_parser(found))
        yield from found.found


def parse_entry(archive: zipfile.ZipFile, name: str, *, parser: expat.XMLParserType) -> None:
    """Parse an entry of an archive. Raises the errors of `read_cell_comments`."""
    with archive.open(name) as part:
        parser.ParseFile(part)


def list_comment_entries(archive: zipfile.ZipFile, sheet: str) -> list[str]:
    """Return the entries with the comments of a sheet."""
    folder, _, own = sheet.rpartition("/")
    relations = f"{folder}/_rels/{own}.rels"
    names = set(archive.namelist())
    targets: list[str] = []

    def start_element(_name: str, attributes: dict[str, str]) -> None:
        if attributes.get("Type", "").endswith("/relationships/comments"):
            targets.append(attributes.get("Target", ""))

    if relations in names:
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = refuse_document_type
        parser.StartElementHandler = start_element
        parse_entry(archive, relations, parser=parser)
    found = (posixpath.normpath(posixpath.join("/", folder, target))[1:] for target in targets)
    return [name for name in dict.fromkeys(found) if name in names]
