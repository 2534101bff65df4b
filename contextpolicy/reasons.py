"""Checks that the reason entered by a user is not empty or meaningless."""

import unicodedata

# Letters by category that are invisible: Hangul fillers.
_INVISIBLE = frozenset("\u115f\u1160\u3164\uffa0")


def extract_letters(text: str) -> str:
    """Return the letters and digits of a text, without spaces, marks and invisible characters."""
    return "".join(
        each for each in text if unicodedata.category(each)[0] in "LN" and each not in _INVISIBLE
    )


def is_meaningful_text(text: str, *, letters: int = 1, different: int = 1) -> bool:
    """Return True if a text has enough letters or digits, and enough distinct ones."""
    found = extract_letters(text)
    return len(found) >= letters and len(set(found.casefold())) >= different
