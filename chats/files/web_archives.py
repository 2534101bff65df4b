"""Reads the pages of web archives (MHTML), which browsers and Word write."""

import codecs
import re
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path

from chats.files.html_pages import format_page_text
from chats.files.text_encodings import decode_text
from chats.files.unreadable_files import UnreadableFile

# The most bytes of the headers of an archive, and the most parts: a page has some hundred pictures.
HEADER_BYTES = 16 * 1024
MOST_PARTS = 10_000
PAGE_TYPES = frozenset({"text/html", "application/xhtml+xml"})
FIRST_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,60}:")
BLANK_LINE = re.compile(rb"\r?\n\r?\n")
VERSION = re.compile(rb"^mime-version[ \t]*:", re.IGNORECASE | re.MULTILINE)
RELATED = re.compile(
    rb"^content-type[ \t]*:[ \t]*(?:\r?\n[ \t]+)?multipart/related\b", re.IGNORECASE | re.MULTILINE
)
# The beginning of a part.
BOUNDARY = re.compile(rb"^--\S", re.MULTILINE)


def is_web_archive(head: bytes) -> bool:
    """Return True if a file that begins with these bytes is a web archive."""
    begin = head[:HEADER_BYTES].lstrip()
    end = BLANK_LINE.search(begin)
    headers = begin[: end.start()] if end else begin
    return bool(FIRST_HEADER.match(headers) and VERSION.search(headers) and RELATED.search(headers))


def read_web_archive(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the visible text of each page of a web archive. Raises `UnreadableFile`."""
    data = path.read_bytes()
    if sum(1 for _ in BOUNDARY.finditer(data)) > MOST_PARTS:
        raise UnreadableFile("file_unpacks_too_large")
    archive = BytesParser(policy=compat32).parsebytes(data.removeprefix(codecs.BOM_UTF8).lstrip())
    for part in archive.walk():
        if part.get_content_type() in PAGE_TYPES:
            yield 0, format_page_text(decode_page(part)) + "\n"


def decode_page(part: Message) -> str:
    """Return the source of a page. Its header or the page itself states the encoding."""
    payload = part.get_payload(decode=True)
    stated = part.get_content_charset("")
    return decode_text(payload if isinstance(payload, bytes) else b"", is_page=True, stated=stated)
