"""Small files of each kind, made by hand or by the libraries that read them."""

import io
import textwrap
import zipfile
from typing import Any

import docx
import openpyxl
from PIL import Image

FILLER = "The committee met and discussed the usual matters of the month in detail. " * 6


def make_png(width: int = 4, height: int = 3, *, kind: str = "PNG", **options: Any) -> bytes:
    """Return an image of one colour."""
    held = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(held, kind, **options)
    return held.getvalue()


def make_pdf(*pages: str, catalog: str = "") -> bytes:
    """Return a PDF with a text on each page. `catalog`: more entries of its catalog."""
    kids = " ".join(f"{3 + 2 * number} 0 R" for number in range(len(pages)))
    font = 3 + 2 * len(pages)
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
    ]
    for number, text in enumerate(pages):
        escaped = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
        lines = " 0 -14 Td ".join(f"({line}) Tj" for line in textwrap.wrap(escaped, 120) or [""])
        stream = f"BT /F1 12 Tf 40 700 Td {lines} ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 1200 800] /Contents {4 + 2 * number} 0 R"
            f" /Resources << /Font << /F1 {font} 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    made, places = "%PDF-1.4\n", []
    for number, text in enumerate(objects, start=1):
        places.append(len(made))
        made += f"{number} 0 obj\n{text}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    made += f"xref\n0 {size}\n0000000000 65535 f \n{table}"
    made += f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{made.index('xref')}\n%%EOF\n"
    return made.encode("latin-1")


def list_report_pages() -> list[str]:
    """Return 300 pages; only page 212 has the budget of the lighthouse."""
    pages = [f"Minutes {number}. {FILLER}" for number in range(1, 301)]
    pages[211] = f"{FILLER} The lighthouse repair budget is 48,213 euros. {FILLER}"
    return pages


def make_docx(*paragraphs: str) -> bytes:
    """Return a Word document."""
    document = docx.Document()
    for text in paragraphs:
        document.add_paragraph(text)
    held = io.BytesIO()
    document.save(held)
    return held.getvalue()


def make_xlsx(*rows: tuple[Any, ...]) -> bytes:
    """Return an Excel workbook with one sheet."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in rows:
        sheet.append(row)
    held = io.BytesIO()
    book.save(held)
    return held.getvalue()


def replace_entry(archive: bytes, name: str, data: bytes) -> bytes:
    """Return an archive in which one entry has other content."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(held, "w") as new:
        for entry in old.infolist():
            content = data if entry.filename == name else old.read(entry)
            new.writestr(entry.filename, content, zipfile.ZIP_DEFLATED)
    return held.getvalue()


def damage_entry(archive: bytes, name: str) -> bytes:
    """Return an archive in which the compressed bytes of one entry are damaged."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        entry = file.getinfo(name)
    start = entry.header_offset + 30 + len(name.encode())
    return archive[:start] + b"\xff" * entry.compress_size + archive[start + entry.compress_size :]
