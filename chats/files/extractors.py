"""Extracts the content of one file in a separate process.

`python -m chats.files.extractors KIND FILE [IMAGE]`

The process has limits on memory, processor time and output, so hostile files cannot harm the
worker. It imports neither Django nor settings. Its output is one JSON object: the text in chunks,
or the code of a failure. For images it writes a smaller copy without metadata to `IMAGE`.
"""

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from chats.files import pdf_documents
from chats.files.html_pages import read_html
from chats.files.image_copies import shrink_image
from chats.files.pdf_documents import DAMAGED_PAGE, count_pdf_pages, read_pdf
from chats.files.rtf_documents import RTF_BEGINNING, read_rtf
from chats.files.text_encodings import decode_text
from chats.files.unreadable_files import UnreadableFile, check_archive
from chats.files.web_archives import HEADER_BYTES, is_web_archive, read_web_archive
from chats.files.word_documents import DAMAGED_PART, read_word_lines
from chats.files.workbooks import DAMAGED_COMMENTS, DAMAGED_SHEET, read_xlsx
from chats.memory.search.words import split_words

if sys.platform != "win32":
    import resource

MIB = 1024 * 1024
MEMORY_BYTES = 512 * MIB
OUTPUT_BYTES = 64 * MIB
SECONDS = 30
MOST_CHARACTERS = 1_000_000
# The usual length of a chunk in characters, and the part of it in which the end is searched.
CHUNK_CHARACTERS = 1_000
CHUNK_SLACK = 300
# What readers write in place of a damaged part.
DAMAGE_NOTES = (DAMAGED_PAGE, DAMAGED_PART, DAMAGED_SHEET, DAMAGED_COMMENTS)
# A piece of text, and the page on which it begins (0: the kind has no pages).
Piece = tuple[int, str]


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
    """Yield the text of a file in any common encoding."""
    yield 0, decode_text(path.read_bytes())


def read_docx(path: Path) -> Iterator[Piece]:
    """Yield the paragraphs, tables and notes of a Word or RTF document in order."""
    begin = read_beginning(path).lstrip()
    if begin.startswith(RTF_BEGINNING):
        yield from read_rtf(path)
        return
    check_archive(path)
    for line in read_word_lines(path):
        yield 0, line


def read_web_page(path: Path) -> Iterator[Piece]:
    """Yield the visible text of a web page, or of the pages of a web archive."""
    yield from (read_web_archive if is_web_archive(read_beginning(path)) else read_html)(path)


def read_beginning(path: Path) -> bytes:
    """Return the first bytes of a file, without a byte order mark."""
    with path.open("rb") as file:
        return file.read(HEADER_BYTES).removeprefix(codecs.BOM_UTF8)


# Characters that are left out: soft hyphens, which only layouts need and which hide words from
# searches, and tags, with which a text can contain instructions that people do not see. Flags of
# regions consist of tags, too.
FLAG = "\U0001f3f4[\U000e0020-\U000e007e]{1,9}\U000e007f"
UNSEEN = re.compile(f"({FLAG})|[\u00ad\U000e0000-\U000e007f]")
READERS = {
    "text": read_plain_text,
    "csv": read_plain_text,
    "html": read_web_page,
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
        text = UNSEEN.sub(r"\1", text)
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
    """Split text into chunks, at the ends of paragraphs, lines or words."""
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
    """Return True if text has content other than page and sheet headings and damage notes."""
    said = re.sub(r"^\[(?:Pages?|Sheet) [^\n]*\]$", "", text, flags=re.MULTILINE)
    for note in DAMAGE_NOTES:
        said = said.replace(note, "")
    return re.search(r"\w", said) is not None


def read_document(kind: str, path: Path) -> dict[str, Any]:
    """Return the text of a file in chunks. Raises `UnreadableFile`."""
    chunks, is_whole = build_chunks(READERS[kind](path))
    texts = [text for _, text, _ in chunks]
    if not any(map(has_words, texts)):
        is_damaged = any(note in text for text in texts for note in DAMAGE_NOTES)
        raise UnreadableFile("file_damaged" if is_damaged else "file_without_text")
    pages = count_pdf_pages(path) if kind == "pdf" else 0
    return {
        "chunks": chunks,
        "pages": pages,
        "whole": is_whole and pages <= pdf_documents.MOST_PAGES,
    }


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
