"""Extracts the content of one file in a separate process.

`python -m chats.files.extractors KIND FILE [IMAGE]`

The process has limits on memory, processor time and output, so hostile files cannot harm the
worker. It imports neither Django nor settings. Its output is one JSON object: the text in chunks,
or the code of a failure. For images it writes a smaller copy without metadata to `IMAGE`.
"""

import io
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from chats.files.text_encodings import decode_text
from chats.files.word_documents import read_word_lines
from chats.memory.search.words import split_words

if sys.platform != "win32":
    import resource

MIB = 1024 * 1024
MEMORY_BYTES = 512 * MIB
OUTPUT_BYTES = 64 * MIB
SECONDS = 30
MOST_PAGES = 2_000
MOST_CHARACTERS = 1_000_000
# The usual length of a chunk in characters, and the part of it in which the end is searched.
CHUNK_CHARACTERS = 1_000
CHUNK_SLACK = 300
# Office files: unpacked bytes and entries. Real documents have a few MiB.
UNPACKED_BYTES = 200 * MIB
MOST_ENTRIES = 10_000
# Images: pixels before decoding, and the longest side of the copy for models and pages.
MOST_PIXELS = 50_000_000
LONGEST_SIDE = 2_048
# Large images with a palette are converted in strips. Each gives this number of rows of the result.
STRIP_ROWS = 64
# The library decodes WebP images of more pixels only with more memory.
MOST_WEBP_PIXELS = 20_000_000
# The bytes of an image's copy. Providers accept 5 MB, some of them in base64, a third more.
LARGEST_COPY = 3_500_000
JPEG_QUALITIES = (90, 75, 50)
# The texts of a page and of a sheet that cannot be read.
DAMAGED_PAGE = "(This page is damaged and could not be read.)"
DAMAGED_SHEET = "(The rest of this sheet is damaged and could not be read.)"
# A piece of text, and the page on which it begins (0: the kind has no pages).
Piece = tuple[int, str]
# The sheets of a workbook, and a cell with a formula and without a value. Cells of the type `str`
# have an empty text as their value.
SHEET_ENTRY = re.compile(r"xl/worksheets/[^/]+\.xml", re.IGNORECASE)
WITHOUT_VALUE = re.compile(
    rb"<(?:\w+:)?c\b(?![^<>]*\bt=.str.)[^<>]*>\s*"
    rb"<(?:\w+:)?f\b[^<>]*(?:/>|>[^<>]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)
# The most bytes of such a cell. A formula has up to 8,192 characters.
LONGEST_CELL = 50_000
SKIPPED = frozenset({"script", "style", "template", "noscript", "svg"})
BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote br dd div dl dt fieldset figure footer form h1 h2 h3 h4"
        " h5 h6 header hr li main nav ol p pre section table td th title tr ul",
    )
)


class UnreadableFile(Exception):
    """The file cannot be read. `code` is the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


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
    """Yield a text in any common encoding."""
    yield 0, decode_text(path.read_bytes())


class TextOfPage(HTMLParser):
    """Collects the visible text of an HTML page. Executes and loads nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.skipped = ""
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Start a new line at a block element. Skip scripts and styles."""
        del attrs
        if not self.skipped and tag in SKIPPED:
            self.skipped = tag
        if tag == self.skipped:
            self.depth += 1
        if tag in BLOCKS:
            self.texts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """Start a new line after a block element."""
        if tag == self.skipped:
            self.depth -= 1
            if not self.depth:
                self.skipped = ""
        if tag in BLOCKS:
            self.texts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.texts.append(data)


def read_html(path: Path) -> Iterator[Piece]:
    """Yield the visible text of a web page."""
    page = TextOfPage()
    page.feed(decode_text(path.read_bytes(), is_page=True))
    page.close()
    lines = (" ".join(line.split()) for line in "".join(page.texts).split("\n"))
    yield 0, "\n".join(line for line in lines if line)


def read_pdf(path: Path) -> Iterator[Piece]:
    """Yield the text of each page, after a line with the page number. Executes nothing.

    Raises `UnreadableFile`.
    """
    import pypdfium2  # noqa: PLC0415  # only for this kind

    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        raise UnreadableFile(
            "file_locked" if "assword" in str(error) else "file_damaged"
        ) from error
    are_read = 0
    for number in range(min(len(document), MOST_PAGES)):
        try:
            page = document[number]
            text = page.get_textpage().get_text_bounded()
            page.close()
        except pypdfium2.PdfiumError:
            # One damaged page does not hide the others.
            yield number + 1, f"[Page {number + 1}]\n{DAMAGED_PAGE}\n\n"
            continue
        are_read += 1
        lines = text.replace("\r\n", "\n").replace("\r", "\n").strip()
        if lines:
            yield number + 1, f"[Page {number + 1}]\n{lines}\n\n"
    if not are_read:
        raise UnreadableFile("file_damaged")


def count_pdf_pages(path: Path) -> int:
    """Return the number of pages of a PDF that has been read."""
    import pypdfium2  # noqa: PLC0415  # only for this kind

    return len(pypdfium2.PdfDocument(path))


def check_archive(path: Path) -> None:
    """Raise `UnreadableFile` if an archive is damaged, or too large when unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    # The last two: a directory with impossible sizes, or a compression that Python lacks.
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableFile("file_damaged") from error
    # Reading an entry stops at the size that the directory states.
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > UNPACKED_BYTES or len(entries) > MOST_ENTRIES:
        raise UnreadableFile("file_unpacks_too_large")


