"""Files with damaged or unusual parts: the rest of the file is read, and nothing is changed."""

import io
import zipfile
from functools import partial
from typing import Any

import openpyxl
import pytest
from PIL import Image

from chats.files import storage
from chats.files.workbooks import DAMAGED_SHEET
from chats.models import StoredFile
from tests.chats.files.sample_files import damage_entry, make_docx, make_pdf, replace_entry
from tests.support.file_uploads import Read
from tests.support.files_in_chats import read_stored_text

WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
COMPATIBLE = "http://schemas.openxmlformats.org/markup-compatibility/2006"
MATHS = "http://schemas.openxmlformats.org/officeDocument/2006/math"
pytestmark = pytest.mark.django_db


def replace_entries(data: bytes, entries: dict[str, str]) -> bytes:
    """Return an archive with other entries."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held, "w") as new:
        for name in dict.fromkeys([*old.namelist(), *entries]):
            new.writestr(name, entries[name] if name in entries else old.read(name))
    return held.getvalue()


def make_word(body: str, *, space: str = WORDS) -> bytes:
    """Return a Word document with this XML as its body."""
    spaces = f'xmlns:w="{space}" xmlns:mc="{COMPATIBLE}" xmlns:m="{MATHS}"'
    xml = f"<w:document {spaces}><w:body>{body}</w:body></w:document>"
    return replace_entries(make_docx("x"), {"word/document.xml": xml})


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr><w:p>{run(text) if text else ''}</w:p></w:tc>"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"<w:p>{run('A budget of ')}<w:ins>{run('900')}</w:ins> </w:p>", "A budget of 900\n"),
        (f"<w:p><w:del><w:r><w:delText>7</w:delText></w:r></w:del>{run('8')}</w:p>", "8\n"),
        (f"<w:p>{run('a')}<w:moveFrom>{run('gone')}</w:moveFrom></w:p>", "a\n"),
        (f"<w:sdt><w:sdtContent><w:p>{run('A form')}</w:p></w:sdtContent></w:sdt>", "A form\n"),
        (f"<w:p><w:sdt><w:sdtContent>{run('field')}</w:sdtContent></w:sdt></w:p>", "field\n"),
        (
            f"<w:p>{run('a')}<w:r><mc:AlternateContent><mc:Choice><w:txbxContent><w:p>{run('box')}"
            f"</w:p></w:txbxContent></mc:Choice><mc:Fallback><w:p>{run('box')}</w:p></mc:Fallback>"
            "</mc:AlternateContent></w:r></w:p>",
            "box\na\n",
        ),
        ("<w:p><m:oMath><m:r><m:t>x=2</m:t></m:r></m:oMath></w:p>", "x=2\n"),
        (
            "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>"
            f"{run('a')}<w:r><w:tab/><w:br/></w:r>{run('b')}</w:p>",
            "a\t\nb\n",
        ),
    ],
    ids=["inserted", "deleted", "moved", "control", "inline", "box", "formula", "tabs"],
)
def test_all_words_of_a_word_document_are_read(read: Read, body: str, text: str) -> None:
    file = read(make_word(body), "a.docx")
    assert file["state"] == "ready"
    assert read_stored_text(file["id"]) == text


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([cell("c", '<w:gridSpan w:val="1000000000"/>')], "c\n"),
        ([cell("one"), cell("a") + cell("", "<w:vMerge/>")], "one\na | \n"),
        ([cell("", "<w:vMerge/>") + cell("b")], " | b\n"),
        (
            [cell("top", '<w:vMerge w:val="restart"/>') + cell("a"), cell("", "<w:vMerge/>")],
            "top | a\ntop\n",
        ),
        ([f"<w:tc><w:tbl><w:tr>{cell('in')}{cell('ner')}</w:tr></w:tbl></w:tc>"], "in | ner\n"),
    ],
    ids=["wide", "ragged", "without start", "merged", "nested"],
)
def test_damaged_and_merged_tables_are_read(read: Read, rows: list[str], text: str) -> None:
    table = "".join(f"<w:tr>{row}</w:tr>" for row in rows)
    file = read(make_word(f"<w:tbl>{table}</w:tbl><w:p>{run('after')}</w:p>"), "a.docx")
    assert (file["state"], read_stored_text(file["id"])) == ("ready", f"{text}after\n")


def test_missing_parts_macros_templates_and_strict_documents_are_read(read: Read) -> None:
    image = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/image"
    missing = f'<Relationships><Relationship Id="r9" Type="{image}" Target="NULL"/></Relationships>'
    kind = "application/vnd.ms-word.document.macroEnabled.main+xml"
    part = f'<Override PartName="/word/document.xml" ContentType="{kind}"/>'
    note = f'<w:footnotes xmlns:w="{WORDS}"><w:p>{run("a note")}</w:p></w:footnotes>'
    for text, data in {
        "missing": replace_entries(make_docx("missing"), {"word/_rels/document.xml.rels": missing}),
        "macros": replace_entries(make_docx("macros"), {"[Content_Types].xml": part}),
        "strict": make_word(f"<w:p>{run('strict')}</w:p>", space=STRICT),
        "noted\na note": replace_entries(make_docx("noted"), {"word/footnotes.xml": note}),
    }.items():
        file = read(data, "a.docx")
        assert (file["state"], read_stored_text(file["id"])) == ("ready", f"{text}\n")


def test_a_numbered_main_part_is_a_word_document(read: Read) -> None:
    file = read(renumber(make_docx("numbered")), "a.docx")
    assert (file["kind"], read_stored_text(file["id"])) == ("docx", "numbered\n")


def renumber(data: bytes) -> bytes:
    """Return a Word document whose main part has a number, like those of some programs."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held, "w") as new:
        for name in old.namelist():
            new.writestr(name.replace("word/document.xml", "word/document2.xml"), old.read(name))
    return held.getvalue()


