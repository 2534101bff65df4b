"""Splits text into search words, in the same way for the index, questions and highlights.

Characters are normalised first (NFKC, including half-width kana and ligatures). A run of letters is
then split where the script changes, and each part is processed by script:

| script | words |
|---|---|
| Han, kana | single characters and pairs |
| Hangul | pairs, so that a noun is found despite its particle |
| Thai, Lao, Burmese, Khmer | groups of three |
| Arabic, Hebrew | groups of three, without vowel marks |
| Cyrillic | stem (Russian) |
| all others | stem (English, irregular forms included), and the parts of camelCase words |

A word has a stem for ranking, a full form for prefix search, and its original position for
highlighting. Both databases index only these words, so results are the same on either. A word
consists of letters, digits and combining marks, so text cannot become query syntax.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from chats.memory.search.irregular_forms import FIRST_FORMS

# Increase after every change to word extraction. Texts are then indexed again one by one; the old
# words stay in use until then.
VERSION = 4
LONGEST_WORD = 40
# Longer runs of letters rarely occur twice, so they are not cached.
_CACHED = 40
# Words in the cache, about 400 bytes each, all of scripts with stems. Reading 2,500 indexed texts
# again takes 0.2 s of CPU time if all their words are in the cache, and 1.2 s if not.
MOST_WORDS = 32_768
_DIGIT = re.compile(r"\d")
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
# Scripts without spaces, or with inflections that no stemmer here supports, are compared by
# overlapping pieces of this length.
_LENGTHS = {"cj": 2, "hangul": 2, "thai": 3, "arabic": 3}
_PIECED = re.compile(f"[{_CJ}{_HANGUL}{_THAI}{_ARABIC}]")
_APOSTROPHES = "'\u2019\u02bc"
_CAMEL = re.compile("[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_ELIDED = re.compile(f"(?:[cdjlmnst]|qu)[{_APOSTROPHES}](?=[^\\W\\d_]{{3}})", re.IGNORECASE)
# A name with a suffix after an apostrophe, as in Turkish. English contractions are excluded.
_SUFFIXED = re.compile(
    f"([^\\W\\d_]{{3,}})[{_APOSTROPHES}](?!(?:d|ll|m|re|s|t|ve)$)[^\\W\\d_]", re.IGNORECASE
)
_POSSESSIVE = re.compile(f"[{_APOSTROPHES}]s$", re.IGNORECASE)
_ARABIC_LETTERS = {"\u0640": "", "\u0649": "\u064a", "\u0629": "\u0647"}
# Latin letters that Unicode does not decompose, with their common spelling.
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
# Scripts in which combining marks do not form separate letters.
_WITHOUT_MARKS = re.compile("[\u00c0-\u03ff\u0590-\u08ff\u1e00-\u1fff]")
# Grammar words of questions.
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
    """A search word: its stem for ranking, its full form (empty for a piece), and its position."""

    stem: str
    full: str
    start: int
    end: int


class _Folding(dict[int, str]):
    """A cache of the letters that replace each character."""

    def __missing__(self, code: int) -> str:
        folded = _fold_character(chr(code))
        self[code] = folded
        return folded


_FOLDING = _Folding()


def _fold_character(char: str) -> str:
    """Return a character without case, and without marks that do not form another letter."""
    if "\u0300" <= char <= "\u036f":
        return ""
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    folded = _ARABIC_LETTERS.get(char, char).casefold().replace("\u0451", "\u0435")
    if _WITHOUT_MARKS.match(char) or _WITHOUT_MARKS.match(folded):
        parts = unicodedata.normalize("NFKD", folded)
        folded = "".join(part for part in parts if not unicodedata.combining(part))
    return folded.translate(_LETTERS)


def find_words(text: str, *, only: Callable[[Word], bool] | None = None) -> list[Word]:
    """Return the words of a text in order, with positions in the original text.

    `only`: return only the words for which it is True.
    """
    normal, places = _with_places(text)
    found: list[Word] = []
    for run in _runs(is_ascii=normal.isascii()).finditer(normal):
        start = run.start()
        for word in _read_words(run[0]):
            if only is not None and not only(word):
                continue
            first, last = start + word.start, start + word.end
            if places:
                first, last = places[first][0], places[last - 1][1]
            found.append(Word(word.stem, word.full, first, last))
    return found


def split_words(text: str) -> tuple[list[str], list[str]]:
    """Return the stems and the full words of a text, each in order."""
    stems: list[str] = []
    full: list[str] = []
    normal = unicodedata.normalize("NFKC", text)
    for run in _runs(is_ascii=normal.isascii()).findall(normal):
        for stem, whole, _, _ in _read_words(run):
            stems.append(stem)
            if whole:
                full.append(whole)
    return stems, full


def list_search_stems(text: str) -> list[str]:
    """Return the stems of a text in order, without spaces."""
    return split_words(text)[0]


def extract_question_stems(text: str) -> list[str]:
    """Return the unique stems of a question without stop words.

    Returns all of them if nothing else is left.
    """
    every = dict.fromkeys(list_search_stems(text))
    telling = [one for one in every if one not in load_stop_words()]
    return telling or list(every)


def _with_places(text: str) -> tuple[str, Sequence[tuple[int, int]]]:
    """Return the normalised text, and the original position of each character if that changed."""
    if unicodedata.is_normalized("NFKC", text):
        return text, ()
    normal: list[str] = []
    places: list[tuple[int, int]] = []
    for cluster in _clusters().finditer(text):
        made = unicodedata.normalize("NFKC", cluster[0])
        normal.append(made)
        places += [cluster.span()] * len(made)
    return "".join(normal), places


def _read_words(run: str) -> Sequence[Word]:
    """Return the words of a run of letters; positions are relative to the run."""
    return _read_once(run) if _is_worth_caching(run) else tuple(_read_run(run))


def _is_worth_caching(run: str) -> bool:
    """Return True if the run is probably a word with a stem, which takes 35 µs to find.

    Numbers (5 µs) and the pieces of other scripts (10 µs for a word) need no stem. A number or a
    clause of Chinese is rarely repeated: cached, it would replace the words, and memory would grow
    with each new message.
    """
    if len(run) > _CACHED:
        return False
    has_number = not run.isalpha() and _DIGIT.search(run)
    return not has_number and (run.isascii() or not _PIECED.search(run))


@lru_cache(maxsize=MOST_WORDS)
def _read_once(run: str) -> Sequence[Word]:
    return tuple(_read_run(run))


def _read_run(run: str) -> Iterator[Word]:
    """Yield the words of a run, split where the script changes."""
    for part in _SCRIPT.finditer(run):
        script, start = part.lastgroup or "other", part.start()
        read_part = _pieces if script in _LENGTHS else _whole
        for word in read_part(part[0], script):
            if word.stem:
                yield Word(word.stem, word.full, start + word.start, start + word.end)


def _pieces(part: str, script: str) -> Iterator[Word]:
    """Yield the character n-grams of a part, and also single characters for Han and kana."""
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
    """Yield a part as a word, then its camelCase parts, or it without an article or a suffix."""
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
    base = _POSSESSIVE.sub("", part).translate(_FOLDING)
    full = part.translate(_FOLDING)
    for mark in _APOSTROPHES:
        base, full = base.replace(mark, ""), full.replace(mark, "")
    base = FIRST_FORMS.get(base, base)
    language = "russian" if script == "cyrillic" else "english"
    stem = get_stemmer(language).stemWord(base) if base.isalpha() else base
    return Word(str(stem)[:LONGEST_WORD], full[:LONGEST_WORD], start, start + len(part))


def get_stemmer(language: str) -> Any:
    """Return this thread's stemmer, because stemmers are not thread-safe."""
    if not hasattr(_stemmers, language):
        # Imported on first use: it loads all languages, 4 MB that an idle process does not need.
        import snowballstemmer  # noqa: PLC0415

        setattr(_stemmers, language, snowballstemmer.stemmer(language))
    return getattr(_stemmers, language)


@cache
def load_stop_words() -> frozenset[str]:
    """Return the stems of the stop words, as used for search."""
    return frozenset(stem for one in STOP_WORDS for stem in list_search_stems(one))


@cache
def _marks() -> str:
    """Return the combining marks as a pattern set, because the word class excludes them."""
    where = (range(0x300, 0x3100), range(0xA600, 0xAC00), range(0x11000, 0x12000))
    found = [
        chr(code) for part in where for code in part if unicodedata.category(chr(code))[0] == "M"
    ]
    return "".join(re.escape(char) for char in found)


@cache
def _runs(*, is_ascii: bool) -> re.Pattern[str]:
    """Return the pattern of letters, digits and marks in a run."""
    letters = "[A-Za-z0-9]+" if is_ascii else f"[^\\W_]+(?:[{_marks()}][^\\W_]*)*"
    return re.compile(f"{letters}(?:[{_APOSTROPHES}]{letters})*")


@cache
def _clusters() -> re.Pattern[str]:
    """Return the pattern of a character with everything that may combine with it."""
    return re.compile(f"(?s:.)[{_marks()}\uff9e\uff9f\u1160-\u11ff\uffc2-\uffdc]*")
