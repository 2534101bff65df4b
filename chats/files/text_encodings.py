"""Decodes text files whose encoding is not stated: Unicode, or an older encoding.

An HTML page may state its encoding. Otherwise charset-normalizer guesses it from the letters.
Western European encodings are not guessed, because they differ too little: they are Windows-1252.
"""

import codecs
import re
import unicodedata

# The bytes from which an encoding is guessed, and in which a page states it.
SAMPLE_BYTES = 64 * 1024
HEAD_BYTES = 4 * 1024
STATED = re.compile(rb"""charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{2,40})""", re.IGNORECASE)
# The encoding in the XML declaration of an XHTML page.
DECLARED = re.compile(rb"""\s*<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z0-9_.:-]{2,40})["']""")
# The encodings of the HTML standard, by their names in Python. Others are ignored.
PAGE_ENCODINGS = frozenset(
    [
        *("cp932", "shift_jis", "euc_jp", "iso2022_jp", "cp949", "euc_kr", "big5", "big5hkscs"),
        *("gb2312", "gbk", "gb18030", "koi8-r", "koi8-u", "cp866", "cp874", "tis-620"),
        *("mac-roman", "mac-cyrillic"),
        *(f"cp{number}" for number in range(1250, 1259)),
        *(f"iso8859-{number}" for number in range(1, 17)),
    ]
)
# Web pages that state one of these encodings usually use the extended encoding.
EXTENDED = {
    "iso8859-1": "cp1252", "shift_jis": "cp932", "euc_kr": "cp949", "gb2312": "gb18030",
    "gbk": "gb18030", "iso8859-9": "cp1254", "big5": "big5hkscs",
}  # fmt: skip
# Labels of web pages that Python does not know in all versions.
LABELS = {
    "windows-31j": "cp932", "x-sjis": "cp932", "x-euc-jp": "euc_jp", "windows-949": "cp949",
    "x-gbk": "gbk", "x-x-big5": "big5", "windows-874": "cp874", "macintosh": "mac-roman",
}  # fmt: skip
GUESSED = ["cp932", "euc_jp", "cp949", "big5", "gb18030", "cp1251", "koi8_r", "cp1253", "cp1255",
    "cp1256", "cp1250", "cp1252"]  # fmt: skip
WESTERN = frozenset({"cp1250", "cp1252"})
# With fewer bytes above 127, simplified Chinese is often taken for Korean or traditional Chinese.
SHORT = 24
# A damaged text in UTF-8 has at least this number of other characters for each invalid byte.
LETTERS_PER_ERROR = 10
# The categories of code points that texts do not contain: unassigned ones, halves of characters and
# those for private use. Control characters are checked where the kind of a file is detected.
UNASSIGNED = frozenset({"Cn", "Co", "Cs"})
PRINTABLE = bytes([*range(0x20, 0x7F), *b"\t\r\n"])
ASCII = re.compile("[\x00-\x7f]+")
# Characters that a text has if it is not Chinese.
NOT_CHINESE = re.compile("[^\x00-\x7f\u2000-\u206f\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")


