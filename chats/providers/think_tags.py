"""Separates thinking from text if a server leaves it in the text, between `<think>` tags.

Servers do this if they cannot parse the output of a reasoning model. Tags count only at the start
of a reply, and may be split anywhere. Case is ignored only for ASCII letters: lower-case forms of
other letters, such as İ, may have another length.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
_CLOSE_ENDS = tuple(_TAGS.values())
# Some models write spaces within a closing tag.
_CLOSES = (
    f"(?:{'|'.join(map(re.escape, _CLOSE_ENDS))}"
    rf"|<\s{{0,2}}/\s{{0,2}}(?:{'|'.join(TAG_NAMES)})\s{{0,2}}>)"
)
# Any closing tag, also of a channel; a closing tag, to be matched at the start of a text; and what
# may be the start of a tag at the end of a text.
_ANY_CLOSING = re.compile(rf"{_CLOSES}|{re.escape('<|end|>')}", re.IGNORECASE | re.ASCII)
_CLOSED_AT_START = re.compile(rf"{_CLOSES}", re.IGNORECASE | re.ASCII)
_PARTIAL = re.compile(r"(?:<[^<>]{0,24}|\[[^\[\]\n]{0,8}|◁[^▷\n]{0,10})\Z")
# Characters before a closing tag that show whether it is in a sentence.
_CONTEXT = 200
# A closing tag at the start or end of its line, or right after a word. Texts that mention a tag
# have a space or a quotation mark before it.
_CLOSING = re.compile(
    rf"^[ \t]*{_CLOSES}|{_CLOSES}(?=[ \t]*$)|(?<=[^\s`\"'“‘«‹（(]){_CLOSES}(?![`\"'”’»›])",
    re.IGNORECASE | re.MULTILINE | re.ASCII,
)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
# Characters of a line that show whether it is a code fence.
_FENCE_CHARS = 6
_OPENING = re.compile("|".join(map(re.escape, _OPENINGS)), re.IGNORECASE | re.ASCII)
_NAMES = "|".join(TAG_NAMES)
# An opening tag with attributes, and the start of one.
_WITH_ATTRIBUTES = re.compile(
    rf"<({_NAMES})\s+[\w-]+\s*=[^<>\n]{{0,200}}>", re.IGNORECASE | re.ASCII
)
_BEGUN = re.compile(rf"<(?:{_NAMES})\s[^<>\n]{{0,200}}\Z", re.IGNORECASE | re.ASCII)
_HEADER = re.compile("|".join(map(re.escape, _HEADERS)), re.IGNORECASE | re.ASCII)
# White space, and the mark at the start of some files.
_LEADING_SPACE = re.compile(r"[\s\ufeff]+")


def split_unopened(text: str) -> tuple[str, str] | None:
    """Split a whole reply that has only a closing tag into thinking and answer.

    Some chat templates put the opening tag at the end of the prompt. None if there is no such tag,
    or if it is inside code or closes a tag in the text.
    """
    closing = next(iter_closings(text), None)
    if closing is None:
        return None
    thoughts = text[: closing.start()]
    if _OPENING.search(thoughts) or _WITH_ATTRIBUTES.search(thoughts):
        return None
    return thoughts.strip("\n"), text[closing.end() :].lstrip()


def iter_closings(text: str) -> Iterator[re.Match[str]]:
    """Yield the closing tags in a text that are neither in a sentence nor in code."""
    code, place = CodePosition(), 0
    mark = line_end = -1
    for closing in _CLOSING.finditer(text):
        code.add(text[place : closing.start()])
        place = closing.start()
        if mark < place:
            mark = find_or_end("`", text, place)
        if line_end < place:
            line_end = find_or_end("\n", text, place)
        if not (code.is_block or (code.is_inline and mark < line_end)):
            yield closing


def find_or_end(sought: str, text: str, start: int) -> int:
    """Return the position of a character at or after `start`, or the end of the text."""
    place = text.find(sought, start)
    return place if place >= 0 else len(text)


def find_block_end(text: str, *, closing: str, start: int) -> re.Match[str] | None:
    """Return the tag that ends a block of thinking in a whole reply, at or after a position.

    Its own closing tag takes precedence, then one of another name, such as `</thinking>`, unless it
    closes a tag in the block. Its own tag in an open code block comes last. None if there is no
    tag.
    """
    found = [tag for tag in iter_closings(text) if tag.start() >= start]
    # Searched once: a text can have many closing tags.
    openings = {
        name: find_tag(get_opening(name), text) for name in set(map(get_closing_name, found))
    }
    own_line = re.compile(rf"^[ \t]*{re.escape(closing)}", re.IGNORECASE | re.MULTILINE | re.ASCII)
    end = next((tag for tag in found if get_closing_name(tag) == closing), None)
    end = end or next((tag for tag in found if is_misnamed(tag, openings, closing=closing)), None)
    return end or own_line.search(text, start)


def is_misnamed(
    tag: re.Match[str], openings: Mapping[str, re.Match[str] | None], *, closing: str
) -> bool:
    """Return True if a closing tag is not the expected one and closes no tag within the text.

    `openings`: the first opening tag of the text for each closing tag.
    """
    name = get_closing_name(tag)
    opening = openings[name]
    return name != closing and (opening is None or opening.end() > tag.start())


def get_opening(closing: str) -> str:
    """Return the opening tag for a closing tag, in lower case."""
    return next(opening for opening, end in _TAGS.items() if end == closing)


def get_closing_name(tag: re.Match[str]) -> str:
    """Return a closing tag in lower case, without spaces."""
    return "".join(tag.group().split()).lower()


def is_outside_sentence(tag: re.Match[str], *, before: str, after: str) -> bool:
    """Return True if a closing tag is not in a sentence. `before` may be cut at its start."""
    text = before + tag.group() + after
    end = len(before) + len(tag.group())
    return any(found.end() == end for found in _CLOSING.finditer(text))


def match_opening(text: str) -> tuple[str, int] | None:
    """Return the closing tag for the opening tag at the start of the text.

    Also returns the position after the opening tag. None if the text does not start with one.
    """
    if opened := _OPENING.match(text):
        return _OPENINGS[opened.group().lower()], opened.end()
    if opened := _WITH_ATTRIBUTES.match(text):
        return f"</{opened.group(1).lower()}>", opened.end()
    return None


def is_start_of_opening(text: str) -> bool:
    """Return True if the text can be the start of an opening tag."""
    return is_start_of_tag(text, _OPENINGS) or _BEGUN.match(text) is not None


def is_start_of_tag(text: str, tags: Iterable[str]) -> bool:
    """Return True if one of the tags, in lower case, starts with the text in any case."""
    lower = text.lower()
    return any(tag.startswith(lower) for tag in tags)


def strip_partial_closing(text: str) -> str:
    """Return text without a partial closing tag at its end, and without the spaces before that."""
    sizes = range(min(max(map(len, _TAGS.values())), len(text)), 0, -1)
    size = next((n for n in sizes if is_start_of_tag(text[-n:], _TAGS.values())), 0)
    return text[: len(text) - size].rstrip()


def find_tag(tag: str, text: str) -> re.Match[str] | None:
    """Return the first occurrence of a tag in any case, or None."""
    return re.search(re.escape(tag), text, re.IGNORECASE | re.ASCII)


def list_openings(text: str) -> set[str]:
    """Return the opening tags in a text, in lower case."""
    return {tag.group().lower() for tag in _OPENING.finditer(text)}


def strip_leading_space(text: str) -> str:
    """Return text without leading whitespace and byte order marks."""
    leading = _LEADING_SPACE.match(text)
    return text[leading.end() :] if leading else text


@dataclass(slots=True)
class CodePosition:
    """Tracks whether the end of growing text is inside code.

    `is_block`: in an open code block. `is_inline`: after an odd number of backticks on its line.
    """

    is_block: bool = False
    is_inline: bool = False
    # The start of the last line.
    line: str = ""

    def add(self, text: str) -> None:
        """Append text, and update the position."""
        for number, line in enumerate(text.split("\n")):
            if number:
                self.is_block ^= _FENCE.match(self.line) is not None
                self.line, self.is_inline = "", False
            self.line = (self.line + line[:_FENCE_CHARS])[:_FENCE_CHARS]
            self.is_inline ^= line.count("`") % 2 == 1


class ThinkTags:
    """Separates thinking from the text of one reply as it arrives.

    `only_first`: a second block counts as text.
    """

    def __init__(self, *, only_first: bool = False) -> None:
        self._only_first = only_first
        self._held = ""
        self._state: Literal["start", "inside", "after", "text"] = "start"
        self._closing = ""
        self._has_thoughts = False
        # The running block of thinking as returned, in pieces: its last characters, the code at
        # its end, and the tags that it opens.
        self._block: list[str] = []
        self._tail = ""
        self._code = CodePosition()
        self._opened: set[str] = set()
        # A tag may or may not end the block. Only the complete reply shows it, so the rest is held.
        self._is_unclear = False

    def push(self, piece: str) -> list[tuple[Kind, str]]:
        """Return the parts that are already known to be text or thinking."""
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
        if self._state != "inside":
            return [("text", held)] if held else []
        block = "".join(self._block)
        text = block + held
        end = find_block_end(text, closing=self._closing, start=len(block))
        pieces: list[tuple[Kind, str]] = [("reasoning", held)]
        if end is not None:
            thoughts = text[len(block) : end.start()].rstrip("\n")
            pieces = [("reasoning", thoughts), ("text", text[end.end() :].lstrip())]
        return [(kind, piece) for kind, piece in pieces if piece]

    def _open(self, closing: str, rest: str) -> None:
        """Begin a block of thinking."""
        self._state, self._closing, self._held = "inside", closing, rest
        self._has_thoughts = self._is_unclear = False
        self._block, self._tail, self._code, self._opened = [], "", CodePosition(), set()

    def _begin(self) -> list[tuple[Kind, str]]:
        said = strip_leading_space(self._held)
        if opened := match_opening(said):
            closing, end = opened
            self._open(closing, said[end:])
            return []
        if header := _HEADER.match(said):
            self._state, self._held = "text", ""
            return [("text", said[header.end() :])]
        if closed := _CLOSED_AT_START.match(said):
            # The prompt ends with the opening tag, and the model does not think.
            self._state, self._held = "after", said[closed.end() :]
            return []
        if is_start_of_opening(said) or is_start_of_tag(said, (*_HEADERS, *_CLOSE_ENDS)):
            return []
        self._state = "text"
        held, self._held = self._held, ""
        return [("text", held)]

    def _think(self) -> list[tuple[Kind, str]]:
        if not self._has_thoughts:
            self._held = self._held.lstrip("\n")
            self._has_thoughts = bool(self._held)
        found = ""
        while not self._is_unclear and (closed := _ANY_CLOSING.search(self._held)):
            before, after = self._held[: closed.start()], self._held[closed.end() :]
            role = self._classify_closing(closed, before=before, after=after)
            if role == "wait":
                break
            if role == "end":
                self._held, self._state = after, "after"
                return [("reasoning", (found + before).rstrip("\n"))]
            if role == "unclear":
                self._is_unclear = True
                thoughts = before.rstrip("\n")
                self._held = self._held[len(thoughts) :]
                return [("reasoning", found + self._keep(thoughts))]
            found += self._keep(before + closed.group())
            self._held = after
        if self._is_unclear:
            return []
        partial = _PARTIAL.search(self._held) or closed
        kept = partial.start() if partial else len(self._held)
        # Line ends before the tag are not part of the thinking.
        thoughts = self._held[: min(kept, closed.start() if closed else kept)].rstrip("\n")
        self._held = self._held[len(thoughts) :]
        return [("reasoning", found + self._keep(thoughts))]

    def _classify_closing(
        self, closed: re.Match[str], *, before: str, after: str
    ) -> Literal["end", "mention", "unclear", "wait"]:
        """Return the role of a closing tag in a block of thinking.

        `wait`: the next characters show it.
        """
        name = get_closing_name(closed)
        code = replace(self._code)
        code.add(before)
        if name == self._closing:
            if code.is_inline and not after:
                return "wait"
            if code.is_block:
                return "unclear"
            return "mention" if code.is_inline and after.startswith("`") else "end"
        opening = get_opening(name) if name in _CLOSE_ENDS else ""
        if not opening or code.is_block or opening in self._opened | list_openings(before):
            return "mention"
        line, line_end, _ = after.partition("\n")
        if not (line_end or line.strip()) or (code.is_inline and not line_end and "`" not in line):
            return "wait"
        context = (self._tail + before)[-_CONTEXT:]
        is_mention = code.is_inline and "`" in line
        if is_mention or not is_outside_sentence(closed, before=context, after=line[:_CONTEXT]):
            return "mention"
        return "unclear"

    def _keep(self, thoughts: str) -> str:
        """Note thinking that is returned, and return it."""
        self._block.append(thoughts)
        self._tail = (self._tail + thoughts[-_CONTEXT:])[-_CONTEXT:]
        self._code.add(thoughts)
        self._opened |= list_openings(thoughts)
        return thoughts

    def _answer(self) -> list[tuple[Kind, str]]:
        said = self._held = self._held.lstrip()
        while closed := _CLOSED_AT_START.match(said):
            said = self._held = said[closed.end() :].lstrip()
        if not said or is_start_of_tag(said, _CLOSE_ENDS):
            return []
        opened = None if self._only_first else match_opening(said)
        if opened:
            # Some models think in several blocks before they answer.
            closing, end = opened
            self._open(closing, said[end:])
            return [("reasoning", "\n\n")]
        if header := _HEADER.match(said):
            said = said[header.end() :]
        elif is_start_of_tag(said, _HEADERS) or (
            not self._only_first and is_start_of_opening(said)
        ):
            return []
        self._state, self._held = "text", ""
        return [("text", said)]
