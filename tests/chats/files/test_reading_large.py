"""Workbooks without stored values, and images that need much memory."""

import io

import openpyxl
import pytest
from PIL import Image

from chats.files import storage
from chats.models import StoredFile
from tests.chats.files.sample_files import replace_entry
from tests.support.file_uploads import Read
from tests.support.files_in_chats import read_stored_text

SHEET = "xl/worksheets/sheet1.xml"


def make_raw_workbook(*cells: str) -> bytes:
    """Return a workbook with a chart sheet and a sheet whose row has these cells, as XML."""
    book = openpyxl.Workbook()
    book.create_chartsheet("Chart")
    held = io.BytesIO()
    book.save(held)
    sheet = (
        '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        f'<sheetData><row r="1">{"".join(cells)}</row></sheetData></worksheet>'
    )
    return replace_entry(held.getvalue(), SHEET, sheet.encode())


@pytest.mark.parametrize(
    ("cells", "row"),
    [
        (['<c r="A1"><v>3</v></c>', '<c r="B1"><f>A1*2</f><v></v></c>'], "3\t=A1*2"),
        (['<c r="A1"><f>SUM(C1:D1)</f></c>', '<c r="B1"><f>A1</f><v>8</v></c>'], "=SUM(C1:D1)\t8"),
        (['<c r="A1"><f t="array" ref="A1:A2">C1:C2*2</f><v/></c>'], "=C1:C2*2"),
        # The value of the second formula is an empty text.
        (
            [
                '<c r="A1"><f>B1+1</f><v></v></c>',
                '<c r="B1" t="str"><f>IF(C1=1,2,"")</f><v></v></c>',
                '<c r="C1"><v>5</v></c>',
            ],
            "=B1+1\t\t5",
        ),
        (['<c r="A1"><v>1</v></c>', '<c r="B1" t="str"><f>IF(A1=2,2,"")</f><v></v></c>'], "1"),
    ],
    ids=["empty", "missing", "array", "both", "text"],
)
def test_formulas_without_a_value_are_read_as_formulas(
    read: Read, cells: list[str], row: str
) -> None:
    told = read(make_raw_workbook(*cells), "a.xlsx")
    assert told["state"] == "ready"
    assert read_stored_text(told["id"]) == f"[Sheet Sheet]\n{row}\n"


@pytest.mark.parametrize("mode", ["P", "1", "I;16"])
def test_large_images_of_each_mode_fit_into_the_memory(read: Read, mode: str) -> None:
    image = Image.new(mode, (7_000, 7_000), 0)
    # The right half is white.
    white = Image.new(mode, (3_500, 7_000), 60_000 if mode == "I;16" else 1)
    image.paste(white, (3_500, 0))
    if mode == "P":
        image.putpalette([0, 0, 0, 255, 255, 255])
    exif = Image.Exif()
    exif[0x0112] = 6  # Rotated by 90 degrees.
    held = io.BytesIO()
    image.save(held, "PNG", compress_level=1, exif=exif)
    told = read(held.getvalue(), "a.png")
    assert (told["state"], told["code"]) == ("ready", "")
    row = StoredFile.objects.get(pk=told["id"])
    with storage.open_file_bytes(row, is_copy=True) as file, Image.open(file) as copy:
        grey = copy.convert("L")
        assert grey.size == (2_048, 2_048)
        assert grey.getpixel((1_000, 10)) == 0
        assert int(str(grey.getpixel((1_000, 2_030)))) > 200


def test_a_webp_image_that_is_too_large_to_decode_is_not_called_damaged(read: Read) -> None:
    held = io.BytesIO()
    Image.new("RGBA", (7_000, 7_000), (3, 4, 5, 99)).save(held, "WEBP", method=0, quality=1)
    told = read(held.getvalue(), "a.webp")
    assert (told["state"], told["code"]) == ("failed", "file_needs_memory")
