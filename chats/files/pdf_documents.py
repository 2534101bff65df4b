"""Reads the text of PDF documents: pages, filled form fields and comments. Executes nothing."""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chats.files.unreadable_files import UnreadableFile

MOST_PAGES = 2_000
# The maximum number of form fields and comments of a page.
MOST_ANNOTATIONS = 2_000
# The text of a page that cannot be read.
DAMAGED_PAGE = "(This page is damaged and could not be read.)"
# The library returns one of these in place of the hyphen that divides a word at the end of a line.
HYPHENS = str.maketrans("", "", "\x02\ufffe")


def read_pdf(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the text of each page, after a line with the page number.

    One line lists the pages without text, to show that something is missing. Raises
    `UnreadableFile`.
    """
    document = open_pdf(path)
    are_read = empty_from = 0
    pages = min(len(document), MOST_PAGES)
    for number in range(1, pages + 1):
        text = read_pdf_page(document, number - 1)
        are_read += text != DAMAGED_PAGE
        if not text:
            empty_from = empty_from or number
            continue
        if empty_from:
            yield empty_from, format_empty_pages(empty_from, number - 1)
        empty_from = 0
        yield number, f"[Page {number}]\n{text}\n\n"
    if empty_from:
        yield empty_from, format_empty_pages(empty_from, pages)
    if not are_read:
        raise UnreadableFile("file_damaged")


def open_pdf(path: Path) -> Any:
    """Open a PDF with its form fields. Raises `UnreadableFile`."""
    import pypdfium2  # noqa: PLC0415  # only for this kind

    try:
        document = pypdfium2.PdfDocument(path)
        document.init_forms()
    except pypdfium2.PdfiumError as error:
        raise UnreadableFile(
            "file_locked" if "assword" in str(error) else "file_damaged"
        ) from error
    return document


def format_empty_pages(first: int, last: int) -> str:
    """Return the line that lists pages without text."""
    if first == last:
        return f"[Page {first} has no text, for example because it is a scan]\n\n"
    return f"[Pages {first} to {last} have no text, for example because they are scans]\n\n"


def count_pdf_pages(path: Path) -> int:
    """Return the number of pages in a PDF that has been read."""
    import pypdfium2  # noqa: PLC0415  # only for this kind

    return len(pypdfium2.PdfDocument(path))


def read_pdf_page(document: Any, index: int) -> str:
    """Return the text of a page, then its filled form fields and comments.

    For a damaged page, returns `DAMAGED_PAGE`, so that the other pages are still read.
    """
    import pypdfium2  # noqa: PLC0415  # only for this kind

    try:
        page = document[index]
        text = page.get_textpage().get_text_bounded().translate(HYPHENS)
    except pypdfium2.PdfiumError:
        return DAMAGED_PAGE
    lines = [text.replace("\r\n", "\n").replace("\r", "\n").strip()]
    lines += iterate_annotations(document, page)
    page.close()
    return "\n".join(line for line in lines if line)


def iterate_annotations(document: Any, page: Any) -> Iterator[str]:
    """Yield a line for each filled form field and each comment of a page."""
    from pypdfium2 import raw  # noqa: PLC0415  # only for this kind

    for place in range(min(raw.FPDFPage_GetAnnotCount(page), MOST_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page, place)
        if not annotation:
            continue
        if raw.FPDFAnnot_GetSubtype(annotation) == raw.FPDF_ANNOT_WIDGET:
            line = format_field(document.formenv, annotation) if document.formenv else ""
        else:
            line = format_comment(annotation)
        raw.FPDFPage_CloseAnnot(annotation)
        if line:
            yield line


def format_field(form: Any, annotation: Any) -> str:
    """Return the line of a form field; empty if the field is not filled."""
    from pypdfium2 import raw  # noqa: PLC0415  # only for this kind

    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    is_box = kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)
    is_text = kind in (
        raw.FPDF_FORMFIELD_TEXTFIELD,
        raw.FPDF_FORMFIELD_COMBOBOX,
        raw.FPDF_FORMFIELD_LISTBOX,
    )
    if not (is_text or (is_box and raw.FPDFAnnot_IsChecked(form, annotation))):
        return ""
    name = read_wide_text(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    name = name or read_wide_text(raw.FPDFAnnot_GetFormFieldName, form, annotation)
    value = read_wide_text(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    return f"Form field {name}: {value}" if value else ""


def format_comment(annotation: Any) -> str:
    """Return the line of a comment, or the text that someone typed on the page."""
    from pypdfium2 import raw  # noqa: PLC0415  # only for this kind

    kind = raw.FPDFAnnot_GetSubtype(annotation)
    kinds = {raw.FPDF_ANNOT_TEXT, raw.FPDF_ANNOT_FREETEXT, raw.FPDF_ANNOT_HIGHLIGHT}
    if kind not in kinds | {raw.FPDF_ANNOT_UNDERLINE, raw.FPDF_ANNOT_STRIKEOUT}:
        return ""
    text = read_wide_text(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
    if not text or kind == raw.FPDF_ANNOT_FREETEXT:
        return text
    author = read_wide_text(raw.FPDFAnnot_GetStringValue, annotation, b"T")
    return f"Comment by {author}: {text}" if author else f"Comment: {text}"


def read_wide_text(function: Callable[..., int], *given: Any) -> str:
    """Return the text that a function of the library writes into a buffer, in one line."""
    from pypdfium2 import raw  # noqa: PLC0415  # only for this kind

    size = function(*given, None, 0)
    buffer = ctypes.create_string_buffer(size)
    function(*given, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), size)
    text = buffer.raw[: max(size - 2, 0)].decode("utf-16-le", "replace")
    return " ".join(text.translate(HYPHENS).split())
