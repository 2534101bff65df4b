"""Finds the messages that quote another one, so that an erasure can name them.

Verbatim only, white space and quote marks of Markdown aside: no rule can find the same thing said
in other words.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chats.models import Message

# So many equal characters in a row are a quote; fewer happen by chance.
SHORTEST = 40
# A shorter message is quoted where all of it stands, if it has at least so many characters.
SHORTEST_WHOLE = 16
# Half of the shortest quote: every quote holds a whole block that begins at a multiple of this.
BLOCK = SHORTEST // 2
# Places of one block that are compared. A block with more is filler, such as a line of dashes; a
# quote of little else can be missed.
MOST_PLACES = 20
PAGE = 200
_MARKS = re.compile(r"^[ \t]*(?:>[ \t]*)+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Quote:
    """A message that has words of another, and the first of these words as they were compared."""

    message: Message
    words: str


def quotes_of(message: Message) -> list[Quote]:
    """Return the other messages of the chat, on any branch, that have words of this one.

    Oldest first; erased messages have no words. Reads the whole chat, a page at a time.
    """
    index = Index(said(message))
    rows = Message.objects.filter(branch__chat=message.branch.chat_id, erased_at=None)
    found = rows.exclude(pk=message.pk).select_related("branch").order_by("accepted")
    return list(matching(found.iterator(chunk_size=PAGE), index=index))


def matching(rows: Iterable[Message], *, index: "Index") -> Iterator[Quote]:
    """Yield the rows that quote, each with the words."""
    for row in rows:
        words = index.shared(said(row))
        if words:
            yield Quote(row, words)


def said(message: Message) -> str:
    """Join everything a message says, thinks, asks of tools and was told by them, in one line."""
    texts = (str(part.get(key, "")) for part in message.parts for key in KEYS)
    return plain("\n".join(text for text in texts if text))


KEYS = ("text", "arguments", "content")


def plain(text: str) -> str:
    """Remove the marks of quotes from a text and make its white space single spaces."""
    return " ".join(_MARKS.sub("", text).split())


class Index:
    """The words of one text, ready to be looked for in many others."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.places: dict[str, list[int]] = {}
        for start in range(0, len(text) - BLOCK + 1, BLOCK):
            places = self.places.setdefault(text[start : start + BLOCK], [])
            if len(places) < MOST_PLACES:
                places.append(start)

    def shared(self, other: str) -> str:
        """Return the first words that another text has of this one; empty without a quote."""
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
        """Return what both texts share around a block, up to twice the shortest quote each way."""
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
