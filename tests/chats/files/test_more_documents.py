"""RTF documents, web archives, UTF-16, headers, comments of cells, and protected documents."""

import base64
import codecs
import io
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pytest
from openpyxl.comments import Comment

from chats.files.extractors import extract_file
from chats.models import FileChunk, FileExcerpt, StoredFile
from tests.chats.files.sample_files import (
    damage_entry,
    make_docx,
    make_png,
    make_xlsx,
    replace_entry,
)
from tests.support.file_uploads import Read, Upload, read_like_a_worker
from tests.support.files_in_chats import get_accepted_turn, read_stored_text

RTF = rb"""{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fswiss\fcharset0 Arial;}
{\f1\fcharset204 Arial Cyr;}}{\colortbl;\red0;}{\*\generator Writer;}{\info{\title Not shown}}
{\header Top of the page\par}{\headerl Top of the page\par}
\pard The {\b fee} is 40 \u8364? caf\'e9{\footnote Net of tax.}\par
\uc2\u26085\'93\'fa\uc1  \u-10179?\u-8704? {\f1 \'cf\'f0\'e8}{\deleted gone}\par
\trowd\cellx1 one\cell two\cell\row
{\field{\*\fldinst HYPERLINK "http://x"}{\fldrslt link}}{\pict\bin5 }}}}}0102ff}\{braces\}\par
{\shp{\*\shpinst{\sp{\sn a}{\sv b}}{\shptxt Box\par}}{\shprslt Box}}}after the end"""
RTF_TEXT = """\
The fee is 40 € café
日 \N{GRINNING FACE} При
one | two
link{braces}

Box
"""
PAGE = "<!DOCTYPE html><title>Prices</title><table><tr><td>café<td>4 €</table>"


def make_web_archive(*parts: bytes) -> bytes:
    """Return a web archive as Chromium writes it, with these parts after its page."""
    head = b"From: <Saved by Blink>\r\nSubject: Prices\r\nMIME-Version: 1.0\r\n"
    head += b'Content-Type: multipart/related;\r\n\ttype="text/html";\r\n\tboundary="--B"\r\n\r\n'
    return head + b"".join(b"----B\r\n" + part for part in parts) + b"----B--\r\n"


def make_part(data: bytes, media_type: str = "text/html") -> bytes:
    """Return a part of a web archive."""
    head = f"Content-Type: {media_type}\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    return head.encode() + base64.encodebytes(data) + b"\r\n"


def make_protected_document(name: str = "EncryptedPackage", *, padding: int = 0) -> bytes:
    """Return an OLE container with an entry of this name in its directory."""
    entries = b""
    for each in ("Root Entry", "EncryptionInfo", name):
        written = each.encode("utf-16-le")
        kind = 5 if each == "Root Entry" else 2
        entry = written.ljust(64, b"\0") + bytes([len(written) + 2, 0, kind, 1])
        entries += entry.ljust(128, b"\0")
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(512, b"\0")
    return head + bytes(512 + padding) + entries.ljust(512, b"\0") + bytes(range(256)) * 40


def extract(kind: str, data: bytes, folder: Path) -> str:
    """Return the text of a document, or the code of a failure."""
    path = folder / "file"
    path.write_bytes(data)
    found = extract_file(kind, path, None)
    return found.get("code") or "".join(chunk[1] for chunk in found["chunks"])


def test_an_rtf_document_is_read(read: Read) -> None:
    found = read(RTF, "letter.rtf")
    assert (found["kind"], found["media_type"]) == ("docx", "application/rtf")
    text = read_stored_text(found["id"])
    assert text == f"{RTF_TEXT}\nHeader: Top of the page\nNet of tax."


