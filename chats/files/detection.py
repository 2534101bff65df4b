"""Detects the type of a file from its content. The name only distinguishes kinds of text."""

import codecs
import re
from pathlib import PurePosixPath
from typing import IO, NamedTuple

import puremagic
from django.utils.translation import gettext_noop

from chats.files.rtf_documents import RTF_BEGINNING
from chats.files.storage import CHUNK_BYTES
from chats.files.text_encodings import find_wide_encoding
from chats.files.unreadable_files import OLE_BEGINNING, is_protected_document
from chats.files.web_archives import is_web_archive
from chats.ground.refusals import Refusal
from chats.models import StoredFile
from chats.record.images import detect_media_type
from contextpolicy.engine.text import names

Kind = StoredFile.Kind
LONGEST_NAME = 200
UNNAMED = "file"
# The directory of an Office file is at its end. 65,535 entries of a usual name length fit.
DIRECTORY_BYTES = 4 * 1024 * 1024
OFFICE = "application/vnd.openxmlformats-officedocument."
# Patterns of entries that only these archives have, with their kind. Some programs add a number to
# the name of the document.
OFFICE_ENTRIES = {
    rb"word/document\d*\.xml": (Kind.DOCX, f"{OFFICE}wordprocessingml.document"),
    rb"xl/workbook\.xml": (Kind.XLSX, f"{OFFICE}spreadsheetml.sheet"),
}
# A document that is protected with a password says nothing about its kind.
PROTECTED = OFFICE_ENTRIES[rb"word/document\d*\.xml"]
PROTECTED_TYPES = {".xlsx": OFFICE_ENTRIES[rb"xl/workbook\.xml"]}
# Media types of texts by file extension; any other text is plain.
TEXT_TYPES = {
    ".csv": (Kind.CSV, "text/csv"),
    ".tsv": (Kind.CSV, "text/tab-separated-values"),
    ".md": (Kind.TEXT, "text/markdown"),
    ".json": (Kind.TEXT, "application/json"),
}
# Beginnings of texts. Each comment is an atomic group: otherwise, the number of ways to match
# repeated comments would double with each, and a file of 300 bytes would stop the process.
HTML = re.compile(
    rb"\s*+(?:(?><\?xml.*?\?>|<!--.*?-->)\s*+)*+<(?:!doctype\s+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
SVG = re.compile(
    rb"\s*+(?:(?><\?xml.*?\?>|<!--.*?-->|<!doctype[^>\[]*(?:\[.*?\]\s*)?>)\s*+)*+"
    rb"<(?:\w{1,20}:)?svg\b",
    re.IGNORECASE | re.DOTALL,
)
# Control characters that no text has: all but tab, line ends, form feed and escape.
CONTROLS = bytes(set(range(0x20)) - {*b"\t\n\f\r\x1b"})


class FileKindRefused(Refusal):
    """The content is not an image, PDF, document or text of a supported format."""

    code = "file_kind_refused"
    status = 422
    sentence = gettext_noop(
        "{name} cannot be attached: its content is not an image (PNG, JPEG, GIF, WebP), text, code,"
        " CSV, HTML, PDF, DOCX or XLSX. Convert it to one of these."
    )
    param = "file"


class FileKind(NamedTuple):
    """The kind of a file (`StoredFile.Kind`) and its media type."""

    kind: str
    media_type: str


def clean_file_name(name: str) -> str:
    """Return a name without folders and forbidden characters, of at most 200 characters.

    Returns “file” if nothing usable is left.
    """
    base = name.replace("\\", "/").rpartition("/")[2]
    base = " ".join(names.normalise_name(names.replace_forbidden_characters(base)).split())
    if not names.is_allowed_name(base) or not base.strip("."):
        return UNNAMED
    ending = PurePosixPath(base).suffix[-20:]
    return base if len(base) <= LONGEST_NAME else base[: LONGEST_NAME - len(ending)] + ending


def detect_file_kind(file: IO[bytes], *, name: str) -> FileKind:
    """Return the kind of a file by its content and rewind it. Raises `FileKindRefused`.

    The extension of `name` also decides between kinds of text.
    """
    file.seek(0)
    head = file.read(CHUNK_BYTES)
    found = detect_binary_kind(file, head, name=name) or detect_text_kind(file, head, name=name)
    file.seek(0)
    if found is None:
        raise FileKindRefused(name=name)
    return found


def detect_binary_kind(file: IO[bytes], head: bytes, *, name: str) -> FileKind | None:
    """Return the kind of an image, a PDF or an Office file; None for any other content.

    The extension of `name` decides between documents that are protected with a password.
    """
    if image := detect_media_type(head):
        return FileKind(Kind.IMAGE, image)
    # Some servers and programs write a byte order mark or line ends before the content.
    begin = head.removeprefix(codecs.BOM_UTF8).lstrip()
    types = {match.mime_type for match in match_signatures(begin)}
    if "application/pdf" in types and begin.startswith(b"%PDF-"):
        return FileKind(Kind.PDF, "application/pdf")
    # RTF can contain pictures as raw bytes, which `is_text` refuses.
    if begin.startswith(RTF_BEGINNING):
        return FileKind(Kind.DOCX, "application/rtf")
    if head.startswith(OLE_BEGINNING) and is_protected_document(file):
        return FileKind(*PROTECTED_TYPES.get(PurePosixPath(name).suffix.lower(), PROTECTED))
    if not head.startswith(b"PK\x03\x04"):
        return None
    size = file.seek(0, 2)
    file.seek(max(0, size - DIRECTORY_BYTES))
    directory = file.read(DIRECTORY_BYTES)
    found = [kind for entry, kind in OFFICE_ENTRIES.items() if re.search(entry, directory)]
    # An archive that claims to be both is neither.
    return FileKind(*found[0]) if len(found) == 1 else None


def match_signatures(head: bytes) -> list[puremagic.PureMagicWithConfidence]:
    """Return the file types whose signature matches the content, best first."""
    try:
        return list(puremagic.magic_string(head))
    except (puremagic.PureError, ValueError):
        # The content is empty or has no known signature, like most texts.
        return []


def detect_text_kind(file: IO[bytes], head: bytes, *, name: str) -> FileKind | None:
    """Return the kind of a text file; None if the content is not text, or is an SVG image.

    SVG is text, but browsers treat it as an image that can contain scripts.
    """
    if not is_text(file, head):
        return None
    begin = decode_beginning(head)
    if SVG.match(begin):
        return None
    if HTML.match(begin):
        return FileKind(Kind.HTML, "text/html")
    if is_web_archive(begin):
        return FileKind(Kind.HTML, "multipart/related")
    ending = PurePosixPath(name).suffix.lower()
    return FileKind(*TEXT_TYPES.get(ending, (Kind.TEXT, "text/plain")))


def decode_beginning(head: bytes) -> bytes:
    """Return the first bytes of a text in UTF-8, or an older encoding, without a mark."""
    if wide := find_wide_encoding(head):
        return head.decode(wide, "replace").encode()
    return head.removeprefix(codecs.BOM_UTF8)


def is_text(file: IO[bytes], head: bytes) -> bool:
    """Return True if the whole file is text: in Unicode, or a national encoding."""
    # In all encodings with one or more bytes for a character, a control character is a byte that is
    # part of no other character.
    wide = find_wide_encoding(head)
    decoder = codecs.getincrementaldecoder(wide)("replace") if wide else None
    file.seek(0)
    while piece := file.read(CHUNK_BYTES):
        if decoder is not None:
            piece = decoder.decode(piece).encode()
        # Five times as fast as a search with a regular expression.
        if len(piece.translate(None, CONTROLS)) != len(piece):
            return False
    return True
