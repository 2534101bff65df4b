"""Separates thinking from text if a server leaves it in the text, between `<think>` tags.

Servers do this if they cannot parse the output of a reasoning model. Tags count only at
the start of a reply, and may be split anywhere. Only the case of ASCII letters is
ignored: lowercase forms of other letters, such as İ, may have another length.
"""

import re
from collections.abc import Iterable
from typing import Literal

Kind = Literal["text", "reasoning"]
TAG_NAMES = ("think", "thinking", "thought", "thoughts", "reason", "reasoning", "analysis")
# Opening tags with their closing tags, in lower case.
_TAGS = {
    **{f"<{name}>": f"</{name}>" for name in (*TAG_NAMES, "seed:think")},
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|start_thinking|>": "<|end_thinking|>",
}
# The channels of gpt-oss, if its server leaves them in the text.
_CHANNELS = {
    f"{start}<|channel|>analysis<|message|>": "<|end|>" for start in ("", "<|start|>assistant")
}
_OPENINGS = {**_TAGS, **_CHANNELS}
# Headers of the answer, which is in another channel. They are removed.
_HEADERS = tuple(
    f"{start}<|channel|>{name}<|message|>"
    for start in ("", "<|start|>assistant")
    for name in ("final", "commentary")
)
_CLOSES = f"(?:{'|'.join(map(re.escape, _TAGS.values()))})"
# A closing tag at the start or end of its line, or right after a word. Texts that mention a tag
# have a space or a quotation mark before it.
_CLOSING = re.compile(
    rf"^[ \t]*{_CLOSES}|{_CLOSES}(?=[ \t]*$)|(?<=[^\s`\"'“‘«‹（(]){_CLOSES}(?![`\"'”’»›])",
    re.IGNORECASE | re.MULTILINE | re.ASCII,
)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_OPENING = re.compile("|".join(map(re.escape, _OPENINGS)), re.IGNORECASE | re.ASCII)
_NAMES = "|".join(TAG_NAMES)
# An opening tag with attributes, and the start of one.
_WITH_ATTRIBUTES = re.compile(
    rf"<({_NAMES})\s+[\w-]+\s*=[^<>\n]{{0,200}}>", re.IGNORECASE | re.ASCII
)
_BEGUN = re.compile(rf"<(?:{_NAMES})\s[^<>\n]{{0,200}}\Z", re.IGNORECASE | re.ASCII)
_HEADER = re.compile("|".join(map(re.escape, _HEADERS)), re.IGNORECASE | re.ASCII)
# White space, and the mark at the start of some files.
_LEAD = re.compile(r"[\s\ufeff]+")


def split_unopened(text: str) -> tuple[str, str] | None:
    """Split a whole reply whose thinking lacks the opening tag into thinking and answer.

    Some chat templates put that tag at the end of the prompt, so the reply has only the closing
    one. None without such a tag, or if it is inside code or closes a tag in the text.
    """
    closing = _CLOSING.search(text)
    if closing is None:
        return None
    thoughts = text[: closing.start()]
    answer = text[closing.end() :]
    is_block = len(_FENCE.findall(thoughts)) % 2 == 1
    before, after = thoughts.rpartition("\n")[2], answer.partition("\n")[0]
    is_inline = before.count("`") % 2 == 1 and "`" in after
    is_opened = _OPENING.search(thoughts) or _WITH_ATTRIBUTES.search(thoughts)
    if is_block or is_inline or is_opened:
        return None
    return thoughts.strip("\n"), answer.lstrip()


def match_opening(text: str) -> tuple[str, int] | None:
    """Return the closing tag for the opening tag at the start of a text.

    Also returns the position after the opening tag. None if the text does not start with an
    opening tag.
    """
    if opened := _OPENING.match(text):
        return _OPENINGS[opened.group().lower()], opened.end()
    if opened := _WITH_ATTRIBUTES.match(text):
        return f"</{opened.group(1).lower()}>", opened.end()
    return None


def is_start_of_opening(text: str) -> bool:
    """Return True if a text can be the start of an opening tag."""
    return is_start_of_tag(text, _OPENINGS) or _BEGUN.match(text) is not None


