"""Says whether a reason that a person gave says anything."""

import unicodedata

# Letters by their category that nobody sees: fillers of Hangul.
_INVISIBLE = frozenset("\u115f\u1160\u3164\uffa0")


def letters_of(text: str) -> str:
    """Return the letters and digits of a text; spaces, marks and what nobody sees are left out."""
    return "".join(
        each for each in text if unicodedata.category(each)[0] in "LN" and each not in _INVISIBLE
    )


def says_something(text: str, *, letters: int = 1, different: int = 1) -> bool:
    """Return True if a text has so many letters or digits, and so many different ones."""
    found = letters_of(text)
    return len(found) >= letters and len(set(found.casefold())) >= different
