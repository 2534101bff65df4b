"""Reads the rows of Excel workbooks."""

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from chats.files.cell_comments import read_cell_comments
from chats.files.office_xml import ENTRY_ERRORS
from chats.files.unreadable_files import check_archive

DAMAGED_SHEET = "(The rest of this sheet is damaged and could not be read.)"
DAMAGED_COMMENTS = "(The comments of this sheet are damaged and could not be read.)"
# The sheets of a workbook, and a cell with a formula and without a value. Cells of the type `str`
# have an empty text as their value.
SHEET_ENTRY = re.compile(r"xl/worksheets/[^/]+\.xml", re.IGNORECASE)
WITHOUT_VALUE = re.compile(
    rb"<(?:\w+:)?c\b(?![^<>]*\bt=.str.)[^<>]*>\s*"
    rb"<(?:\w+:)?f\b[^<>]*(?:/>|>[^<>]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)
BREAKS = re.compile(r"[\t\r\n\v\f]+")
# The most bytes of such a cell. A formula has up to 8,192 characters.
LONGEST_CELL = 50_000


def open_sheets(path: Path, *, has_values: bool) -> list[Any]:
    """Return the sheets of a workbook, with the stored values or with the formulas."""
    from openpyxl.chartsheet import Chartsheet  # noqa: PLC0415  # only for this kind
    from openpyxl.reader.excel import ExcelReader  # noqa: PLC0415  # only for this kind
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet  # noqa: PLC0415  # only for this kind

    class UnmeasuredSheet(ReadOnlyWorksheet):  # type: ignore[misc]  # untyped library
        """A sheet whose entry is not opened before its rows are read, so it may be damaged."""

        def _get_size(self) -> None:
            """Leave the size unknown. The stated size of a sheet may be wrong."""

    class SheetReader(ExcelReader):  # type: ignore[misc]  # untyped library
        """Skips charts while reading: they have no text, and the library fails on some of them."""

        def read_worksheets(self) -> None:
            """Add all sheets, also those whose entry is damaged or missing."""
            for sheet, rel in self.parser.find_sheets():
                if "chartsheet" in rel.Type:
                    self.read_chartsheet(sheet, rel)
                    continue
                made = UnmeasuredSheet(self.wb, sheet.name, rel.target, self.shared_strings)
                made.sheet_state = sheet.state
                self.wb._sheets.append(made)  # noqa: SLF001  # as the library does

        def read_chartsheet(self, sheet: Any, rel: Any) -> None:
            """Add an empty sheet, because other parts of a workbook refer to sheets by index."""
            del rel
            self.wb._add_sheet(Chartsheet(parent=self.wb, title=sheet.name))  # noqa: SLF001  # as the library does

    # An open file, because the library refuses paths without an extension.
    file = io.BytesIO(path.read_bytes())
    reader = SheetReader(file, read_only=True, data_only=has_values, keep_links=False)
    reader.read()
    return list(reader.wb.worksheets)


def lacks_values(path: Path) -> bool:
    """Return True if a sheet of a workbook has a formula without a stored value."""
    with zipfile.ZipFile(path) as archive:
        entries = filter(SHEET_ENTRY.fullmatch, archive.namelist())
        return any(entry_lacks_values(archive, entry) for entry in entries)


def entry_lacks_values(archive: zipfile.ZipFile, entry: str) -> bool:
    """Return True if a sheet has a formula without a stored value, before any damage."""
    rest = b""
    try:
        with archive.open(entry) as file:
            while piece := file.read(1024 * 1024):
                if WITHOUT_VALUE.search(rest + piece):
                    return True
                rest = (rest + piece)[-LONGEST_CELL:]
    except ENTRY_ERRORS:
        return False
    return False


def iter_sheet_rows(sheet: Any, *, formulas: Any) -> Iterator[list[str]]:
    """Yield each row as the text of its cells. `formulas`: the sheet with formulas, or itself."""
    if formulas is sheet:
        for row in sheet.iter_rows(values_only=True):
            yield ["" if value is None else format_cell_value(value) for value in row]
        return
    pairs = zip(sheet.iter_rows(), formulas.iter_rows(values_only=True), strict=True)
    for row, written in pairs:
        yield [format_cell(cell, formula) for cell, formula in zip(row, written, strict=True)]


def format_cell(cell: Any, formula: Any) -> str:
    """Return the text of a cell: its stored value, otherwise its formula, if any."""
    if cell.value is not None:
        return format_cell_value(cell.value)
    # An array formula is an object with a text.
    text = getattr(formula, "text", formula)
    return format_cell_value(text) if isinstance(text, str) and cell.data_type != "str" else ""


def format_cell_value(value: Any) -> str:
    """Return a value as text in one line. Tabs and line breaks would look like other cells."""
    return BREAKS.sub(" ", str(value))


def format_sheet_heading(sheet: Any) -> str:
    """Return the line above the rows of a sheet. It says if the sheet is hidden."""
    state = "" if sheet.sheet_state == "visible" else " (hidden)"
    return f"[Sheet {format_cell_value(sheet.title)}{state}]\n"


def read_xlsx(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the rows of each sheet of an Excel workbook.

    Formulas are replaced by their stored values. A formula without a value stays: applications that
    do not calculate write such workbooks.
    """
    check_archive(path)
    sheets = open_sheets(path, has_values=True)
    of_formulas = open_sheets(path, has_values=False) if lacks_values(path) else sheets
    with zipfile.ZipFile(path) as archive:
        for sheet, formulas in zip(sheets, of_formulas, strict=True):
            yield 0, format_sheet_heading(sheet)
            try:
                for values in iter_sheet_rows(sheet, formulas=formulas):
                    if any(values):
                        yield 0, "\t".join(values).rstrip() + "\n"
            except (TypeError, ParseError, *ENTRY_ERRORS):
                # One damaged sheet does not hide the others.
                yield 0, f"{DAMAGED_SHEET}\n"
            yield from ((0, line) for line in iterate_comment_lines(archive, sheet))


def iterate_comment_lines(archive: zipfile.ZipFile, sheet: Any) -> Iterator[str]:
    """Yield a line for each comment of a sheet. Damaged comments do not hide the cells."""
    try:
        entry = sheet._worksheet_path  # noqa: SLF001  # the library has no public name for it
        for comment in read_cell_comments(archive, entry):
            author = f" by {format_cell_value(comment.author)}" if comment.author else ""
            yield f"Comment on {comment.cell}{author}: {comment.text}\n"
    except ENTRY_ERRORS:
        yield f"{DAMAGED_COMMENTS}\n"
