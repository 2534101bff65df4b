"""Splits a text into the words that search compares: one pipeline for index, question and marks.

Characters are made alike first (NFKC, so half-width kana and ligatures too), then a run of letters
is split where the script changes, and each part is read as its script asks:

| script | words |
|---|---|
| Han, kana | each character, and each two that stand together |
| Hangul | each two, so that a noun is found under its particle |
| Thai, Lao, Burmese, Khmer | each three |
| Arabic, Hebrew | each three, without vowel marks |
| Cyrillic | stem (Russian) |
| all others | stem (English), parts of camelCase beside the whole |

A word has its stem, by which texts are ranked, its full form, by which a beginning is found, and
its place in the text as it was written, by which it is marked. Both databases index these words and
nothing else, so a search finds the same on either, and no text becomes query syntax: a word has
letters, digits and the marks of its script.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

# Raise it with every change of what a text's words are: texts are then indexed anew, one by one,
# while the old words serve.
VERSION = 3
LONGEST_WORD = 40
# Longer runs are hardly met twice.
_CACHED = 40
_CJ = (
    "々〇\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_HANGUL = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7af"
_THAI = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_ARABIC = "\u0590-\u08ff"
_CYRILLIC = "\u0400-\u052f\u0300-\u036f"
_SCRIPT = re.compile(
    f"(?P<cj>[{_CJ}]+)|(?P<hangul>[{_HANGUL}]+)|(?P<thai>[{_THAI}]+)|(?P<arabic>[{_ARABIC}]+)"
    f"|(?P<cyrillic>[\u0400-\u052f][{_CYRILLIC}]*)"
    f"|(?P<other>[^{_CJ}{_HANGUL}{_THAI}{_ARABIC}\u0400-\u052f]+)"
)
# Scripts that write words without spaces, or with inflections no stemmer here knows, are compared
# by overlapping pieces of so many characters.
_LENGTHS = {"cj": 2, "hangul": 2, "thai": 3, "arabic": 3}
_APOSTROPHES = "'\u2019\u02bc"
_CAMEL = re.compile("[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_ELIDED = re.compile(f"(?:[cdjlmnst]|qu)[{_APOSTROPHES}](?=[^\\W\\d_]{{3}})", re.IGNORECASE)
# A name with an ending behind an apostrophe, as Turkish writes it; English contractions are none.
_SUFFIXED = re.compile(
    f"([^\\W\\d_]{{3,}})[{_APOSTROPHES}](?!(?:d|ll|m|re|s|t|ve)$)[^\\W\\d_]", re.IGNORECASE
)
_POSSESSIVE = re.compile(f"[{_APOSTROPHES}]s$", re.IGNORECASE)
_ARABIC_LETTERS = {"\u0640": "", "\u0649": "\u064a", "\u0629": "\u0647"}
# Latin letters that Unicode does not take for others with a mark, as people write them without.
_LETTERS = str.maketrans(
    {
        "\u0131": "i",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "ø": "o",
        "ħ": "h",
        "ŧ": "t",
        "æ": "ae",
        "œ": "oe",
        "þ": "th",
    }
)
# Where the marks of letters are no letters of their own.
_WITHOUT_MARKS = re.compile("[\u00c0-\u03ff\u0590-\u08ff\u1e00-\u1fff]")
# Words that stand in a question for its grammar alone.
_GRAMMAR = """
    a about after all also am an and any are as at be because been before but by can cant could did
    didnt do does doesnt doing dont for from get go had has have having he her here him his how i if
    im in into is isnt it its ive just like me more my no not of on or our she should so some such
    than that thats the their them then there these they this those to us was wasnt we were what
    whats when where which who whom why will with wont would you your youre
