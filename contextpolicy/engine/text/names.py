"""The common rule for names of folders, teams, members, keys, titles, saved preferences and ids.

A name has at least one visible character. It has no control characters, line breaks or characters
that change the text direction around them. Everything else is allowed, because some script uses it:
joiners of Persian and of emoji, ideographic and no-break spaces, marks, and characters newer than
this Python's Unicode data.
"""

import re
import unicodedata
from functools import cache

# Control characters, surrogates, line and paragraph separators, and bidi overrides, embeddings and
# isolates. Bidi marks (U+200E, U+200F, U+061C) are allowed: they do not affect the text around
# them.
UNSOUND = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")

UNSEEN = frozenset({"Cc", "Cf", "Cs", "Mn", "Me", "Zl", "Zp", "Zs"})
# Blank letters and symbols: Hangul fillers, and Braille without a dot.
BLANK = "\u115f\u1160\u3164\uffa0\u2800"


def is_allowed_name(name: str) -> bool:
    """Return True if a text is a valid name."""
    return UNSOUND.search(name) is None and any(map(is_visible_character, name))


def is_visible_character(char: str) -> bool:
    """Return True if a character is visible on its own."""
    return unicodedata.category(char) not in UNSEEN and char not in BLANK


def normalise_name(name: str) -> str:
    """Return a name in normal form (NFC), without leading and trailing spaces."""
    return unicodedata.normalize("NFC", name).strip()


def casefold_name(name: str) -> str:
    """Return a key that is equal for names that differ only in case or in compatible characters."""
    # Without case, some Greek letters with several marks have other normal forms.
    plain = unicodedata.normalize("NFKD", normalise_name(name)).casefold()
    return unicodedata.normalize("NFKC", plain)


def replace_forbidden_characters(text: str) -> str:
    """Replace each character that is not allowed in a name with a space."""
    return UNSOUND.sub(" ", text)


@cache
def build_combining_marks() -> str:
    """Return the combining marks that belong to the letter before them, as a regex character set.

    The general variation selectors (U+FE00 to U+FE0F) are not included, because they do not make a
    different character.
    """
    codes = [
        code
        for part in (range(0x300, 0x3100), range(0xA600, 0xAC00), range(0x10A00, 0x12000))
        for code in part
        if unicodedata.category(chr(code))[0] == "M"
    ]
    return "".join(re.escape(chr(code)) for code in codes)
