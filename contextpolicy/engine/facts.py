"""Finding what must not get lost in a summary: numbers, dates, URLs, identifiers, names.

Deterministic and without a model. Kinds are looked for in that order of precedence: the digits of a
date are no number, the words of a URL are no identifier.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["url", "date", "identifier", "number", "name"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_PATTERN = re.compile(
    r"(?P<url>(?:https?://|www\.)[^\s<>\"'）)\]}，。；]+)"
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
# Words with a capital that begin sentences without being names.
_NO_NAMES = frozenset(
    """
    a an and are as at but by can could did do does for from had has have he her here hi how i
    i'll i'm i've if in is it it's its just let let's maybe my no not now of ok okay on or our
    please she should so some sorry sure thank thanks that the their then there these they this
    those to today tomorrow use was we we'll well were what when where which who why will with
    would yes yesterday you your hello hey great good also
    """.split()  # noqa: SIM905 - a word a line is no reading
)


@dataclass(frozen=True, slots=True)
class Retention:
    """Which facts of the sources a summary still has, by kind, in order of appearance."""

    kept: Mapping[Kind, tuple[str, ...]]
    lost: Mapping[Kind, tuple[str, ...]]

    @property
    def share(self) -> float:
        """Kept facts of all facts, 0 to 1; 1 if the sources hold none."""
        kept, lost = (sum(map(len, found.values())) for found in (self.kept, self.lost))
        return kept / (kept + lost) if kept + lost else 1.0


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


def retention(sources_text: str, summary_text: str) -> Retention:
    """Compare the facts of the sources with the summary's text.

    A fact is kept if it stands in the summary as it was written; case and thousands commas aside.
    """
    target = _plain(summary_text)
    kept: dict[Kind, tuple[str, ...]] = {}
    lost: dict[Kind, tuple[str, ...]] = {}
    for kind, facts in facts_in(sources_text).items():
        stays = {fact: _stands_in(_plain(fact), target) for fact in facts}
        kept[kind] = tuple(fact for fact, there in stays.items() if there)
        lost[kind] = tuple(fact for fact, there in stays.items() if not there)
    return Retention(kept, lost)


def _is_name(words: str) -> bool:
    return " " in words or words.casefold().replace("’", "'") not in _NO_NAMES


def _plain(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d{3})", "", text).casefold()


def _stands_in(fact: str, text: str) -> bool:
    """As a whole: 12 does not stand in 2012, nor Ann in Hannah."""
    before = r"(?<![A-Za-z0-9_.])" if fact[:1].isascii() and fact[:1].isalnum() else ""
    after = r"(?![A-Za-z0-9]|[.,]\d)" if fact[-1:].isascii() and fact[-1:].isalnum() else ""
    return re.search(f"{before}{re.escape(fact)}{after}", text) is not None
