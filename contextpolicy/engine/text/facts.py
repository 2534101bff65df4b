"""Finds the facts that a summary must not lose: numbers, dates, URLs, identifiers, names.

The search is deterministic and uses no model. A more specific kind takes precedence:
the digits of a date are not a number, and the words of a URL are not an identifier.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile

from contextpolicy.engine.text.claims import strip_source_marks
from contextpolicy.engine.text.fact_scanner import (
    KINDS,
    Kind,
    find_standing_facts,
    scan_facts,
    simplify_url,
)

# Words that are capitalised at the start of sentences without being names.
_NO_NAMES = frozenset(
    """
    a an and are as at but by can could did do does for from had has have he her here hi how i
    i'll i'm i've if in is it it's its just let let's maybe my no not now of ok okay on or our
    please she should so some sorry sure thank thanks that the their then there these they this
    those to today tomorrow use was we we'll well were what when where which who why will with
    would yes yesterday you your hello hey great good also
    """.split()  # noqa: SIM905 - one word per line is hard to read
)


@dataclass(frozen=True, slots=True)
class KeptFacts:
    """The facts of the sources that a summary kept and lost, by kind, in order of appearance."""

    kept: Mapping[Kind, tuple[str, ...]]
    lost: Mapping[Kind, tuple[str, ...]]

    @property
    def share(self) -> float:
        """Share of the facts that were kept, 0 to 1. 1 if the sources have no facts."""
        kept, lost = (sum(map(len, found.values())) for found in (self.kept, self.lost))
        return kept / (kept + lost) if kept + lost else 1.0


def extract_facts(text: str) -> dict[Kind, tuple[str, ...]]:
    """Return the facts of a text by kind, each once, in order of appearance."""
    return _Reading(text).facts()


def extract_names(text: str) -> tuple[str, ...]:
    """Return the names of a text, each once, in order of appearance.

    The capital at the start of a sentence is ignored: the first word belongs to a name only if it
    is also capitalised elsewhere. A word that also occurs in lower case is not a name on its own.
    """
    return _Reading(text).names()


def compare_summary_facts(sources_text: str, summary_text: str) -> KeptFacts:
    """Compare the facts of the sources with the summary's text.

    A fact is kept if the summary contains it verbatim, apart from case, thousands separators, and
    the scheme and final slash of URLs. Names are found in the whole source text, as in
    `extract_names`.
    """
    reading = _Reading(sources_text)
    found: dict[Kind, tuple[str, ...]] = {**reading.facts(), "name": reading.names()}
    plain = {fact: _plain(fact) for facts in found.values() for fact in facts}
    plain |= {url: simplify_url(plain[url]) for url in found["url"]}
    # A fact reduced to punctuation counts as kept: there is nothing to search for.
    there = {
        "",
        *find_standing_facts(
            filter(None, plain.values()), _plain(strip_source_marks(summary_text))
        ),
    }
    kept: dict[Kind, tuple[str, ...]] = {}
    lost: dict[Kind, tuple[str, ...]] = {}
    for kind, facts in found.items():
        kept[kind] = tuple(fact for fact in facts if plain[fact] in there)
        lost[kind] = tuple(fact for fact in facts if plain[fact] not in there)
    return KeptFacts(kept, lost)


@dataclass(slots=True)
class _Run:
    """Neighbouring capitalised words, which may form a name."""

    words: tuple[str, ...]
    at_start: bool


@dataclass(slots=True)
class _Reading:
    """The result of one scan of a text; in `prose`, all facts except names are removed."""

    text: str
    found: dict[Kind, dict[str, None]] = field(init=False)
    runs: list[_Run] = field(init=False, default_factory=list)
    prose: str = field(init=False)

    def __post_init__(self) -> None:
        text = self.text = strip_source_marks(self.text)
        self.found = {kind: {} for kind in KINDS}
        prose, place = [], 0
        for kind, start, end in scan_facts(text):
            fact = text[start:end]
            prose += [text[place:start], fact if kind == "name" else " "]
            place = end
            if kind == "name":
                self.runs.append(_Run(_words_of(fact), _begins_sentence(text, start)))
            if kind != "name" or _is_name(fact):
                self.found[kind][fact.strip("`").rstrip(".,;:!?")] = None
        self.prose = "".join([*prose, text[place:]])

    def facts(self) -> dict[Kind, tuple[str, ...]]:
        return {kind: tuple(seen) for kind, seen in self.found.items()}

    def names(self) -> tuple[str, ...]:
        inside = {word for run in self.runs for word in run.words[run.at_start :]}
        common = {word.casefold() for word in _LOWER.findall(self.prose)}
        names: dict[str, None] = {}
        for run in self.runs:
            first = run.words[0]
            is_known = first in inside and not _is_common(first, common)
            name = tuple(dropwhile(_is_no_name, run.words[run.at_start and not is_known :]))
            if not all(_is_common(word, common) for word in name):
                names[" ".join(name)] = None
        return tuple(names)


_SUFFIX = re.compile(r"['’](?:s|d|ve|re|ll|m)?$")
_LOWER = re.compile(r"\b[a-zà-öø-ÿ][\w'’-]+")
# Characters that may precede the first word of a sentence.
_OPENERS = " \t*_#>•–—-([{\"'“”‘’«»"
_ENDS = ".!?…:;。！？\n"
# A full stop after a title or an initial does not end a sentence.
_ABBREVIATION = re.compile(r"\b(?:[A-Z]|Dr|Mr|Mrs|Ms|Prof|St)\.$")


def _words_of(name: str) -> tuple[str, ...]:
    """Split a run of capitals into words, without possessives and contractions."""
    return tuple(_SUFFIX.sub("", word) for word in name.split(" "))


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
