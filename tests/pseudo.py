"""A pseudo-locale: every translated message in longer words with accents, from right to left.

It shows texts that are not translated, and layouts that need short English words or a direction.
Its code is `ar`, because Django knows that as a language from right to left.
"""

import re
from functools import cache
from gettext import NullTranslations
from typing import Any

from django.utils.translation import trans_real

CODE = "ar"
BEGIN, END = "⟦", "⟧"
# Placeholders, tags and entities are kept.
KEPT = re.compile(r"(%\([^)]*\)[a-z]|%[a-z%]|\{[^{}]*\}|<[^>]*>|&[#\w]+;)")
ACCENTED = str.maketrans("aceinouyACEINOUY", "àçéîñöüýÀÇÉÎÑÖÜÝ")
# A date format consists of single letters.
DATE_FORMAT = re.compile(r"(?:\\?[A-Za-z](?![A-Za-z])|[^A-Za-z])*")
# Words in other languages are up to this much longer.
LONGER = 0.4
WORD = 8


@cache
def pseudo(message: str) -> str:
    """Return a message as the pseudo-locale shows it."""
    if not message.strip() or DATE_FORMAT.fullmatch(message):
        return message
    words = "".join(
        piece if place % 2 else piece.translate(ACCENTED)
        for place, piece in enumerate(KEPT.split(message))
    )
    more = int(LONGER * len(KEPT.sub("", message)))
    # Lines break between words.
    added = " ".join("·" * min(WORD, more - start) for start in range(0, more, WORD))
    return f"{BEGIN}{words}{added}{END}"


class PseudoTranslations(NullTranslations):
    """Translates every message."""

    def __init__(self) -> None:
        super().__init__()
        self.domain = "django"
        self._catalog: dict[str, str] = {}

    @staticmethod
    def language() -> str:
        """The code of the language."""
        return CODE

    @staticmethod
    def to_language() -> str:
        """The code of the language."""
        return CODE

    def gettext(self, message: str) -> str:
        """Translate a message, also one with a context before it."""
        return pseudo(message.rpartition("\x04")[2])

    def ngettext(self, one: str, many: str, count: int) -> str:
        """Translate the right form of a message."""
        return self.gettext(one if count == 1 else many)


def install() -> None:
    """Let Django use the pseudo-locale for its code, in this process."""
    original = trans_real.translation
    made = PseudoTranslations()

    def translation(language: str) -> Any:
        return made if language == CODE else original(language)

    trans_real.translation = translation
