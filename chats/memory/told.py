"""Finds what a person tells of themselves in a message of their own: by rule, literally.

Only at the beginning of a sentence of the first paragraph, before any colon, outside code and
quotations, and never in a message so long that it may be a paste: what a document, a quotation or
another speaker says is not the person's word. Each text is a literal part of the message.
"""

import re
from typing import NamedTuple

from contextpolicy.engine import names

# In characters: a longer message may be a paste, and a longer text is no preference.
LONGEST_MESSAGE = 1_000
LONGEST_TEXT = 200
SHORTEST_TEXT = 2

_HIDDEN = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[ \t]*>[^\n]*|\"[^\"\n]*\"|“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»"
    r"|「[^」\n]*」|『[^』\n]*』|(?<!\w)'[^'\n]*'(?!\w)",
    re.DOTALL | re.MULTILINE,
)
_PARAGRAPH_END = re.compile(r"\n[ \t\r]*\n")
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:\.(?=\w)[^.!?。！？\n]*)*[.!?。！？]*")
_POLITE = r"(?:(?:please|pls|bitte|ok(?:ay)?|hi|hello|hallo|请|請)[,，!]?\s*)*"
_JOINT = r"(?:\s*[:：,，]\s*|\s+)"
_REMEMBER = re.compile(
    rf"\s*{_POLITE}(?:"
    rf"(?:always\s+)?remember(?:{_JOINT}that\b|\s*[:,])?\s+"
    r"(?!(?:when|how|what|who|why|where|if|to|the time|me\b|my last|our|us\b))"
    r"|(?:keep|bear)\s+in\s+mind(?:\s+that\b)?[:,]?\s+|don[’']t\s+forget(?:\s+that\b)?[:,]?\s+(?!to\b)"
    r"|merk(?:e)?\s+dir(?:\s+bitte)?[,:]?\s+(?:dass?\s+)?|denk(?:e)?\s+daran[,:]\s+dass\s+"
    r"|vergiss\s+nicht[,:]\s+dass\s+"
    r"|(?:记住|記住)[：:，,]?\s*"
    r")(?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
_CALLED = re.compile(
    rf"\s*{_POLITE}(?:call\s+me|my\s+name\s+is|nenn(?:e)?\s+mich|mein\s+name\s+ist|"
    r"ich\s+hei(?:ß|ss)e|叫我|我的名字是)\s*(?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
# A name has few words, and its sentence says nothing else of it.
_NAME = re.compile(r"[^\W\d_][\w’'-]*(?: (?-i:[A-ZÄÖÜÀ-Þ])[\w.’'-]*){0,3}")
_AFTER_A_NAME = re.compile(
    r"\s*(?:[.!。！]*\s*|[,，;].*|(?:please|bitte|from now on|ab jetzt)\b.*|(?:and|und)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
_NO_NAME = re.compile(
    r"(?:a|an|the|ein|eine|back|when|if|later|by|again|maybe|not|crazy|zurück|nicht|wenn|später)\b",
    re.IGNORECASE,
)
# What a text is about decides whether it replaces an older one.
_SLOTS = (
    ("name", r"\bmy name is\b|\bmein name ist\b|我的名字是"),
    (
        "language",
        r"\b(?:answer|reply|respond|write)(?:s|ing)?\b[^,;]{0,30}\bin (?:[A-Z][a-z]+)\b"
        r"|\bantworte[nt]?\b[^,;]{0,30}\bauf [A-ZÄÖÜ]\w+|用\S{1,4}(?:回答|回复|回覆)",
    ),
    ("timezone", r"\btime ?zone\b|\bzeitzone\b|时区|時區"),
    ("place", r"\bi live in\b|\bich wohne in\b|\bich lebe in\b|我住在"),
    ("job", r"\bi work as\b|\bich arbeite als\b|我的工作是"),
    ("diet", r"\b(?:vegan|vegetarian|vegetarier(?:in)?|veganer(?:in)?|vegetarisch)\b|吃素|素食"),
    ("tone", r"\b(?:be|sei) (?:brief|formal|informal|casual|kurz|förmlich)\b"),
)
_SLOT_PATTERNS = [(slot, re.compile(pattern, re.IGNORECASE)) for slot, pattern in _SLOTS]
# Whoever asks to have one kept gets no preference: it would be sent with every message.
_SECRET = re.compile(
    r"\b(?:password|passwort|passphrase|api[ _-]?key|secret|token|pin code|kennwort)\b|密码|密碼"
    r"|\bsk-[A-Za-z0-9_-]{8,}",
    re.IGNORECASE,
)


class Telling(NamedTuple):
    """One thing that a person said of themselves, and where it stands in their message."""

    slot: str
    text: str
    start: int
    end: int


def told_in(text: str) -> list[Telling]:
    """Return what a message tells, each a literal part of it; mostly nothing."""
    if not text or len(text) > LONGEST_MESSAGE:
        return []
    end = _PARAGRAPH_END.search(text)
    first = text[: end.start()] if end else text
    # Masked with a character that no rule reads, so that places stay.
    seen = _HIDDEN.sub(lambda found: "\0" * len(found.group()), first)
    found = []
    for sentence in _SENTENCE.finditer(seen):
        words = sentence.group()
        if not words.rstrip().endswith(("?", "？")):
            told = _told(words, at=sentence.start(), text=text)
            found += [told] if told else []
        if re.search(r"[:：]\s", words + " ") and not _REMEMBER.match(words):
            # What follows is given to be worked on, and may be anybody's.
            break
    return found


def is_span(told: Telling, *, text: str) -> bool:
    """Tell whether a text stands literally at its place, outside code, quotations and pastes."""
    if len(text) > LONGEST_MESSAGE or text[told.start : told.end] != told.text:
        return False
    return not any(
        hidden.start() < told.end and told.start < hidden.end() for hidden in _HIDDEN.finditer(text)
    )


def without_hidden(text: str) -> str:
    """Return a text with a mark in place of its code and quotations."""
    return _HIDDEN.sub("[…]", text)


def is_secret(text: str) -> bool:
    """Tell whether a text seems to hold a password or a key."""
    return bool(_SECRET.search(text))


def slot_of(text: str) -> str:
    """Return the slot that a text belongs to; `note` where nothing says."""
    return next((slot for slot, pattern in _SLOT_PATTERNS if pattern.search(text)), "note")


def _told(words: str, *, at: int, text: str) -> Telling | None:
    called = _CALLED.match(words)
    if called:
        name = _NAME.match(words, called.start("text"))
        if name is None or _NO_NAME.match(name.group()):
            return None
        if not _AFTER_A_NAME.fullmatch(words, name.end()):
            return None
        return _literal("name", name.start(), name.end(), words, at=at, text=text)
    noted = _REMEMBER.match(words)
    if noted is None:
        return None
    said = noted.group("text")
    return _literal(slot_of(said), noted.start("text"), noted.end("text"), words, at=at, text=text)


def _literal(slot: str, start: int, end: int, words: str, *, at: int, text: str) -> Telling | None:
    """Return the part without the white space and the full stop around it."""
    said = words[start:end]
    start += len(said) - len(said.lstrip())
    said = said.strip().rstrip(".!。！").rstrip()
    told = Telling(
        slot, text[at + start : at + start + len(said)], at + start, at + start + len(said)
    )
    fits = SHORTEST_TEXT <= len(said) <= LONGEST_TEXT
    return told if fits and names.is_sound(said) and not is_secret(said) else None