def decode_text(data: bytes, *, is_page: bool = False, stated: str = "") -> str:
    """Decode the bytes of a text file, or of a web page, which may state its encoding.

    `stated`: the label of the encoding that something other than the page states.
    """
    if wide := find_wide_encoding(data[:SAMPLE_BYTES]):
        return data.decode(wide, "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        named = find_page_encoding(stated) or (find_stated_encoding(data) if is_page else "")
        encoding = named or find_damaged_unicode(data) or guess_encoding(data)
        return data.decode(encoding, "replace")


def find_wide_encoding(head: bytes) -> str:
    """Return the codec of a text whose characters have two or four bytes; otherwise empty.

    `head`: the beginning of the text. Without a byte order mark, it must consist of assigned
    characters in UTF-16. Bytes of other files hardly ever do.
    """
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # Other encodings have no such byte. Spaces and line ends have one in UTF-16.
    if b"\0" not in head:
        return ""
    zeros = {"utf-16-le": head[1::2].count(0), "utf-16-be": head[::2].count(0)}
    order = max(zeros, key=zeros.__getitem__)
    others = head.translate(None, b"\0")
    is_latin = len(others.translate(None, PRINTABLE)) < len(others) // 10
    # Latin letters in UTF-16 are pairs with such a byte. Any pair of them is a Chinese character.
    if is_latin and zeros[order] < len(head) // 4:
        return ""
    try:
        # The sample can end within a character.
        text = codecs.getincrementaldecoder(order)().decode(head)
    except UnicodeDecodeError:
        return ""
    return "" if UNASSIGNED.intersection(map(unicodedata.category, set(text))) else order


def find_damaged_unicode(data: bytes) -> str:
    """Return the name of UTF-8 if text is in UTF-8 except for a few bytes; otherwise empty.

    Such text was cut, or joined from several files. Text in other encodings has almost no valid
    multi-byte sequences.
    """
    text = data.decode("utf-8", "replace")
    letters = len(text) - sum(map(len, ASCII.findall(text)))
    wrong = text.count("\ufffd")
    is_cut = wrong == 1 and text.endswith("\ufffd") and letters > 1
    return "utf-8-sig" if is_cut or letters > LETTERS_PER_ERROR * wrong else ""


def find_stated_encoding(page: bytes) -> str:
    """Return the Python codec of the encoding that a web page states.

    Empty if it states none, or one that is unknown or not in `PAGE_ENCODINGS`.
    """
    head = page[:HEAD_BYTES]
    stated = DECLARED.match(head) or STATED.search(head)
    if stated is None:
        return ""
    return find_page_encoding(stated[1].decode("ascii"))


def find_page_encoding(label: str) -> str:
    """Return the Python codec of a label. Empty if it is unknown or not in `PAGE_ENCODINGS`."""
    label = label.lower()
    try:
        name = codecs.lookup(LABELS.get(label, label)).name
    except LookupError:
        return ""
    return EXTENDED.get(name, name) if name in PAGE_ENCODINGS else ""


def guess_encoding(data: bytes) -> str:
    """Return the probable encoding of text that is not in Unicode."""
    from charset_normalizer import from_bytes  # noqa: PLC0415  # most texts are Unicode and need no guess

    sample = cut_sample(data)
    best = from_bytes(sample, cp_isolation=GUESSED).best()
    found = best.encoding if best is not None else "cp1252"
    is_short = sum(byte > 127 for byte in sample) < SHORT
    is_unsure = is_short and found in {"cp949", "big5"}
    if is_unsure and is_chinese(sample) and not is_hangul(sample):
        return "gb18030"
    return "cp1252" if found in WESTERN else found


def cut_sample(data: bytes) -> bytes:
    """Return at most 64 KiB of a text, from the line of its first byte outside ASCII.

    A shortened text ends with a whole line if possible.
    """
    letter = re.search(rb"[\x80-\xff]", data)
    first = letter.start() if letter else 0
    start = max(data.rfind(b"\n", 0, first), 0)
    sample = data[start : start + SAMPLE_BYTES]
    if len(sample) < SAMPLE_BYTES:
        return sample
    end = sample.rfind(b"\n")
    return sample[:end] if end > first - start else sample


def is_chinese(sample: bytes) -> bool:
    """Return True if the bytes, as GB 18030, are only Chinese characters, ASCII and punctuation."""
    return not NOT_CHINESE.search(sample.decode("gb18030", "replace"))


def is_hangul(sample: bytes) -> bool:
    """Return True if all characters outside ASCII, as code page 949, are Korean syllables."""
    text = sample.decode("cp949", "replace")
    return all("\uac00" <= letter <= "\ud7a3" for letter in text if ord(letter) > 127)
