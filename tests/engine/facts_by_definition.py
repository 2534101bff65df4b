"""A direct definition of facts: one pattern, and a search for each fact in a summary.

It is too slow for long chats. The engine's single pass must give the same result.
"""

import re
from collections.abc import Collection
from itertools import dropwhile

from contextpolicy.engine.text.fact_scanner import URL_PATTERN, Kind, simplify_url
from contextpolicy.engine.text.facts import KeptFacts

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_PATTERN = re.compile(
    rf"(?P<url>{URL_PATTERN})"
    r"|(?P<date>\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
    r"|\d{4}年\d{1,2}月(?:\d{1,2}日)?|\d{1,2}月\d{1,2}日|\d{1,2}:\d{2}(?::\d{2})?"
    rf"|\b(?i:{_MONTH})\.? \d{{1,2}}(?:st|nd|rd|th)?(?:, \d{{4}})?\b"
    rf"|\b\d{{1,2}}\.? (?i:{_MONTH})\b(?: \d{{4}})?)"
    r"|(?P<identifier>`[^`\n]{1,80}`|[\w.+-]+@[\w-]+\.[\w.]+|(?:[\w.-]*/)+[\w.-]+\.\w+"
    r"|\b[A-Za-z]\w*(?:_\w+)+\b|\b[a-z]+[A-Z]\w*\b|\b[A-Z]{2,}[A-Z0-9]*-?\d+\b"
    r"|\bv\d+(?:\.\d+)+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b)"
    r"|(?P<number>\d+(?:[.,]\d+)*)"
    r"|(?P<name>\b[A-ZÀ-ÖØ-Þ][\w'’-]+(?: [A-ZÀ-ÖØ-Þ][\w'’-]+)*)"
)
# Capitalised words that begin sentences without being names.
_NO_NAMES = frozenset(
    """
    a an and are as at but by can could did do does for from had has have he her here hi how i
    i'll i'm i've if in is it it's its just let let's maybe my no not now of ok okay on or our
    please she should so some sorry sure thank thanks that the their then there these they this
    those to today tomorrow use was we we'll well were what when where which who why will with
    would yes yesterday you your hello hey great good also
    """.split()  # noqa: SIM905 - a word a line is no reading
)


def facts_in(text: str) -> dict[Kind, tuple[str, ...]]:
    """The facts of a text by kind, each once, in order of appearance."""
    found: dict[Kind, dict[str, None]] = {
        "url": {},
        "date": {},
        "identifier": {},
        "number": {},
        "name": {},
    }
    for match in _PATTERN.finditer(text):
        for kind, seen in found.items():
            fact = match.group(kind)
            if fact and (kind != "name" or _is_name(fact)):
                seen[fact.strip("`").rstrip(".,;:!?")] = None
    return {kind: tuple(seen) for kind, seen in found.items()}


def retention(sources_text: str, summary_text: str) -> KeptFacts:
    """Compare the facts of the sources with the summary's text.

    A fact is kept if the summary has it as written, except for case and thousands separators. Names
    are those of `names_in`, which reads the whole text.
    """
    target = _plain(summary_text)
    kept: dict[Kind, tuple[str, ...]] = {}
    lost: dict[Kind, tuple[str, ...]] = {}
    found: dict[Kind, tuple[str, ...]] = {
        **facts_in(sources_text),
        "name": names_in(sources_text),
    }
    for kind, facts in found.items():
        plain = {fact: _plain(fact) for fact in facts}
        if kind == "url":
            plain = {fact: simplify_url(text) for fact, text in plain.items()}
        stays = {fact: _stands_in(plain[fact], target) for fact in facts}
        kept[kind] = tuple(fact for fact, there in stays.items() if there)
        lost[kind] = tuple(fact for fact, there in stays.items() if not there)
    return KeptFacts(kept, lost)


def names_in(text: str) -> tuple[str, ...]:
    """The names of a text, each once, in order of appearance.

    A capital at the beginning of a sentence proves nothing: the first word there belongs to a name
    only if it is capitalised elsewhere too. A single word that also occurs in lower case is not a
    name.
    """
    runs = [
        (_words_of(match["name"]), _begins_sentence(text, match.start()))
        for match in _PATTERN.finditer(text)
        if match["name"]
    ]
    inside = {word for words, at_start in runs for word in words[at_start:]}
    common = {word.casefold() for word in _LOWER.findall(_PATTERN.sub(_names_alone, text))}
    names: dict[str, None] = {}
    for words, at_start in runs:
        is_known = words[0] in inside and not _is_common(words[0], common)
        name = tuple(dropwhile(_is_no_name, words[at_start and not is_known :]))
        if not all(_is_common(word, common) for word in name):
            names[" ".join(name)] = None
    return tuple(names)


_SUFFIX = re.compile(r"['’](?:s|d|ve|re|ll|m)?$")
_LOWER = re.compile(r"\b[a-zà-öø-ÿ][\w'’-]+")
# Characters allowed between the end of a sentence and the first word of the next one.
_OPENERS = " \t*_#>•–—-([{\"'“”‘’«»"
_ENDS = ".!?…:;。！？\n"
# A full stop that does not end a sentence: of a title or an initial.
_ABBREVIATION = re.compile(r"\b(?:[A-Z]|Dr|Mr|Mrs|Ms|Prof|St)\.$")


def _words_of(name: str) -> tuple[str, ...]:
    """The words of a run of capitals, without possessives and contractions."""
    return tuple(_SUFFIX.sub("", word) for word in name.split(" "))


def _names_alone(match: re.Match[str]) -> str:
    return match["name"] or " "


def _begins_sentence(text: str, start: int) -> bool:
    before = text[max(start - 40, 0) : start].rstrip(_OPENERS)
    if not before or before[-1] not in _ENDS:
        return not before
    return not _ABBREVIATION.search(before[-5:])


def _is_common(word: str, common: Collection[str]) -> bool:
    return word.casefold() in common or _is_no_name(word)


def _is_no_name(word: str) -> bool:
    return word.casefold().replace("’", "'") in _NO_NAMES


def _is_name(words: str) -> bool:
    return " " in words or not _is_no_name(words)


def _plain(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d{3})", "", text).casefold()


def _stands_in(fact: str, text: str) -> bool:
    """Return True for a whole-word match: 12 is not in 2012, nor Ann in Hannah."""
    before = r"(?<![A-Za-z0-9_.])" if fact[:1].isascii() and fact[:1].isalnum() else ""
    after = r"(?![A-Za-z0-9]|[.,]\d)" if fact[-1:].isascii() and fact[-1:].isalnum() else ""
    return re.search(f"{before}{re.escape(fact)}{after}", text) is not None
