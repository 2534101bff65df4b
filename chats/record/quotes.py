"""Finds messages that quote another one, so that an erasure can list them.

Finds only verbatim quotes, ignoring white space and Markdown quote marks. Paraphrases
cannot be found by a rule.
"""

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from chats.models import Message

# The shortest quote in characters. Shorter matches happen by chance.
SHORTEST = 40
# A shorter message counts as quoted if all of it occurs, with at least this many characters.
SHORTEST_WHOLE = 16
# Half of the shortest quote: each quote contains a whole block at a multiple of this offset.
BLOCK = SHORTEST // 2
# Compared positions per block. A block with more is filler, such as a line of dashes. A quote made
# mostly of filler can be missed.
MOST_PLACES = 20
PAGE = 200
_MARKS = re.compile(r"^[ \t]*(?:>[ \t]*)+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Quote:
    """A message that quotes another message.

    `words` is an excerpt of the quoted text on one line.
    """

    message: Message
    words: str


def find_quotes(message: Message) -> list[Quote]:
    """Return the other messages of the chat, on all branches, that quote this one.

    Oldest first, without erased messages. Reads the whole chat, one page at a time.
    """
    index = Index(flatten_message_text(message))
    rows = Message.objects.filter(branch__chat=message.branch.chat_id, erased_at=None)
    found = rows.exclude(pk=message.pk).select_related("branch").order_by("accepted")
    return list(match_quotes(found.iterator(chunk_size=PAGE), index=index))


def find_quoting_ids(
    originals: Iterable[Message], rows: Iterable[Message]
) -> dict[uuid.UUID, list[str]]:
    """Map the id of each original to the ids of those of `rows` that quote it, in their order."""
    index = build_joint_index(originals)
    found: dict[uuid.UUID, list[str]] = {pk: [] for pk in index.texts}
    for row in rows if found else ():
        for pk in index.quoted_in(flatten_message_text(row)):
            found[pk].append(str(row.pk))
    return found


def build_joint_index(originals: Iterable[Message]) -> "JointIndex":
    """Return an index of the texts of messages, by their ids."""
    return JointIndex({row.pk: flatten_message_text(row) for row in originals})


def match_quotes(rows: Iterable[Message], *, index: "Index") -> Iterator[Quote]:
    for row in rows:
        words = index.shared(flatten_message_text(row))
        if words:
            yield Quote(row, words)


def flatten_message_text(message: Message) -> str:
    """Return a message's text, reasoning, tool arguments and tool results on one line."""
    texts = (str(part.get(key, "")) for part in message.parts for key in KEYS)
    return strip_quote_marks("\n".join(text for text in texts if text))


KEYS = ("text", "arguments", "content")


def strip_quote_marks(text: str) -> str:
    """Return text without Markdown quote marks and with single spaces."""
    return " ".join(_MARKS.sub("", text).split())


class Index:
    """An index of one text, with which its quotes are found in many others."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.places: dict[str, list[int]] = {}
        for start in range(0, len(text) - BLOCK + 1, BLOCK):
            places = self.places.setdefault(text[start : start + BLOCK], [])
            if len(places) < MOST_PLACES:
                places.append(start)

    def shared(self, other: str) -> str:
        """Return the first quote of this text in `other`. Empty if there is none."""
        if len(self.text) < SHORTEST:
            whole = len(self.text) >= SHORTEST_WHOLE and self.text in other
            return self.text if whole else ""
        for at in range(len(other) - BLOCK + 1):
            for start in self.places.get(other[at : at + BLOCK], ()):
                words = self.around(other, at=at, start=start)
                if len(words) >= SHORTEST:
                    return words
        return ""

    def around(self, other: str, *, at: int, start: int) -> str:
        """Return the shared text around a block, up to 80 characters in each direction."""
        before = after = 0
        while (
            before < min(at, start, 2 * SHORTEST)
            and other[at - before - 1] == self.text[start - before - 1]
        ):
            before += 1
        most = min(len(other) - at, len(self.text) - start, 2 * SHORTEST)
        while after < most and other[at + after] == self.text[start + after]:
            after += 1
        return other[at - before : at + after]


class JointIndex:
    """An index of several texts by id, which reads another text only once."""

    def __init__(self, texts: Mapping[uuid.UUID, str]) -> None:
        self.texts = {pk: Index(text) for pk, text in texts.items()}
        # Texts that count only as a whole.
        self.short = {pk for pk, text in texts.items() if len(text) < SHORTEST}
        self.blocks: dict[str, list[uuid.UUID]] = {}
        for pk, index in self.texts.items():
            for block in () if pk in self.short else index.places:
                self.blocks.setdefault(block, []).append(pk)

    def quoted_in(self, other: str) -> set[uuid.UUID]:
        """Return the ids of the texts that `other` quotes."""
        found = {pk for pk in self.short if self.texts[pk].shared(other)}
        looks: Counter[str] = Counter()
        for at in range(len(other) - BLOCK + 1):
            block = other[at : at + BLOCK]
            known = self.blocks.get(block)
            if known is None or looks[block] >= MOST_PLACES:
                continue
            looks[block] += 1
            found.update(pk for pk in known if pk not in found and self.is_quoted(pk, other, at=at))
        return found

    def is_quoted(self, pk: uuid.UUID, other: str, *, at: int) -> bool:
        """Return True if the block at a position of `other` is part of a quote of a text."""
        index = self.texts[pk]
        return any(
            len(index.around(other, at=at, start=start)) >= SHORTEST
            for start in index.places[other[at : at + BLOCK]]
        )

    def drop(self, pk: uuid.UUID) -> None:
        """Stop comparing a text."""
        for block in self.texts.pop(pk).places:
            if pk in self.blocks.get(block, ()):
                self.blocks[block].remove(pk)
        self.short.discard(pk)
