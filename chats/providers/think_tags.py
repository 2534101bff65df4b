"""Separates thinking from text if a server leaves it in the text, between `<think>` tags.

Servers without a parser for a reasoning model do that. Tags count only at the start of a reply, and
may be split anywhere.
"""

import re
from typing import Literal

Kind = Literal["text", "reasoning"]
_NAMES = ("think", "thinking", "thought", "reasoning", "analysis")
# Opening tags with their closing tags.
_TAGS = {**{f"<{name}>": f"</{name}>" for name in _NAMES}, "[think]": "[/think]"}
_CLOSES = rf"</(?:{'|'.join(_NAMES)})>"
# A closing tag at the start or end of its line, or after a sentence.
_CLOSING = re.compile(
    rf"^[ \t]*{_CLOSES}|{_CLOSES}(?=[ \t]*$)|(?<=[.!?…。！？]){_CLOSES}(?!`)",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_OPENING = re.compile("|".join(map(re.escape, _TAGS)), re.IGNORECASE)


def split_unopened(text: str) -> tuple[str, str] | None:
    """Split a whole reply whose thinking lacks the opening tag into thinking and answer.

    Some chat templates put that tag at the end of the prompt, so the reply has only the closing
    one. None without such a tag, or if it is inside code or closes a tag in the text.
    """
    closing = _CLOSING.search(text)
    if closing is None:
        return None
    thoughts = text[: closing.start()]
    is_code = len(_FENCE.findall(thoughts)) % 2 == 1
    if is_code or _OPENING.search(thoughts):
        return None
    return thoughts.strip("\n"), text[closing.end() :].lstrip()


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
        said = self._held.lstrip()
        if opened := _OPENING.match(said):
            self._closing = _TAGS[opened.group().lower()]
            self._state, self._held = "inside", said[opened.end() :]
            return []
        if any(tag.startswith(said.lower()) for tag in _TAGS):
            return []
        self._state = "text"
        held, self._held = self._held, ""
        return [("text", held)]

    def _think(self) -> list[tuple[Kind, str]]:
        if not self._has_thoughts:
            self._held = self._held.lstrip("\n")
            self._has_thoughts = bool(self._held)
        lower = self._held.lower()
        place = lower.find(self._closing)
        if place >= 0:
            thoughts = self._held[:place].rstrip("\n")
            self._held = self._held[place + len(self._closing) :]
            self._state = "after"
            return [("reasoning", thoughts)]
        # The end may be the start of the closing tag.
        sizes = range(min(len(self._closing) - 1, len(lower)), 0, -1)
        kept = next((n for n in sizes if lower.endswith(self._closing[:n])), 0)
        # Line ends before the tag are not part of the thinking.
        thoughts = self._held[: len(self._held) - kept].rstrip("\n")
        self._held = self._held[len(thoughts) :]
        return [("reasoning", thoughts)]

    def _answer(self) -> list[tuple[Kind, str]]:
        said = self._held = self._held.lstrip()
        if not said:
            return []
        opened = None if self._only_first else _OPENING.match(said)
        if opened:
            # Some models think in several blocks before they answer.
            self._closing = _TAGS[opened.group().lower()]
            self._state, self._held = "inside", said[opened.end() :]
            self._has_thoughts = False
            return [("reasoning", "\n\n")]
        if not self._only_first and any(tag.startswith(said.lower()) for tag in _TAGS):
            return []
        self._state, self._held = "text", ""
        return [("text", said)]
