"""Reads the visible text of web pages. Executes and loads nothing."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from chats.files.text_encodings import decode_text

SKIPPED = frozenset({"script", "style", "template", "noscript", "svg"})
BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote br caption dd div dl dt fieldset figcaption figure footer"
        " form h1 h2 h3 h4 h5 h6 header hr legend li main nav ol option p pre section summary table"
        " title tr ul",
    )
)
CELLS = frozenset({"td", "th"})
# Code points without characters: the border of two cells, and a space that is kept.
BORDER, SPACE = "\ufdd0", "\ufdd1"


class TextOfPage(HTMLParser):
    """Collects the visible text of an HTML page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.skipped = ""
        self.depth = 0
        # The cells of the current row, and the open elements whose spaces are kept.
        self.cells = 0
        self.kept = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Start a new line at a block element. Skip scripts and styles."""
        if not self.skipped and tag in SKIPPED:
            self.skipped = tag
        if tag == self.skipped:
            self.depth += 1
        if tag in BLOCKS:
            self.texts.append("\n")
        if tag == "tr":
            self.cells = 0
        elif tag in CELLS:
            self.cells += 1
            self.texts.append(BORDER if self.cells > 1 else "")
        elif tag == "pre":
            self.kept += 1
        elif tag == "img" and not self.skipped and (text := dict(attrs).get("alt")):
            self.texts.append(f" [Image: {text}] ")

    def handle_endtag(self, tag: str) -> None:
        """Start a new line after a block element."""
        if tag == self.skipped:
            self.depth -= 1
            if not self.depth:
                self.skipped = ""
        if tag in BLOCKS:
            self.texts.append("\n")
        if tag == "pre":
            self.kept = max(self.kept - 1, 0)

    def handle_data(self, data: str) -> None:
        if self.skipped:
            return
        if self.kept:
            data = data.replace("\t", 4 * SPACE).replace(" ", SPACE)
        self.texts.append(data)


def read_html(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the visible text of a web page."""
    yield 0, format_page_text(decode_text(path.read_bytes(), is_page=True))


def format_page_text(source: str) -> str:
    """Return the visible text of a page: the rows of tables as lines, and alternative texts."""
    page = TextOfPage()
    page.feed(source.replace(BORDER, " ").replace(SPACE, " "))
    page.close()
    text = " | ".join(cell.strip() for cell in "".join(page.texts).split(BORDER))
    lines = (" ".join(line.split()).replace(SPACE, " ").rstrip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)
