"""Reads a message sentence by sentence: what each settles, and what would be missed without it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from contextpolicy.engine.facts import facts_in, without_marks
from contextpolicy.engine.factscan import Kind

# In bytes of UTF-8, so that a Chinese sentence of six characters counts as one.
SHORTEST_STATEMENT = 16
# What one fact of a kind weighs. A digit by itself is mostly the number of a list.
WEIGHTS: Mapping[Kind, float] = {
    "url": 1.5,
    "date": 1.5,
    "identifier": 1.0,
    "number": 1.0,
    "name": 0.8,
}
PRICE, QUOTED, DIGIT = 1.5, 0.8, 0.25
# In characters: words whose beginnings agree so far are taken for forms of one word.
STEM = 6
# In characters: a longer line of code is not quoted.
LONGEST_CODE = 120


@dataclass(frozen=True, slots=True)
class Saying:
    """A sentence: its section, what it weighs by itself, and what it says, each with its weight.

    `names` are words that may be names, with whether they open the sentence: only the whole chat
    tells. `words` are its longer words by their beginnings; `small` those in lower case. `clauses`
    are those in scripts without capitals.
    """

    text: str
    section: str
    weight: float
    facts: Mapping[str, float]
    names: Mapping[str, bool]
    words: frozenset[str]
    small: frozenset[str]
    clauses: frozenset[str] = frozenset()


def sayings_in(text: str, *, by_person: bool) -> Iterator[Saying]:
    """Yield the sentences of a text as they stand in it; a person's settle more than a model's."""
    for sentence in sentences(text):
        yield saying(sentence, by_person=by_person)


def saying(sentence: str, *, by_person: bool) -> Saying:
    """Read one sentence."""
    plain = without_marks(sentence)
    found = facts_in(plain)
    facts = _facts_of(found)
    facts |= {match[0].strip().casefold(): PRICE for match in _PRICE.finditer(plain)}
    facts |= {(match[1] or match[2]).casefold(): QUOTED for match in _QUOTED.finditer(plain)}
    names = {
        _POSSESSIVE.sub("", word): plain.startswith(name) and not place
        for name in found["name"]
        for place, word in enumerate(name.split(" "))
    }
    section, weight = settled(plain, by_person=by_person)
    return Saying(
        text=sentence,
        section=section,
        weight=weight,
        facts=facts,
        names=names,
        words=frozenset(stems(plain)),
        small=frozenset(_SMALL.findall(plain)),
        clauses=frozenset(_CLAUSE.findall(plain)),
    )


def things_in_code(text: str) -> Iterator[str]:
    """Yield the identifiers and quoted words in the code of a text."""
    for block in _CODE_BLOCK.finditer(text):
        yield from (fact.casefold() for fact in facts_in(block[0])["identifier"])
        yield from ((match[1] or match[2]).casefold() for match in _QUOTED.finditer(block[0]))


def lines_of_code(text: str) -> Iterator[Saying]:
    """Yield the lines of a text's code that name something, each whole."""
    for block in _CODE_BLOCK.finditer(text):
        for line in block[0].splitlines()[1:]:
            code = " ".join(line.split())
            if len(code) > LONGEST_CODE or "`" in code:
                continue
            facts = _facts_of(facts_in(code))
            facts |= {match[2].casefold(): QUOTED for match in _LITERAL.finditer(code)}
            if facts:
                yield Saying(f"`{code}`", "Facts", 0.0, facts, {}, frozenset(), frozenset())


def _facts_of(found: Mapping[Kind, Iterable[str]]) -> dict[str, float]:
    """Return the facts that were found with their weights, without names."""
    return {
        fact.casefold(): weight_of(kind, fact)
        for kind, listed in found.items()
        if kind != "name"
        for fact in listed
    }


def weight_of(kind: Kind, fact: str) -> float:
    """Return the weight of one fact."""
    return DIGIT if kind == "number" and len(fact) == 1 else WEIGHTS[kind]


def stems(text: str) -> Iterator[str]:
    """Yield the longer words of a text by their beginnings, and Chinese by pairs of characters."""
    for word in _WORD.findall(text):
        yield word.casefold()[:STEM]
    for run in _IDEOGRAPHS.findall(text):
        yield from (run[place : place + 2] for place in range(len(run) - 1))


def settled(plain: str, *, by_person: bool) -> tuple[str, float]:
    """Return the section of a sentence and what it weighs besides its facts."""
    is_decided = bool(_DECIDED.search(plain))
    is_rule = by_person and bool(_FORBIDDEN.search(plain) or _PREFERRED.search(plain))
    if by_person and _OPEN.search(plain):
        return "Open items", 0.6 if is_rule else 0.2
    if is_decided:
        return "Decisions", 0.8 if by_person else 0.4
    if is_rule:
        return "Preferences", 0.6
    if _DONE.search(plain):
        return "Done items", 0.2 if by_person else 0.1
    return "Facts", 0.1 if by_person else 0.0


def is_small_talk(said: Saying) -> bool:
    """Tell whether a sentence only keeps the talk going: thanks, praise, greetings.

    It may name somebody ("Woah, Maria, that sounds cool!"); it settles nothing.
    """
    if said.facts or said.section in ("Decisions", "Preferences"):
        return False
    plain = without_marks(said.text).strip()
    return len(plain.encode()) < SHORTEST_STATEMENT or bool(_COURTESY.match(plain))


def wording(text: str) -> str:
    """Return what two spellings of one sentence have in common."""
    return " ".join(without_marks(text).casefold().split())