"""
STOP_WORDS = frozenset(_GRAMMAR.split())
_stemmers = threading.local()


class Word(NamedTuple):
    """A word: what ranks it, its full form (empty for a piece), and its place in the text."""

    stem: str
    full: str
    start: int
    end: int


class _Folding(dict[int, str]):
    """The letters that stand for each character; found once for each."""

    def __missing__(self, code: int) -> str:
        folded = _folded(chr(code))
        self[code] = folded
        return folded


_FOLDING = _Folding()


def _folded(char: str) -> str:
    """Return a character without case, and without marks where these make no other letter."""
    if "\u0300" <= char <= "\u036f":
        return ""
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    folded = _ARABIC_LETTERS.get(char, char).casefold().replace("\u0451", "\u0435")
    if _WITHOUT_MARKS.match(char) or _WITHOUT_MARKS.match(folded):
        parts = unicodedata.normalize("NFKD", folded)
        folded = "".join(part for part in parts if not unicodedata.combining(part))
    return folded.translate(_LETTERS)


def spans(text: str, *, only: Callable[[Word], bool] | None = None) -> list[Word]:
    """Return the words of a text in order, each with its place in the text as it is given.

    `only`: those that are wanted; the others take less time then.
    """
    normal, places = _with_places(text)
    found: list[Word] = []
    for run in _runs(is_ascii=normal.isascii()).finditer(normal):
        start = run.start()
        for word in _read(run[0]):
            if only is not None and not only(word):
                continue
            first, last = start + word.start, start + word.end
            if places:
                first, last = places[first][0], places[last - 1][1]
            found.append(Word(word.stem, word.full, first, last))
    return found


def read(text: str) -> tuple[list[str], list[str]]:
    """Return the stems of a text and its full words, each in order."""
    stems: list[str] = []
    full: list[str] = []
    normal = unicodedata.normalize("NFKC", text)
    for run in _runs(is_ascii=normal.isascii()).findall(normal):
        for stem, whole, _, _ in _read(run):
            stems.append(stem)
            if whole:
                full.append(whole)
    return stems, full


def words(text: str) -> list[str]:
    """Return the words of a text in order, as search ranks by them; without spaces."""
    return read(text)[0]


def asked(text: str) -> list[str]:
    """Return the words of a question, each once, without those that every text has.

    All of them when nothing else is left.
    """
    every = dict.fromkeys(words(text))
    telling = [one for one in every if one not in stops()]
    return telling or list(every)


def _with_places(text: str) -> tuple[str, Sequence[tuple[int, int]]]:
    """Return the text in its normal form, and the place of each character where that changed it."""
    if unicodedata.is_normalized("NFKC", text):
        return text, ()
    normal: list[str] = []
    places: list[tuple[int, int]] = []
    for cluster in _clusters().finditer(text):
        made = unicodedata.normalize("NFKC", cluster[0])
        normal.append(made)
        places += [cluster.span()] * len(made)
    return "".join(normal), places


def _read(run: str) -> Sequence[Word]:
    """Return the words of a run of letters; places are those in the run."""
    return _read_once(run) if len(run) <= _CACHED else tuple(_read_run(run))


@lru_cache(maxsize=50_000)
def _read_once(run: str) -> Sequence[Word]:
    return tuple(_read_run(run))


def _read_run(run: str) -> Iterator[Word]:
    """Yield the words of a run, part by part as its scripts change."""
    for part in _SCRIPT.finditer(run):
        script, start = part.lastgroup or "other", part.start()
        read_part = _pieces if script in _LENGTHS else _whole
        for word in read_part(part[0], script):
            if word.stem:
                yield Word(word.stem, word.full, start + word.start, start + word.end)


def _pieces(part: str, script: str) -> Iterator[Word]:
    """Yield the overlapping pieces of a part, the characters of Han and kana beside them."""
    length = _LENGTHS[script]
    kept = [(at, made) for at, char in enumerate(part) if (made := char.translate(_FOLDING))]
    full = (
        "".join(made for _, made in kept)[:LONGEST_WORD] if script in {"hangul", "arabic"} else ""
    )
    if script == "cj":
        yield from (Word(made, "", at, at + 1) for at, made in kept if len(part) > 1)
    for first in range(max(len(kept) - length + 1, 1)):
        some = kept[first : first + length]
        if some:
            stem = "".join(made for _, made in some)[:LONGEST_WORD]
            yield Word(stem, "" if first else full, some[0][0], some[-1][0] + 1)


def _whole(part: str, script: str) -> Iterator[Word]:
    """Yield a part as a word, then its parts where it is written in camelCase or has an article."""
    yield _word(part, script, 0)
    if part.isalpha() and (part.islower() or part.istitle() or part.isupper()):
        return
    if elided := _ELIDED.match(part):
        yield _word(part[elided.end() :], script, elided.end())
    elif suffixed := _SUFFIXED.match(part):
        yield _word(suffixed[1], script, 0)
    elif part.isascii():
        parts = list(_CAMEL.finditer(part))
        if len(parts) > 1 and not any(one in part for one in _APOSTROPHES):
            yield from (_word(one[0], script, one.start()) for one in parts if len(one[0]) > 1)


def _word(part: str, script: str, start: int) -> Word:
    """Return one word at its place."""
    base = _POSSESSIVE.sub("", part).translate(_FOLDING)
    full = part.translate(_FOLDING)
    for mark in _APOSTROPHES:
        base, full = base.replace(mark, ""), full.replace(mark, "")
    language = "russian" if script == "cyrillic" else "english"
    stem = stemmer(language).stemWord(base) if base.isalpha() else base
    return Word(str(stem)[:LONGEST_WORD], full[:LONGEST_WORD], start, start + len(part))


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
    return frozenset(stem for one in STOP_WORDS for stem in words(one))


@cache
def _marks() -> str:
    """Return the marks of letters as a set of a pattern: `\\w` has none of them."""
    where = (range(0x300, 0x3100), range(0xA600, 0xAC00), range(0x11000, 0x12000))
    found = [
        chr(code) for part in where for code in part if unicodedata.category(chr(code))[0] == "M"
    ]
    return "".join(re.escape(char) for char in found)


@cache
def _runs(*, is_ascii: bool) -> re.Pattern[str]:
    """Return the pattern of letters, digits and marks that stand together."""
    letters = "[A-Za-z0-9]+" if is_ascii else f"[^\\W_]+(?:[{_marks()}][^\\W_]*)*"
    return re.compile(f"{letters}(?:[{_APOSTROPHES}]{letters})*")


@cache
def _clusters() -> re.Pattern[str]:
    """Return the pattern of a character with all that may melt into it."""
    return re.compile(f"(?s:.)[{_marks()}\uff9e\uff9f\u1160-\u11ff\uffc2-\uffdc]*")