@pytest.mark.parametrize(
    ("data", "kind", "begin"),
    [
        (RTF, "docx", "The fee"),
        (make_web_archive(make_part(PAGE.encode())), "html", "Prices"),
        (b"The fee", "text", "{codes"),
    ],
    ids=["rtf", "archive", "text"],
)
@pytest.mark.parametrize("is_sent", [False, True])
def test_a_document_that_was_read_as_a_text_is_read_again(
    data: bytes, kind: str, begin: str, is_sent: bool, read: Read, upload: Upload, send: Any
) -> None:
    own = read(data, "a.txt")["id"]
    rows = StoredFile.objects.filter(pk=own)
    rows.update(kind="text", media_type="text/plain")
    FileChunk.objects.filter(file=own).update(text="{codes")
    if is_sent:
        turn = get_accepted_turn(send(own))
        chunk = FileChunk.objects.filter(file=own).earliest("number")
        FileExcerpt.objects.create(turn=turn, place=1, chunk=chunk)
    assert upload(data, "a.txt").json()["id"] == own
    read_like_a_worker(own)
    row = rows.get()
    if is_sent:
        kind, begin = "text", "{codes"
    assert (row.kind, row.state) == (kind, "ready")
    assert read_stored_text(own).startswith(begin)
    assert row.characters


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb"a\bin99999999999 b", "a"),
        (rb"a\bin2000000000 b", "a"),
        (rb"a{\*\x\bin5 }}}}}}\bin-5 b}c", "ab"),
        (rb"a{\object{\*\objdata 0102}{\result x}}b\'c", "abc"),
        (rb"{\fonttbl{\f0\fcharset128 A;}}{\f0 \'93\'fa}\f7 \'e9\ansicpg99999 \'e9", "日éé"),
        (b"\\ansicpg932 \\'82\r\n\\'a0\\'82\n\xa2", "あい"),
        (rb"\uc0\u55357 a\u56832 b\uc1\u", "\ufffda\ufffdb"),
        (b"a}}}}b", "a"),
        (rb"{" * 500 + b"a", "a"),
        (rb"{" * 1_000_000 + b"a", "file_damaged"),
        (b"", "file_without_text"),
    ],
)
def test_hostile_rtf_is_bounded(body: bytes, text: str, tmp_path: Path) -> None:
    assert extract("docx", rb"{\rtf1 " + body, tmp_path) == text


def test_rows_of_tables_inside_cells_are_lines(tmp_path: Path) -> None:
    row = rb"%s\nestcell %s\nestcell{\*\nesttableprops\trowd\cellx1\nestrow}{\nonesttables\par}"
    body = rb"a\par " + row % (b"b", b"c") + row % (b"d", b"e") + rb"f\cell g\cell\row h"
    assert extract("docx", rb"{\rtf1 " + body, tmp_path) == "a\nb | c\nd | e\nf | g\nh"


