"""Extracts the content of one file in a separate process.

`python -m chats.files.extractors KIND FILE [IMAGE]`

The process has limits on memory, processor time and output, so hostile files cannot harm the
worker. It imports neither Django nor settings. Its output is one JSON object: the text in chunks,
or the code of a failure. For images it writes a smaller copy without metadata to `IMAGE`.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from chats.files.image_copies import shrink_image
from chats.files.text_encodings import decode_text
from chats.files.unreadable_files import UnreadableFile, check_archive
from chats.files.word_documents import read_word_lines
from chats.files.workbooks import DAMAGED_SHEET, read_xlsx
from chats.memory.search.words import split_words

if sys.platform != "win32":
    import resource

MIB = 1024 * 1024
MEMORY_BYTES = 512 * MIB
OUTPUT_BYTES = 64 * MIB
SECONDS = 30
MOST_PAGES = 2_000
MOST_CHARACTERS = 1_000_000
# The usual length of a chunk in characters, and the part of it in which the end is searched.
CHUNK_CHARACTERS = 1_000
CHUNK_SLACK = 300
# The texts of a page and of a sheet that cannot be read.
DAMAGED_PAGE = "(This page is damaged and could not be read.)"
# A piece of text, and the page on which it begins (0: the kind has no pages).
Piece = tuple[int, str]
SKIPPED = frozenset({"script", "style", "template", "noscript", "svg"})
BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote br dd div dl dt fieldset figure footer form h1 h2 h3 h4"
        " h5 h6 header hr li main nav ol p pre section table td th title tr ul",
    )
)


def limit_resources() -> None:
    """Limit the memory, processor time and output of this process."""
    if sys.platform != "win32":
        for name, most in (
            (resource.RLIMIT_AS, MEMORY_BYTES),
            (resource.RLIMIT_FSIZE, OUTPUT_BYTES),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(name, (most, most))
        # Linux sends SIGXCPU at the lower limit and SIGKILL, which names no reason, at the upper.
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))


def read_plain_text(path: Path) -> Iterator[Piece]:
    """Yield a text in any common encoding."""
    yield 0, decode_text(path.read_bytes())


class TextOfPage(HTMLParser):
    """Collects the visible text of an HTML page. Executes and loads nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.skipped = ""
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Start a new line at a block element. Skip scripts and styles."""
        del attrs
        if not self.skipped and tag in SKIPPED:
            self.skipped = tag
        if tag == self.skipped:
            self.depth += 1
        if tag in BLOCKS:
            self.texts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """Start a new line after a block element."""
        if tag == self.skipped:
            self.depth -= 1
            if not self.depth:
                self.skipped = ""
        if tag in BLOCKS:
            self.texts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.texts.append(data)


def read_html(path: Path) -> Iterator[Piece]:
    """Yield the visible text of a web page."""
    page = TextOfPage()
    page.feed(decode_text(path.read_bytes(), is_page=True))
    page.close()
    lines = (" ".join(line.split()) for line in "".join(page.texts).split("\n"))
    yield 0, "\n".join(line for line in lines if line)


def read_pdf(path: Path) -> Iterator[Piece]:
    """Yield the text of each page, after a line with the page number. Executes nothing.

    Raises `UnreadableFile`.
    """
    import pypdfium2  # noqa: PLC0415  # only for this kind

    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        raise UnreadableFile(
            "file_locked" if "assword" in str(error) else "file_damaged"
        ) from error
    are_read = 0
    for number in range(min(len(document), MOST_PAGES)):
        try:
            page = document[number]
            text = page.get_textpage().get_text_bounded()
            page.close()
        except pypdfium2.PdfiumError:
            # One damaged page does not hide the others.
            yield number + 1, f"[Page {number + 1}]\n{DAMAGED_PAGE}\n\n"
            continue
        are_read += 1
        lines = text.replace("\r\n", "\n").replace("\r", "\n").strip()
        if lines:
            yield number + 1, f"[Page {number + 1}]\n{lines}\n\n"
    if not are_read:
        raise UnreadableFile("file_damaged")


def count_pdf_pages(path: Path) -> int:
    """Return the number of pages of a PDF that has been read."""
    import pypdfium2  # noqa: PLC0415  # only for this kind

    return len(pypdfium2.PdfDocument(path))


def read_docx(path: Path) -> Iterator[Piece]:
    """Yield the paragraphs, tables and notes of a Word document in order."""
    check_archive(path)
    for line in read_word_lines(path):
        yield 0, line


READERS = {
    "text": read_plain_text,
    "csv": read_plain_text,
    "html": read_html,
    "pdf": read_pdf,
    "docx": read_docx,
    "xlsx": read_xlsx,
}


def build_chunks(pieces: Iterable[Piece]) -> tuple[list[list[Any]], bool]:
    """Return the text as chunks of [page, text, search words], and True if the text is complete.

    The concatenated chunks equal the text.
    """
    chunks: list[list[Any]] = []
    room = MOST_CHARACTERS
    waiting, of_page = "", 0
    is_whole = True
    for page, text in pieces:
        if page != of_page and waiting:
            chunks += [[of_page, part] for part in split_chunks(waiting)]
            waiting = ""
        of_page = page
        waiting += text[:room]
        if len(text) > room:
            is_whole = False
            break
        room -= len(text)
        if len(waiting) > 100 * CHUNK_CHARACTERS:
            *whole, waiting = split_chunks(waiting)
            chunks += [[of_page, part] for part in whole]
    chunks += [[of_page, part] for part in split_chunks(waiting)]
    for chunk in chunks:
        chunk.append(" ".join(dict.fromkeys(split_words(chunk[1])[0])))
    return chunks, is_whole


def split_chunks(text: str) -> list[str]:
    """Split a text into chunks, at the ends of paragraphs, lines or words."""
    found, start = [], 0
    while len(text) - start > CHUNK_CHARACTERS:
        most = start + CHUNK_CHARACTERS
        ends = (
            (text.rfind(mark, most - CHUNK_SLACK, most), len(mark)) for mark in ("\n\n", "\n", " ")
        )
        end = next((place + size for place, size in ends if place >= 0), most)
        found.append(text[start:end])
        start = end
    if text[start:]:
        found.append(text[start:])
    return found


def has_words(text: str) -> bool:
    """Return True if a text has content other than page and sheet headings and damage notes."""
    said = re.sub(r"^\[(?:Page|Sheet) [^\n]*\]$", "", text, flags=re.MULTILINE)
    for note in (DAMAGED_PAGE, DAMAGED_SHEET):
        said = said.replace(note, "")
    return re.search(r"\w", said) is not None


def read_document(kind: str, path: Path) -> dict[str, Any]:
    """Return the text of a file in chunks. Raises `UnreadableFile`."""
    chunks, is_whole = build_chunks(READERS[kind](path))
    if not any(map(has_words, (text for _, text, _ in chunks))):
        raise UnreadableFile("file_without_text")
    pages = count_pdf_pages(path) if kind == "pdf" else 0
    return {"chunks": chunks, "pages": pages, "whole": is_whole and pages <= MOST_PAGES}


def extract_file(kind: str, path: Path, copy: Path | None) -> dict[str, Any]:
    """Return the content of a file as JSON data, or the code of a failure."""
    try:
        if kind == "image":
            return shrink_image(path, copy or path)
        return read_document(kind, path)
    except UnreadableFile as error:
        return {"code": error.code}
    except MemoryError:
        return {"code": "file_needs_memory"}
    except Exception as error:  # noqa: BLE001  # each library has its own errors for broken files
        sys.stderr.write(f"{type(error).__name__}\n")
        return {"code": "file_damaged"}


def main() -> None:
    """Extract the file given on the command line, and print the result as JSON."""
    kind, path, *copy = sys.argv[1:]
    limit_resources()
    json.dump(extract_file(kind, Path(path), Path(copy[0]) if copy else None), sys.stdout)


if __name__ == "__main__":
    main()