def read_docx(path: Path) -> Iterator[Piece]:
    """Yield the paragraphs, tables and notes of a Word document in order."""
    check_archive(path)
    for line in read_word_lines(path):
        yield 0, line


def open_sheets(path: Path, *, has_values: bool) -> list[Any]:
    """Return the sheets of a workbook, with the stored values or with the formulas."""
    from openpyxl.chartsheet import Chartsheet  # noqa: PLC0415  # only for this kind
    from openpyxl.reader.excel import ExcelReader  # noqa: PLC0415  # as above

    class SheetReader(ExcelReader):  # type: ignore[misc]  # untyped library
        """Ignores charts: they have no text, and the library fails on some of them."""

        def read_chartsheet(self, sheet: Any, rel: Any) -> None:
            """Add an empty sheet, because other parts of a workbook count its sheets."""
            del rel
            self.wb._add_sheet(Chartsheet(parent=self.wb, title=sheet.name))  # noqa: SLF001  # as the library does

    # An open file, because the library refuses paths without an extension.
    file = io.BytesIO(path.read_bytes())
    reader = SheetReader(file, read_only=True, data_only=has_values, keep_links=False)
    reader.read()
    book = reader.wb
    for sheet in book.worksheets:
        # The stated size of a sheet may be wrong.
        sheet.reset_dimensions()
    return list(book.worksheets)