@pytest.mark.parametrize("body", [b"{a}", rb"\'41", rb"{\footnote a}", rb"{\*\a", rb"\u8364?"])
def test_a_large_rtf_document_is_read_or_refused_within_the_limits(body: bytes, read: Read) -> None:
    found = read(rb"{\rtf1 b" + body * (3_000_000 // len(body)), "a.rtf")
    assert found["state"] == "ready" or found["code"] in {"file_damaged", "file_takes_long"}
    assert found["characters"] <= 1_000_000


def test_the_pages_of_a_web_archive_are_read(read: Read) -> None:
    archive = make_web_archive(
        make_part(PAGE.encode()),
        make_part(make_png(), "image/png"),
        make_part(b"body { color: red }", "text/css"),
        make_part(PAGE.replace("Prices", "Преди").encode("cp1251", "replace"), "text/html"),
        make_part("<p>Стоимость".encode("koi8-r"), "text/html; charset=koi8-r"),
    )
    found = read(archive, "page.mht")
    assert (found["kind"], found["media_type"]) == ("html", "multipart/related")
    text = read_stored_text(found["id"])
    assert text.startswith("Prices\ncafé | 4 €\nПреди\n")
    assert text.endswith("Стоимость\n")
    assert "color" not in text


@pytest.mark.parametrize("before", [b"", codecs.BOM_UTF8, b"\r\n", codecs.BOM_UTF8 + b"\n"])
@pytest.mark.parametrize("media_type", ["text/html", "application/xhtml+xml"])
def test_a_web_archive_after_a_mark_or_line_ends_is_read(
    before: bytes, media_type: str, read: Read
) -> None:
    found = read(before + make_web_archive(make_part(PAGE.encode(), media_type)), "page.mht")
    assert found["media_type"] == "multipart/related"
    assert read_stored_text(found["id"]) == "Prices\ncafé | 4 €\n"


MAIL = """\
Received: from a by b
From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>
To: Zoë <z@example.org>,
 y@example.org
Subject: =?utf-8?b?UHJpY2VzIPCfmIA=?= now
Date: Mon, 30 Nov 2026 10:00:00 +0100
MIME-Version: 1.0
Content-Type: multipart/related; boundary=A

--A
Content-Type: multipart/alternative; boundary=B

--B
Content-Type: text/plain; charset=utf-8

The fee is 40.
--B
Content-Type: text/html; charset=utf-8

<p>The fee is <b>40</b>.
--B--
--A
Content-Type: text/plain; charset=utf-8

Written by hand
--A--
"""
MAIL_LINES = """\
Subject: Prices 😀 now
From: Jürgen <j@example.org>
To: Zoë <z@example.org>, y@example.org
Date: Mon, 30 Nov 2026 10:00:00 +0100

"""


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, f"{MAIL_LINES}The fee is 40.\nWritten by hand\n"),
        # The only text of an alternative.
        ({"text/html": "text/calendar"}, f"{MAIL_LINES}The fee is 40.\nWritten by hand\n"),
        (
            {"=?utf-8?b?UHJpY2VzIPCfmIA=?= now": "=?x-none?b?QQ==?="},
            f"{MAIL_LINES}The fee is 40.\nWritten by hand\n".replace(
                "Prices 😀 now", "=?x-none?b?QQ==?="
            ),
        ),
        ({"Received:": "Snapshot-Content-Location:"}, "The fee is 40.\n"),
        ({"Received:": "X:", "<j@example.org>": "Saved by Internet Explorer"}, "The fee is 40.\n"),
    ],
    ids=["mail", "calendar", "encoding", "chromium", "explorer"],
)
def test_a_saved_mail_has_its_headers_and_texts(
    changed: dict[str, str], text: str, read: Read
) -> None:
    mail = MAIL
    for old, new in changed.items():
        mail = mail.replace(old, new)
    found = read(mail.encode(), "mail.eml")
    assert found["media_type"] == "multipart/related"
    assert read_stored_text(found["id"]) == text


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (make_web_archive(*[make_part(b"<p>a")] * 10_001), "file_unpacks_too_large"),
        (
            b"".join(
                b"MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=%d\r\n\r\n--%d\r\n"
                % (number, number)
                for number in range(5_000)
            ),
            "file_damaged",
        ),
        (make_web_archive(make_part(make_png(), "image/png")), "file_without_text"),
        (make_web_archive(b"Content-Type: text/html\r\n"), "file_without_text"),
    ],
    ids=["parts", "nested", "picture", "cut"],
)
def test_hostile_web_archives_are_refused(data: bytes, code: str, read: Read) -> None:
    found = read(data, "page.mhtml")
    assert (found["kind"], found["code"]) == ("html", code)


def test_a_web_archive_of_much_base64_is_bounded(read: Read) -> None:
    found = read(make_web_archive(make_part(b"<p>abcdefg" * 1_500_000)), "page.mhtml")
    assert (found["state"], found["characters"]) == ("ready", 1_000_000)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32"])
@pytest.mark.parametrize(
    "text", ["The fee is 40 €.\n", "Größe: 一 一 一\r\n", "日本語 の文\n" * 30_000, "a"]
)
def test_wide_texts_are_read_without_a_mark_too(encoding: str, text: str, read: Read) -> None:
    found = read(text.encode(encoding), "notes.txt")
    assert (found["kind"], found["state"]) == ("text", "ready")
    assert read_stored_text(found["id"]) == text.removeprefix("\ufeff")


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)),
        b"\0\1\2\3" * 50,
        b"MZ\x90\0\3\0\0\0\4\0\0\0\xff\xff\0\0",
        b"a\0b\0\0\0c\0",
        b"\0" * 100,
        make_protected_document("WordDocument"),
        make_protected_document(padding=64),
    ],
)
def test_other_bytes_are_no_wide_texts(data: bytes, upload: Upload) -> None:
    answer = upload(data, "a.txt")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "file_kind_refused")