def test_a_long_document_is_read_to_the_limit_without_loading_all(read: Read) -> None:
    file = read(make_word(f"<w:p>{run('words ' * 5)}</w:p>" * 100_000), "a.docx")
    assert (file["state"], file["is_whole"], file["characters"]) == ("ready", False, 1_000_000)


def test_one_damaged_page_does_not_hide_the_others(read: Read) -> None:
    data = make_pdf("one apple", "two pears", "three plums")
    file = read(data.replace(b"[3 0 R 5 0 R 7 0 R]", b"[3 0 R 9 9 R 7 0 R]"), "a.pdf")
    assert (file["state"], file["pages"]) == ("ready", 3)
    assert read_stored_text(file["id"]) == (
        "[Page 1]\none apple\n\n"
        "[Page 2]\n(This page is damaged and could not be read.)\n\n"
        "[Page 3]\nthree plums\n\n"
    )


@pytest.mark.parametrize("before", [b"\r\n\r\n", b"\xef\xbb\xbf", b" "])
def test_blanks_before_a_pdf_are_allowed(read: Read, before: bytes) -> None:
    file = read(before + make_pdf("words"), "a.pdf")
    assert (file["kind"], read_stored_text(file["id"])) == ("pdf", "[Page 1]\nwords\n\n")


def open_copy(file: Any) -> Image.Image:
    """Return the copy of an image for models."""
    row = StoredFile.objects.get(pk=file["id"])
    with storage.open_file_bytes(row, is_copy=True) as opened:
        return Image.open(io.BytesIO(opened.read()))


