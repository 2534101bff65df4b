"""Reads the text of RTF documents in one pass: paragraphs, tables, notes, comments and headers.

Codes for layout, pictures, embedded objects and deleted text are skipped. The time grows with the
size of the file, whatever it contains.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from chats.files.unreadable_files import UnreadableFile

RTF_BEGINNING = b"{\\rtf"
# A control word, a byte in hex, a control symbol, a brace, text, or line ends without a meaning.
TOKEN = re.compile(
    rb"\\([A-Za-z]{1,32})(-?[0-9]{1,10})? ?|\\'([0-9A-Fa-f]{2})|\\([^A-Za-z])|([{}])"
    rb"|([^\\{}\r\n]+)|[\r\n]+|\\"
)
# Word writes about ten groups inside each other.
MOST_GROUPS = 1_000
# The maximum number of notes, comments, headers and footers.
MOST_APART = 10_000
# Texts that are collected before they are passed on.
PIECE = 10_000
# A line of more tokens is cut.
LONGEST_LINE = 20 * PIECE
# Groups without text for the reader. Groups that begin with `\*` are skipped, too.
SKIPPED = frozenset(
    re.findall(
        r"\w+",
        "atndate atnicn atnid atnparent atnref atntime atrfend atrfstart bkmkend bkmkstart colortbl"
        " datafield fldinst filetbl fonttbl ftncn ftnsep ftnsepc generator info listtable"
        " listoverridetable listtext nonesttables objdata pict pntext pntxta pntxtb private result"
        " revtbl shprslt sn sp stylesheet sv tc template themedata xe",
    )
)
# Groups whose text follows the main text, with the beginning of its first line.
APART = {
    **dict.fromkeys(("footnote", "annotation"), ""),
    **dict.fromkeys(("header", "headerl", "headerr", "headerf"), "Header: "),
    **dict.fromkeys(("footer", "footerl", "footerr", "footerf"), "Footer: "),
}
CELL = " | "
SIGNS = {
    "par": "\n", "line": "\n", "sect": "\n", "page": "\n", "row": "\n", "nestrow": "\n",
    "tab": "\t", "cell": CELL, "nestcell": CELL, "emdash": "—", "endash": "–", "emspace": " ",
    "enspace": " ", "qmspace": " ", "bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“",
    "rdblquote": "”",
}  # fmt: skip
SYMBOLS = {b"{": "{", b"}": "}", b"\\": "\\", b"~": " ", b"_": "-", b"\n": "\n", b"\r": "\n"}
# The encodings of the character sets of fonts.
CHARSETS = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030",
    136: "big5hkscs", 161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256",
    186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250", 254: "cp437", 255: "cp850",
}  # fmt: skip
CODE_PAGES = {932: "cp932", 936: "gb18030", 949: "cp949", 950: "big5hkscs", 10000: "mac_roman"}
SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Group:
    """The properties of a group. The groups inside it begin with them.

    `uc`: the number of bytes after a Unicode character that replace it for old applications.
    """

    is_skipped: bool = False
    is_deleted: bool = False
    is_font_table: bool = False
    font: int = -1
    uc: int = 1
    # The texts that are written: those of the document, or of a note.
    into: list[str] = field(default_factory=list)


class TextOfRtf:
    """Collects the texts of an RTF document."""

    def __init__(self) -> None:
        self.group = Group()
        self.outer: list[Group] = []
        self.texts = self.group.into
        # The texts after the main text, each with the beginning of its first line.
        self.apart: list[tuple[str, list[str]]] = []
        self.encoding = "cp1252"
        self.fonts: dict[int, str] = {}
        self.default_font = self.defined_font = -1
        # Bytes of one text in the encoding of the font, and bytes that are still left out.
        self.waiting = bytearray()
        self.left_out = 0
        # True after the beginning of a group and after `\*`: the next word is its destination.
        self.is_begin = self.is_optional = False
        # True after the end of the outermost group. The rest is not RTF.
        self.is_complete = False

    def take_token(self, token: re.Match[bytes]) -> int:
        """Apply a token. Return the number of bytes after it that are not RTF."""
        word, number, code, symbol, brace, text = token.groups()
        if code or text:
            self.is_begin = False
            self.add_bytes(bytes.fromhex(code.decode()) if code else text)
            return 0
        if not (word or symbol or brace):
            # A line end can be inside a character of two bytes.
            return 0
        self.flush()
        if word == b"bin":
            return max(int(number or 0), 0)
        if word:
            self.add_word(word.decode(), int(number) if number else None)
        elif symbol:
            self.add_symbol(symbol)
        elif brace == b"{":
            self.begin_group()
        elif brace:
            self.end_group()
        return 0

    def flush(self) -> None:
        """Decode the waiting bytes."""
        if self.waiting:
            encoding = self.fonts.get(self.group.font, self.encoding)
            self.write(self.waiting.decode(encoding, "replace"))
            self.waiting.clear()

    def write(self, text: str) -> None:
        if not (self.group.is_skipped or self.group.is_deleted):
            self.group.into.append(text)

    def add_bytes(self, data: bytes) -> None:
        """Add text in the encoding of the font, without bytes that only old applications show."""
        rest = data[self.left_out :]
        self.left_out -= len(data) - len(rest)
        if rest and not (self.group.is_skipped or self.group.is_deleted):
            self.waiting += rest

    def begin_group(self) -> None:
        """Enter a group. Raises UnreadableFile if too many are open."""
        if len(self.outer) >= MOST_GROUPS:
            raise UnreadableFile("file_damaged")
        self.outer.append(self.group)
        self.left_out = 0
        self.is_begin, self.is_optional = True, False

    def end_group(self) -> None:
        self.group = self.outer.pop() if self.outer else self.group
        self.left_out = 0
        self.is_begin = self.is_optional = False
        self.is_complete = not self.outer

    def add_symbol(self, symbol: bytes) -> None:
        if symbol == b"*":
            self.is_optional = self.is_begin
        elif self.left_out:
            self.left_out -= 1
        elif symbol in SYMBOLS:
            self.write(SYMBOLS[symbol])

    def add_word(self, word: str, number: int | None) -> None:
        """Apply a control word."""
        if self.is_begin:
            self.begin_destination(word)
        self.is_begin = self.is_optional = False
        if word == "u" and number is not None:
            self.write(chr(number & 0xFFFF))
            self.left_out = self.group.uc
        elif self.left_out:
            self.left_out -= 1
        elif word in ("row", "nestrow") and self.group.into[-1:] == [CELL]:
            self.group.into[-1] = "\n"
        elif word in SIGNS:
            self.write(SIGNS[word])
        else:
            self.apply_property(word, number)

    def begin_destination(self, word: str) -> None:
        """Set the properties of a group by its first word."""
        if word == "fonttbl":
            self.group = replace(self.group, is_font_table=True, is_skipped=True)
        elif word in APART and not self.group.is_skipped:
            self.apart.append((APART[word], []))
            self.group = replace(self.group, into=self.apart[-1][1])
            if len(self.apart) > MOST_APART:
                self.apart.pop()
        elif word == "shpinst":
            # The text of a shape is in a group inside this optional one.
            self.group = replace(self.group, is_skipped=False)
            self.write("\n")
        elif word == "nesttableprops":
            # This optional group has the end of a row of a table inside a cell.
            pass
        elif word in SKIPPED or self.is_optional:
            self.group = replace(self.group, is_skipped=True)

    def apply_property(self, word: str, number: int | None) -> None:
        change = self.PROPERTIES.get(word)
        if change is not None:
            change(self, 1 if number is None else number)

    def set_code_page(self, number: int) -> None:
        self.encoding = find_codec(CODE_PAGES.get(number, f"cp{number}"))

    def set_font(self, number: int) -> None:
        if self.group.is_font_table:
            self.defined_font = number
        else:
            self.group = replace(self.group, font=number)

    def set_charset(self, number: int) -> None:
        # Most fonts say 0, also in documents of another code page.
        if self.group.is_font_table and number in CHARSETS:
            self.fonts[self.defined_font] = find_codec(CHARSETS[number])

    def set_default_font(self, number: int) -> None:
        self.default_font = number

    def reset_font(self, _number: int) -> None:
        self.group = replace(self.group, font=self.default_font, is_deleted=False)

    def set_deleted(self, number: int) -> None:
        self.group = replace(self.group, is_deleted=number != 0)

    def set_replaced_bytes(self, number: int) -> None:
        self.group = replace(self.group, uc=min(max(number, 0), 9))

    PROPERTIES: ClassVar = {
        "ansicpg": set_code_page,
        "f": set_font,
        "fcharset": set_charset,
        "deff": set_default_font,
        "plain": reset_font,
        "deleted": set_deleted,
        "uc": set_replaced_bytes,
    }


def find_codec(name: str) -> str:
    """Return a codec of Python; that of Western European texts for an unknown name."""
    try:
        return codecs.lookup(name).name
    except LookupError:
        return "cp1252"


def read_rtf(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the text of an RTF document, then its notes, comments, headers and footers.

    Raises `UnreadableFile`.
    """
    data, found = path.read_bytes(), TextOfRtf()
    at = max(data.find(RTF_BEGINNING), 0)
    while (token := TOKEN.match(data, at)) is not None and not found.is_complete:
        at = token.end() + found.take_token(token)
        # A piece ends with a line, not between two halves of a character.
        size = len(found.texts)
        if size > LONGEST_LINE or (size > PIECE and found.texts[-1] == "\n"):
            yield 0, join_rtf_texts(found.texts)
            found.texts.clear()
    found.flush()
    yield 0, join_rtf_texts(found.texts)
    shown = set()
    for beginning, texts in found.apart:
        text = join_rtf_texts(texts).strip()
        # The headers of the first, left and right pages are often the same.
        if text and (line := f"\n{beginning}{text}") not in shown:
            shown.add(line)
            yield 0, line


def join_rtf_texts(texts: list[str]) -> str:
    """Join texts. Two halves of a Unicode character become one character."""
    text = "".join(texts)
    if SURROGATES.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