def make_margins() -> bytes:
    """Return a Word document of two sections with the same header and different footers."""
    document = docx.Document()
    document.add_paragraph("The fee is 40.")
    for number in range(2):
        section = document.sections[0] if not number else document.add_section()
        section.header.is_linked_to_previous = section.footer.is_linked_to_previous = False
        section.header.paragraphs[0].text = "Confidential"
        section.footer.paragraphs[0].text = f"Version {number}"
    held = io.BytesIO()
    document.save(held)
    return held.getvalue()


def test_headers_and_footers_of_a_word_document_are_read_once(read: Read) -> None:
    text = read_stored_text(read(make_margins(), "a.docx")["id"])
    assert text == ("The fee is 40.\nHeader: Confidential\nFooter: Version 0\nFooter: Version 1\n")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data, name: replace_entry(data, name, b"<w:hdr"),
        lambda data, name: replace_entry(data, name, b"<?xml version='1.0' encoding='x'?><a/>"),
        damage_entry,
    ],
    ids=["xml", "encoding", "deflate"],
)
def test_a_damaged_header_does_not_hide_the_document(damage: Any, tmp_path: Path) -> None:
    text = extract("docx", damage(make_margins(), "word/header1.xml"), tmp_path)
    assert text.startswith("The fee is 40.\nHeader: (A part of this document is damaged")
    assert text.endswith("Footer: Version 0\nFooter: Version 1\n")


def make_commented_workbook() -> bytes:
    """Return a workbook with comments in its first and third sheets."""
    book: Any = openpyxl.Workbook()
    first = book.active
    first["B2"] = 40
    first["B2"].comment = Comment("Is this\nright?", "Ann Lee")
    told = (
        "[Threaded comment]\n\nYour version of Excel …\n\nComment:\n    It is.\nReply:\n    Good."
    )
    first["A1"].comment = Comment(told, "tc={8E5F}")
    book.create_sheet("Empty")
    third = book.create_sheet("Third")
    third["C3"].comment = Comment("Third", "")
    held = io.BytesIO()
    book.save(held)
    return held.getvalue()


def test_comments_of_cells_are_read(read: Read) -> None:
    text = read_stored_text(read(make_commented_workbook(), "a.xlsx")["id"])
    assert text == (
        "[Sheet Sheet]\n\t40\nComment on A1: It is. Reply: Good.\n"
        "Comment on B2 by Ann Lee: Is this right?\n[Sheet Empty]\n[Sheet Third]\n"
        "Comment on C3: Third\n"
    )


@pytest.mark.parametrize(
    "xml",
    [
        b"<comments",
        b'<!DOCTYPE a [<!ENTITY b "c">]><comments>&b;</comments>',
        b"<?xml version='1.0' encoding='x'?><a/>",
        b"\0",
        None,
    ],
)
def test_damaged_comments_do_not_hide_cells(xml: bytes | None, tmp_path: Path) -> None:
    data, name = make_commented_workbook(), "xl/comments/comment1.xml"
    data = damage_entry(data, name) if xml is None else replace_entry(data, name, xml)
    text = extract("xlsx", data, tmp_path)
    assert "\t40\n(The comments of this sheet are damaged" in text
    assert "Comment on C3: Third" in text


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx", "a"])
def test_a_document_with_a_password_says_so(name: str, read: Read) -> None:
    found = read(make_protected_document(), name)
    assert (found["state"], found["code"]) == ("failed", "file_locked")
    assert found["kind"] == ("xlsx" if name.endswith("xlsx") else "docx")
    assert found["reason"]
    assert StoredFile.objects.get().size == len(make_protected_document())


def test_documents_without_a_password_are_read_as_before(read: Read) -> None:
    assert read(make_docx("a"), "a.docx")["state"] == "ready"
    assert read(make_xlsx(("a",)), "a.xlsx")["state"] == "ready"
