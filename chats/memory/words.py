"""Splits a text into the words that search compares: folded, stemmed, alike for text and question.

Both databases index these words and nothing else, so a search finds the same on either, and no text
of a person or a model ever becomes query syntax.
"""

import re
import threading
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

LONGEST_WORD = 40
_RUN = re.compile(r"[^\W_]+")
# Scripts that write words without spaces, or with inflections no stemmer here knows, are compared
# by overlapping pieces of this many characters.
_PIECES = (
    (re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"), 2),
    (re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"), 3),
    (re.compile("[\u0590-\u08ff]+"), 3),
)
_CYRILLIC = re.compile("[\u0400-\u04ff]")
# Words that stand in a question for its grammar alone.
_GRAMMAR = """
    a about after all also am an and any are as at be because been before but by can could did do
    does doing for from get go had has have having he her here him his how i if in into is it its
    just like me more my no not of on or our she should so some such than that the their them then
    there these they this those to us was we were what when where which who whom why will with
    would you your
"""
STOP_WORDS = frozenset(_GRAMMAR.split())
_stemmers = threading.local()


def words(text: str) -> list[str]:
    """Return the words of a text in order, as search compares them; plain ASCII without spaces."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(c for c in folded if not unicodedata.combining(c))
    found: list[str] = []
    for run in _RUN.findall(unicodedata.normalize("NFKC", plain)):
        found.extend(word(piece) for piece in pieces(run))
    return found


def asked(text: str) -> list[str]:
    """Return the words of a question, each once, without those that every text has.

    All of them when nothing else is left.
    """
    every = dict.fromkeys(words(text))
    telling = [one for one in every if one not in stops()]
    return telling or list(every)


def pieces(run: str) -> Iterator[str]:
    """Yield a run of letters as it is, or in overlapping pieces where its script asks for that."""
    for script, length in _PIECES:
        if script.match(run):
            yield from (run[i : i + length] for i in range(max(len(run) - length + 1, 1)))
            return
    yield run


@lru_cache(maxsize=50_000)
def word(piece: str) -> str:
    """Return the stem in ASCII, so that no database reads a word in its own way."""
    if piece.isascii():
        stem = stemmer("english").stemWord(piece) if piece.isalpha() else piece
    else:
        stem = stemmer("russian").stemWord(piece) if _CYRILLIC.match(piece) else piece
        stem = "x" + stem.encode().hex()
    return str(stem)[:LONGEST_WORD]


def stemmer(language: str) -> Any:
    """Return this thread's stemmer: two threads may not use one at once."""
    if not hasattr(_stemmers, language):
        # At its first use: it brings every language, 4 MB that an idle process need not have.
        import snowballstemmer  # noqa: PLC0415

        setattr(_stemmers, language, snowballstemmer.stemmer(language))
    return getattr(_stemmers, language)


@cache
def stops() -> frozenset[str]:
    """Return the words that every text has, as search compares them."""
    return frozenset(word(one) for one in STOP_WORDS)
