"""Splits a text into sentences, without code, formulas, tables and headings."""

import re
from collections.abc import Iterator

from contextpolicy.engine.text.sentence_ends import SPACED_ENDS, UNSPACED_ENDS, find_breaks


def split_sentences(text: str) -> Iterator[str]:
    """Split a text into sentences, without Markdown syntax and truncation markers.

    Code, formulas, table rows and headings are left out, and so is the end of a sentence whose
    beginning was cut.
    """
    prose = CODE_BLOCK.sub("\n", _CUT.sub("…\n", text))
    # No formula can end after the last closing mark; searching there would take quadratic time.
    end = max(prose.rfind("\\]"), prose.rfind("$$")) + 2
    for line in (_MATHS_BLOCK.sub("\n", prose[:end]) + prose[end:]).splitlines():
        if _ROW.match(line) or line.count(" | ") > 1 or _HEADING.match(line):
            continue
        plain = _MARK.sub("", _NOTE.sub("", line.replace("**", ""))).strip().lstrip("> ").strip()
        yield from (found for found in _split_line(plain) if sum(map(str.isalnum, found)) > 1)


def _split_line(line: str) -> Iterator[str]:
    """Split a line at sentence ends, but not at the full stop of an abbreviation or a number."""
    begun = ""
    for piece in (part for found in _BOUNDARY.split(line) for part in _split_piece(found.strip())):
        if begun and not _is_continued(begun, piece):
            yield begun
            begun = ""
        begun = f"{begun} {piece}".strip()
    if begun:
        yield begun


def _split_piece(piece: str) -> Iterator[str]:
    """Yield a piece, or the clauses of a long one that has no sentence ends."""
    start = 0
    for place in (*find_breaks(piece), len(piece)):
        yield piece[start:place].strip()
        start = place


def _is_continued(begun: str, piece: str) -> bool:
    """Return True if a full stop in front of a piece does not end the sentence."""
    # In characters: longer than an abbreviation with the word before it.
    end = begun[-24:]
    if _ABBREVIATED.search(end):
        return True
    # A writer who uses capitals begins a sentence with one.
    if piece[:1].islower() and (
        _WITH_STOPS.search(end) or (begun[:1].isupper() and _SHORT_WORD.search(end))
    ):
        return True
    if piece[:1].isdigit() and _BEFORE_NUMBER.search(end):
        return True
    is_ordinal = _OF_DAYS.search(end) or _MONTH.match(piece) or _REST_OF_DATE.match(piece)
    return bool(_ORDINAL.search(end) and is_ordinal)


CODE_BLOCK = re.compile(r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1[`~]*\s*$|\Z)", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"\s*#{1,6}\s")
_ROW = re.compile(r"\s*\|")
_MARK = re.compile(r"^\s*(?:>\s*)*(?:(?:[-*•+]|\d+[.)])\s+)+(?:\[[ xX]\]\s+)?")
_NOTE = re.compile(r"\[\^[^\]\s]{1,60}\]:?|【[^】\n]{1,60}】")
# A full-width stop needs no space after it, and a closing quotation mark belongs to its sentence.
_BOUNDARY = re.compile(
    rf"(?<=[{SPACED_ENDS}])\s+|(?<=[{SPACED_ENDS}][\"”’])\s+(?=[^\Wa-z])"
    rf"|(?<=[{UNSPACED_ENDS}])(?![」』”’）》{UNSPACED_ENDS}])|(?<=[{UNSPACED_ENDS}][」』”’）》])"
)
# A truncation marker, ours or another application's, with the remainder of the sentence after it.
_CUT = re.compile(
    r"\[\s*(?:…|\.{3})[^\]\n]{0,80}(?:…|\.{3})\s*\][^.!?。！？\n]{0,400}[.!?。！？]?"
    r"|\[[^\]\n]{0,40}\b(?:truncated|omitted|characters (?:cut|removed))\b[^\]\n]{0,40}\]",
    re.IGNORECASE,
)
_MATHS_BLOCK = re.compile(r"^ {0,8}(?:\\\[.*?\\\]|\$\$.*?\$\$)", re.MULTILINE | re.DOTALL)
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|(?:[A-Z]\.){1,3}[A-Z]|Dr|Mr|Mrs|Ms|Mx|Prof|St|Mt|Nos?|Nr|vs|approx|ca|Inc|Ltd"
    r"|Corp|Jr|Sr|Sra|Dra|Srta|Sig|Mme|Mlle|Tel|Str|Bd|Fig|Vol|Dept|Univ|Ave|Gen|Lt|Col|Capt|Sgt|Rev"
    r"|Hr|Fr|Frl|Dipl|Ing|inkl|exkl|bzw|ggf|evtl|Bsp|[ei]\.[ge]|z\.B|d\.h|u\.a)\.$"
)
_SHORT_WORD = re.compile(r"(?:^|[\s(])(?:\d{1,3}|[^\W\d_]{1,4})\.$")
_WITH_STOPS = re.compile(r"(?:^|[\s(\d])(?:[^\W\d_]{1,3}\.)+[^\W\d_]{1,3}\.$")
_BEFORE_NUMBER = re.compile(
    r"(?:^|[\s(])(?:nos?|nr|tel|fig|vol|kl|pp?|vers|ver|kap|ch|art|abs)\.$", re.I
)
# "12." is an ordinal in German and other languages: in dates, and after an article.
_ORDINAL = re.compile(r"(?:^|[\s(–-])\d{1,2}\.$")
_OF_DAYS = re.compile(
    r"(?:^|[\s(])(?:(?<!\bI )am|vom|zum|bis|beim|im|seit|de[mnrs]|die|das|(?:k|m|s)?eine[mnrs]?"
    r"|(?:uns|ihr)e?re?[mnrs]?|jede[mnrs]?) \d{1,2}\.$",
    re.IGNORECASE,
)
_MONTH = re.compile(
    r"(?:Jan|Jän|Feb|März|Mrz|Apr|Mai|Juni|Juli|Aug|Sept|Okt|Nov|Dez|Mar|May|June|July|Oct|Dec)"
)
_REST_OF_DATE = re.compile(r"\d{1,2}\.|\d{4}\b")
