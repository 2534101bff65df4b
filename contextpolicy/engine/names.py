"""The one rule for names: of folders, teams, members, keys, titles, saved preferences and ids.

A name has something that can be seen, and neither control characters, line breaks nor characters
that turn the direction of the text around it. Everything else belongs to some script: joiners of
Persian and of emoji, ideographic and no-break spaces, marks, signs that are newer than this Python.
"""

import re
import unicodedata
from functools import cache

# Controls, halves of a pair, separators of lines and paragraphs, and overrides, embeddings and
# isolates of direction. Marks of direction (U+200E, U+200F, U+061C) change nothing around them.
UNSOUND = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")

UNSEEN = frozenset({"Cc", "Cf", "Cs", "Mn", "Me", "Zl", "Zp", "Zs"})
# Letters and signs that are blank: fillers of Hangul, and Braille without a dot.
BLANK = "\u115f\u1160\u3164\uffa0\u2800"


def is_sound(name: str) -> bool:
    """Return True if a text can be a name."""
    return UNSOUND.search(name) is None and any(map(is_visible, name))


def is_visible(char: str) -> bool:
    """Return True if a character can be seen by itself."""
    return unicodedata.category(char) not in UNSEEN and char not in BLANK


def normal(name: str) -> str:
    """Return a name in its normal form (NFC), without the spaces around it."""
    return unicodedata.normalize("NFC", name).strip()


def made_sound(text: str) -> str:
    """Return a text with a space in place of each character that no name may have."""
    return UNSOUND.sub(" ", text)


@cache
def marks() -> str:
    """Return the marks that belong to the letter before them, as a set of a pattern.

    Without the selectors of a character's look, which make no other character of it.
    """
    codes = [
        code
        for part in (range(0x300, 0x3100), range(0xA600, 0xAC00), range(0x10A00, 0x12000))
        for code in part
        if unicodedata.category(chr(code))[0] == "M"
    ]
    return "".join(re.escape(chr(code)) for code in codes)