def sentences(text: str) -> Iterator[str]:
    """Split a text into sentences, without Markdown's marks.

    Code, rows of tables and headings are no sentences and stay in the originals.
    """
    for line in _CODE_BLOCK.sub("\n", text).splitlines():
        if _ROW.match(line) or line.count(" | ") > 1 or _HEADING.match(line):
            continue
        plain = _MARK.sub("", _NOTE.sub("", line.replace("**", ""))).strip().lstrip("> ").strip()
        yield from (found for found in _whole(plain) if sum(map(str.isalnum, found)) > 1)


def _whole(line: str) -> Iterator[str]:
    """Split a line where sentences end; a full stop behind an abbreviation ends none."""
    begun = ""
    for piece in _BOUNDARY.split(line):
        begun = f"{begun} {piece}".strip()
        if not _ABBREVIATED.search(begun[-8:]):
            yield begun
            begun = ""
    if begun:
        yield begun


_CODE_BLOCK = re.compile(
    r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1[`~]*\s*$|\Z)", re.MULTILINE | re.DOTALL
)
_HEADING = re.compile(r"\s*#{1,6}\s")
_ROW = re.compile(r"\s*\|")
_MARK = re.compile(r"^\s*(?:>\s*)*(?:(?:[-*•+]|\d+[.)])\s+)+(?:\[[ xX]\]\s+)?")
_NOTE = re.compile(r"\[\^[^\]\s]{1,60}\]:?|【[^】\n]{1,60}】")
_BOUNDARY = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])")
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|approx|[ei]\.[ge]|z\.B|ca)\.$"
)
_POSSESSIVE = re.compile(r"['’](?:s|d|ve|re|ll|m)?$")
_SMALL = re.compile(r"\b[a-zà-öø-ÿ]{2,}")
_WORD = re.compile(r"[^\W\d_\u2e80-\u9fff]{4,}")
_IDEOGRAPHS = re.compile(r"[\u3400-\u9fff]{2,}")
# A run of Chinese or Japanese, and in a list the short ones too.
_CLAUSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{3,}|(?<=、)[\u3040-\u30ff\u3400-\u9fff]{2}")
_PRICE = re.compile(
    r"[$€£¥]\s?\d[\d.,]*\d|[$€£¥]\s?\d|\d[\d.,]*\s?(?:[$€£¥]|(?:euros?|dollars?|pounds?|EUR|USD|GBP|CHF)\b|[元块])"
)
_QUOTED = re.compile(r"[\"“«「„]([^\"“”«»「」\n]{3,80})[\"”»」“]|《([^《》\n]{2,80})》")

_LITERAL = re.compile(r"([\"'])([^\"'\n]{3,80})\1")

_DECIDED = re.compile(
    r"\b(?:decid\w+|decision|agreed|we(?:'ll| will) (?:go|use|take)|settled on|chose|chosen|"
    r"beschlossen|entschieden|einigen|décidé|decidid[oa]s?|acordad[oa])\b"
    r"|决定|同意|就用|确定|採用|决策",
    re.IGNORECASE,
)
_PREFERRED = re.compile(
    r"\b(?:prefer\w*|favou?rite|i (?:really )?(?:like|love|hate|dislike)|always|"
    r"don['’]t like|lieber|bevorzug\w*|möchte|immer|préfère|toujours|prefiero|me gusta|siempre)\b"
    r"|喜欢|偏好|不喜欢|讨厌|总是",
    re.IGNORECASE,
)
_FORBIDDEN = re.compile(
    r"\b(?:never|must(?:n['’]t| not)?(?! (?:have|feel|seem|be (?:so|very|really|an?))\b)|"
    r"(?:do|should)(?:n['’]t| not) (?!know|think|have|like|want)|"
    r"may not|not allowed|forbidden|avoid|allergic|at (?:most|least)|no more than|only if|"
    r"niemals|nie|darf|dürfen|muss|müssen|verboten|jamais|interdit|nunca|prohibido)\b"
    r"|不要|不能|不许|禁止|必须|过敏",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(?:done|fixed|finished|completed|deployed|merged|shipped|solved|resolved|sent|booked|paid|"
    r"erledigt|fertig|terminé|hecho|listo)\b|完成|已经|解决了|修好|搞定",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"[?？]\s*$|\b(?:to-?do|open|pending|blocked|remind|still (?:need|have)|need(?:s)? to|have to|"
    r"next step|offen|noch|reste à|pendiente)\b|待办|还需要|需要|尚未|下一步",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"\W*(?:(?:yes|yeah|yep|yup|oh|aw+|haha|well)\W+)*(?:[^\W\d_]+,\s+)?"
    r"(?:thanks?|thank you|thx|wo+w|woah|whoa|hey|"
    r"hi|hello|good (?:morning|evening|night)|bye|cool|great|awesome|"
    r"amazing|nice|glad|so (?:nice|good|happy|glad|great)|have an? (?:great|nice|good|lovely)|"
    r"congrat\w*|sounds|that(?:['’]s| is| sounds)|"
    r"you(?:['’]re| are) welcome|welcome|absolutely|certainly|"
    r"definitely|exactly|sure|of course|no problem|"
    r"(?:how|what) about you|how are you|"
    r"danke|hallo|gerne|super|toll|merci|bonjour|salut|gracias|hola|de nada)(?![^\W_])"
    r"|.*(?:谢谢|多谢|感谢|感激|不客气|你好|您好|再见|晚安|祝你|加油|太好了|太棒了|很高兴|真高兴|同感|"
    r"保持联系|谨记|试试看|受益|启发|幸运|没错|学到了很多|有道理|你说得|说得(?:很|非常|太)?[对好]|"
    r"(?:好|不错)的?(?:主意|建议|选择|想法))",
    re.IGNORECASE,
)