def lacks_values(path: Path) -> bool:
    """Return True if a sheet of a workbook has a formula without a stored value."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            if SHEET_ENTRY.fullmatch(entry) is None:
                continue
            rest = b""
            with archive.open(entry) as file:
                while piece := file.read(MIB):
                    if WITHOUT_VALUE.search(rest + piece):
                        return True
                    rest = (rest + piece)[-LONGEST_CELL:]
    return False


def iter_sheet_rows(sheet: Any, *, formulas: Any) -> Iterator[list[str]]:
    """Yield the texts of the cells of each row. `formulas`: the sheet with formulas, or itself."""
    if formulas is sheet:
        for row in sheet.iter_rows(values_only=True):
            yield ["" if value is None else str(value) for value in row]
        return
    pairs = zip(sheet.iter_rows(), formulas.iter_rows(values_only=True), strict=True)
    for row, written in pairs:
        yield [format_cell(cell, formula) for cell, formula in zip(row, written, strict=True)]


def format_cell(cell: Any, formula: Any) -> str:
    """Return the text of a cell: its stored value, otherwise its formula, if any."""
    if cell.value is not None:
        return str(cell.value)
    # An array formula is an object with a text.
    text = getattr(formula, "text", formula)
    return text if isinstance(text, str) and cell.data_type != "str" else ""


def read_xlsx(path: Path) -> Iterator[Piece]:
    """Yield the rows of each sheet of an Excel workbook.

    Formulas are replaced by their stored values. A formula without a value stays: applications that
    do not calculate write such workbooks.
    """
    check_archive(path)
    sheets = open_sheets(path, has_values=True)
    of_formulas = open_sheets(path, has_values=False) if lacks_values(path) else sheets
    for sheet, formulas in zip(sheets, of_formulas, strict=True):
        yield 0, f"[Sheet {sheet.title}]\n"
        try:
            for values in iter_sheet_rows(sheet, formulas=formulas):
                if any(values):
                    yield 0, "\t".join(values).rstrip() + "\n"
        except (ValueError, TypeError, KeyError, IndexError):
            # One damaged sheet does not hide the others.
            yield 0, f"{DAMAGED_SHEET}\n"


READERS = {
    "text": read_plain_text,
    "csv": read_plain_text,
    "html": read_html,
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
    """Split a text into chunks, at the ends of paragraphs, lines or words."""
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
    """Return True if a text has content other than page and sheet headings and damage notes."""
    said = re.sub(r"^\[(?:Page|Sheet) [^\n]*\]$", "", text, flags=re.MULTILINE)
    for note in (DAMAGED_PAGE, DAMAGED_SHEET):
        said = said.replace(note, "")
    return re.search(r"\w", said) is not None


def read_document(kind: str, path: Path) -> dict[str, Any]:
    """Return the text of a file in chunks. Raises `UnreadableFile`."""
    chunks, is_whole = build_chunks(READERS[kind](path))
    if not any(map(has_words, (text for _, text, _ in chunks))):
        raise UnreadableFile("file_without_text")
    pages = count_pdf_pages(path) if kind == "pdf" else 0
    return {"chunks": chunks, "pages": pages, "whole": is_whole and pages <= MOST_PAGES}


def shrink_image(path: Path, copy: Path) -> dict[str, Any]:
    """Write a copy of an image for models and pages: upright, limited in size, without metadata.

    Raises `UnreadableFile`.
    """
    from PIL import Image, ImageOps  # noqa: PLC0415  # only for this kind

    # The size is checked here against a separate limit, before anything is decoded.
    Image.MAX_IMAGE_PIXELS = None
    with Image.open(path, formats=("PNG", "JPEG", "GIF", "WEBP")) as file:
        if file.width * file.height > MOST_PIXELS:
            raise UnreadableFile("image_too_many_pixels")
        file.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))
        # MPO: a JPEG with further pictures, as some phones make them.
        is_photo = file.format in ("JPEG", "MPO")
        image: Image.Image = file
        load_pixels(file)
        if image.mode not in ("RGB", "RGBA", "L", "LA", "CMYK"):
            image = convert_image(image)
        # Before other copies, so that large images fit into the memory.
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE), reducing_gap=2.0)
        made = ImageOps.exif_transpose(image).convert("RGB" if is_photo else "RGBA")
        made.thumbnail((LONGEST_SIDE, LONGEST_SIDE), reducing_gap=2.0)
    data, kind = encode_image(made, is_photo=is_photo)
    copy.write_bytes(data)
    return {"media_type": kind, "width": made.width, "height": made.height}


def load_pixels(file: Any) -> None:
    """Decode an image. Raises `UnreadableFile` if that needs too much memory."""
    try:
        file.load()
    except OSError:
        # The decoder of WebP reports missing memory like damage.
        if file.format == "WEBP" and file.width * file.height > MOST_WEBP_PIXELS:
            raise UnreadableFile("file_needs_memory") from None
        raise


def convert_image(image: Any) -> Any:
    """Return an image with a palette, of one bit or of 16 bits in a mode that can be resized.

    A large image is converted and reduced in strips, because the whole would need several times its
    memory.
    """
    from PIL import Image  # noqa: PLC0415  # only for this kind

    is_deep = image.mode.startswith("I")
    mode = "L" if is_deep else "RGBA"
    factor = max(max(image.size) // LONGEST_SIDE, 1)
    made = Image.new(mode, (-(-image.width // factor), -(-image.height // factor)))
    rows = STRIP_ROWS * factor
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        if is_deep:
            # The library cuts values above 255, so most of a 16-bit image would be white.
            strip = strip.point(lambda value: value / 256)
        made.paste(strip.convert(mode).reduce(factor), (0, top // factor))
    made.getexif().update(image.getexif())
    return made


def encode_image(image: Any, *, is_photo: bool) -> tuple[bytes, str]:
    """Return the bytes and the media type of an image's copy.

    A photo is a JPEG. Another image is a PNG, unless providers would refuse a PNG of its size:
    then it is a JPEG too, with white instead of transparent pixels.
    """
    from PIL import Image  # noqa: PLC0415  # only for this kind

    held = io.BytesIO()
    if not is_photo:
        image.save(held, "PNG")
        if held.tell() <= LARGEST_COPY:
            return held.getvalue(), "image/png"
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image).convert("RGB")
    for quality in JPEG_QUALITIES:
        held = io.BytesIO()
        image.save(held, "JPEG", quality=quality)
        if held.tell() <= LARGEST_COPY:
            break
    return held.getvalue(), "image/jpeg"


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