@pytest.mark.parametrize("level", [0, 30_000, 65_535])
def test_the_levels_of_a_16_bit_image_stay(read: Read, level: int) -> None:
    held = io.BytesIO()
    Image.new("I;16", (50, 40), level).save(held, "PNG")
    made = open_copy(read(held.getvalue(), "a.png")).convert("RGB")
    assert made.getpixel((5, 5)) == (level // 256,) * 3


@pytest.mark.parametrize(("kind", "name"), [("MPO", "a.jpg"), ("WEBP", "a.webp"), ("PNG", "a.png")])
def test_the_copy_of_a_photo_fits_the_limits_of_providers(read: Read, kind: str, name: str) -> None:
    held = io.BytesIO()
    photo = Image.effect_noise((2048, 1600), 90).convert("RGB")
    photo.save(held, kind, **({"save_all": True} if kind == "MPO" else {}))
    made = open_copy(read(held.getvalue(), name))
    assert (made.format, made.size) == ("JPEG", (2048, 1600))
    row = StoredFile.objects.latest("created_at")
    assert row.copy_size <= 3_500_000


def test_transparent_pixels_of_a_large_image_become_white(read: Read) -> None:
    held = io.BytesIO()
    photo = Image.effect_noise((2048, 2048), 90).convert("RGBA")
    photo.putalpha(Image.effect_noise((2048, 2048), 90))
    photo.paste((0, 0, 0, 0), (0, 0, 100, 100))
    photo.save(held, "PNG")
    made = open_copy(read(held.getvalue(), "a.png"))
    assert made.format == "JPEG"
    assert min(made.getpixel((50, 50))) > 245  # type: ignore[arg-type]  # a tuple: RGB


def test_a_workbook_with_a_chart_sheet_is_read(read: Read) -> None:
    book, held = openpyxl.Workbook(), io.BytesIO()
    sheet: Any = book.active
    sheet["A1"] = "visible"
    chart = openpyxl.chart.BarChart()
    chart.add_data(openpyxl.chart.Reference(sheet, min_col=1, min_row=1))
    book.create_chartsheet("Chart").add_chart(chart)
    book.save(held)
    file = read(held.getvalue(), "a.xlsx")
    assert (file["state"], read_stored_text(file["id"])) == ("ready", "[Sheet Sheet]\nvisible\n")


def make_workbook(*sheets: str) -> bytes:
    """Return a workbook whose sheets have this XML as their rows."""
    book = openpyxl.Workbook()
    for number in range(len(sheets) - 1):
        book.create_sheet(f"More {number}")
    held = io.BytesIO()
    book.save(held)
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    entries = {
        f"xl/worksheets/sheet{number}.xml": f'<worksheet xmlns="{space}"><sheetData>{rows}'
        "</sheetData></worksheet>"
        for number, rows in enumerate(sheets, start=1)
    }
    return replace_entries(held.getvalue(), entries)


ROW = '<row r="{0}"><c r="A{0}" t="inlineStr"><is><t>{1}</t></is></c></row>'


@pytest.mark.parametrize(
    "damage",
    [
        '<row r="2"><c r="A2"><v>twelve</v></c></row>',
        '<row r="2"><c r="A2" t="s"><v>99</v></c></row>',
    ],
    ids=["number", "shared text"],
)
def test_one_damaged_sheet_does_not_hide_the_others(read: Read, damage: str) -> None:
    data = make_workbook(ROW.format(1, "before") + damage, ROW.format(1, "other"))
    file = read(data, "a.xlsx")
    assert file["state"] == "ready"
    text = read_stored_text(file["id"])
    assert "before\n(The rest of this sheet is damaged and could not be read.)\n" in text
    assert text.endswith("other\n")


def test_a_file_with_damaged_parts_only_is_not_ready(read: Read) -> None:
    data = make_workbook('<row r="1"><c r="A1"><v>twelve</v></c></row>')
    assert read(data, "a.xlsx")["code"] == "file_damaged"


def lose_entry(archive: bytes, name: str) -> bytes:
    """Return an archive without an entry, to which the other entries refer."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(held, "w") as new:
        for entry in old.infolist():
            if entry.filename != name:
                new.writestr(entry.filename, old.read(entry))
    return held.getvalue()


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    "damage",
    [
        damage_entry,
        lose_entry,
        partial(replace_entry, data=b"<worksheet><she"),
        partial(replace_entry, data=b""),
        partial(replace_entry, data=b"<?xml version='1.0' encoding='x'?><worksheet/>"),
    ],
    ids=["bytes", "lost", "cut", "empty", "encoding"],
)
def test_an_unreadable_sheet_does_not_hide_the_others(number: int, damage: Any, read: Read) -> None:
    data = make_workbook(ROW.format(1, "first"), ROW.format(1, "second"))
    file = read(damage(data, f"xl/worksheets/sheet{number}.xml"), "a.xlsx")
    assert file["state"] == "ready"
    text = read_stored_text(file["id"])
    assert DAMAGED_SHEET in text
    assert ("first" in text, "second" in text) == (number == 2, number == 1)