def is_start_of_tag(text: str, tags: Iterable[str]) -> bool:
    """Return True if one of the tags, in lower case, starts with the text in any case."""
    lower = text.lower()
    return any(tag.startswith(lower) for tag in tags)


def strip_partial_closing(text: str) -> str:
    """Return a text without the start of a closing tag at its end, and spaces before it."""
    sizes = range(min(max(map(len, _TAGS.values())), len(text)), 0, -1)
    size = next((n for n in sizes if is_start_of_tag(text[-n:], _TAGS.values())), 0)
    return text[: len(text) - size].rstrip()


def find_tag(tag: str, text: str) -> re.Match[str] | None:
    """Return the first occurrence of a tag in any case, or None."""
    return re.search(re.escape(tag), text, re.IGNORECASE | re.ASCII)


def strip_lead(text: str) -> str:
    """Return a text without white space and byte order marks at its start."""
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead else text


class ThinkTags:
    """Separates the text of one reply as it arrives. `only_first`: a second block is text."""

    def __init__(self, *, only_first: bool = False) -> None:
        self._only_first = only_first
        self._held = ""
        self._state: Literal["start", "inside", "after", "text"] = "start"
        self._closing = ""
        self._has_thoughts = False

    def push(self, piece: str) -> list[tuple[Kind, str]]:
        """Return the parts that are known to be text or thinking so far."""
        if self._state == "text":
            return [("text", piece)]
        self._held += piece
        found: list[tuple[Kind, str]] = []
        steps = {"start": self._begin, "inside": self._think, "after": self._answer}
        before = ""
        # One piece may contain several tags.
        while before != self._state and (step := steps.get(self._state)):
            before = self._state
            found += step()
        return [(kind, text) for kind, text in found if text]

    def flush(self) -> list[tuple[Kind, str]]:
        """Return the remaining parts at the end of the reply."""
        held, self._held = self._held, ""
        kind: Kind = "reasoning" if self._state == "inside" else "text"
        return [(kind, held)] if held else []

    def _begin(self) -> list[tuple[Kind, str]]:
        said = strip_lead(self._held)
        if opened := match_opening(said):
            self._closing, end = opened
            self._state, self._held = "inside", said[end:]
            return []
        if header := _HEADER.match(said):
            self._state, self._held = "text", ""
            return [("text", said[header.end() :])]
        if is_start_of_opening(said) or is_start_of_tag(said, _HEADERS):
            return []
        self._state = "text"
        held, self._held = self._held, ""
        return [("text", held)]

    def _think(self) -> list[tuple[Kind, str]]:
        if not self._has_thoughts:
            self._held = self._held.lstrip("\n")
            self._has_thoughts = bool(self._held)
        if closed := find_tag(self._closing, self._held):
            thoughts = self._held[: closed.start()].rstrip("\n")
            self._held = self._held[closed.end() :]
            self._state = "after"
            return [("reasoning", thoughts)]
        # The end may be the start of the closing tag.
        sizes = range(min(len(self._closing) - 1, len(self._held)), 0, -1)
        kept = next((n for n in sizes if is_start_of_tag(self._held[-n:], [self._closing])), 0)
        # Line ends before the tag are not part of the thinking.
        thoughts = self._held[: len(self._held) - kept].rstrip("\n")
        self._held = self._held[len(thoughts) :]
        return [("reasoning", thoughts)]

    def _answer(self) -> list[tuple[Kind, str]]:
        said = self._held = self._held.lstrip()
        if not said:
            return []
        opened = None if self._only_first else match_opening(said)
        if opened:
            # Some models think in several blocks before they answer.
            self._closing, end = opened
            self._state, self._held = "inside", said[end:]
            self._has_thoughts = False
            return [("reasoning", "\n\n")]
        if header := _HEADER.match(said):
            said = said[header.end() :]
        elif is_start_of_tag(said, _HEADERS) or (
            not self._only_first and is_start_of_opening(said)
        ):
            return []
        self._state, self._held = "text", ""
        return [("text", said)]
