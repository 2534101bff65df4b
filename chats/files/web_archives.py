"""Reads the pages of web archives (MHTML), which browsers and Word write, and of saved e-mails."""

import codecs
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path
from typing import cast

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
# The headers of an e-mail that are read.
MAIL_HEADERS = ("Subject", "From", "To", "Date")
# The header `From` of some browsers, for example "Saved by Windows Internet Explorer".
SAVED_BY_BROWSER = re.compile(r"saved by", re.IGNORECASE)
# The beginning of a part.
BOUNDARY = re.compile(rb"^--\S", re.MULTILINE)


def is_web_archive(head: bytes) -> bool:
    """Return True if a file that begins with these bytes is a web archive."""
    begin = head[:HEADER_BYTES].lstrip()
    end = BLANK_LINE.search(begin)
    headers = begin[: end.start()] if end else begin
    return bool(FIRST_HEADER.match(headers) and VERSION.search(headers) and RELATED.search(headers))


def read_web_archive(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the visible text of each page of a web archive. Raises `UnreadableFile`.

    For an e-mail, yields its main headers and its texts, too.
    """
    data = path.read_bytes()
    if sum(1 for _ in BOUNDARY.finditer(data)) > MOST_PARTS:
        raise UnreadableFile("file_unpacks_too_large")
    archive = BytesParser(policy=compat32).parsebytes(data.removeprefix(codecs.BOM_UTF8).lstrip())
    headers = {name.lower(): str(value) for name, value in archive.raw_items()}
    is_mail = is_mail_header(headers)
    if is_mail:
        for name in MAIL_HEADERS:
            if text := decode_header_text(headers.get(name.lower(), "")):
                yield 0, f"{name}: {text}\n"
        yield 0, "\n"
    alternatives = find_text_alternatives(archive)
    for part in archive.walk():
        media_type = part.get_content_type()
        if media_type in PAGE_TYPES:
            yield 0, format_page_text(decode_part(part, is_page=True)) + "\n"
        elif is_mail and media_type == "text/plain" and id(part) not in alternatives:
            yield 0, decode_part(part, is_page=False).strip() + "\n"


def is_mail_header(headers: Mapping[str, str]) -> bool:
    """Return True if these are the headers of an e-mail, and not of a page that was saved."""
    if "snapshot-content-location" in headers:
        return False
    return "received" in headers or not SAVED_BY_BROWSER.search(headers.get("from", "saved by"))


def decode_header_text(raw: str) -> str:
    """Return the text of a header in one line. `raw`: the header as the parser keeps it."""
    text = decode_text(raw.encode("utf-8", "surrogateescape"))
    # The encoding can be unknown, or the bytes damaged.
    with suppress(HeaderParseError, LookupError, ValueError):
        text = str(make_header(decode_header(text)))
    return " ".join(text.split())


def find_text_alternatives(archive: Message) -> set[int]:
    """Return the identities of the parts of which the e-mail has a page with the same text."""
    found: set[int] = set()
    for part in archive.walk():
        has_choice = part.get_content_type() == "multipart/alternative" and part.is_multipart()
        if has_choice and any(each.get_content_type() in PAGE_TYPES for each in part.walk()):
            found |= {id(each) for each in cast(list[Message], part.get_payload())}
    return found


def decode_part(part: Message, *, is_page: bool) -> str:
    """Return the text of a part. Its header or the page itself states the encoding."""
    payload = part.get_payload(decode=True)
    stated = part.get_content_charset("")
    return decode_text(
        payload if isinstance(payload, bytes) else b"", is_page=is_page, stated=stated
    )
