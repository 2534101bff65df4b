"""Reads chats whose messages are nested in each other, however long the chat is.

LibreChat writes each message into the `children` of the previous one. A long chat therefore has
more levels than a JSON value may have here. Before such a chat is parsed, its tree is changed into
a list, without recursion.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from django.utils.functional import Promise

from chats.exchange import bounds, jsonstream

# The names in a chat and in a message whose list contains messages.
LISTS = (b"messagesTree", b"messages", b"children")
_NAMES = b"|".join(LISTS)
# The next bracket, with the name before it if it is one of `LISTS`. Strings are skipped.
_NEXT = re.compile(
    rb'(?:[^"\[\]{}]++|(?!"(?:%s)"\s*+:\s*+\[)"[^"\\]*+(?:\\.[^"\\]*+)*+")*+'
    rb'(?:"(%s)"\s*+:\s*+\[|[\[{]|([\]}]))' % (_NAMES, _NAMES),
    re.DOTALL,
)
# Kinds of brackets that are open: the chat, a list of messages, a message, any other.
CHAT, TREE, MESSAGE, OTHER = range(4)
# What separates the messages of a list.
_BETWEEN = b" \t\r\n,"


def parse_chat_json(data: bytes | bytearray, *, place: str | Promise) -> Any:
    """Parse a chat as `jsonstream.parse_lazy_json`. Long trees of messages become a list.

    Raises `ImportRefused`.
    """
    if has_deep_tree(data):
        data = flatten_tree(data, place=place)
    return jsonstream.parse_lazy_json(data, place=place)


def has_deep_tree(data: bytes | bytearray) -> bool:
    """Return True if JSON may be a tree of messages with more levels than a value may have."""
    is_tree = b'"children"' in data and b'"conversationId"' in data
    return is_tree and bounds.measure_json_depth(data) > bounds.DEPTH


def flatten_tree(data: bytes | bytearray, *, place: str | Promise) -> bytes | bytearray:
    """Return the JSON of a chat with a list of its messages, parents first, in place of the tree.

    The messages keep their other values; their `children` are empty. A message without
    `parentMessageId` gets that of the message that contained it. Returns the data unchanged if it
    is not a complete object. Raises `ImportRefused` for too many messages.
    """
    flattener = _Flattener(data, place)
    return flattener.join() if flattener.scan() else data


@dataclass(slots=True)
class _Flattener:
    """Splits a chat into the texts of its messages, in one pass.

    `texts`: the pieces of the chat, then those of each message. `trees`: the numbers of the
    messages in each list of the chat. `parents`: the number of the text that contains each text.
    `start`: where the text begins that belongs to no piece yet.
    """

    data: bytes | bytearray
    place: str | Promise
    texts: list[list[bytes | bytearray]] = field(default_factory=lambda: [[]])
    trees: list[list[int]] = field(default_factory=list)
    parents: list[int] = field(default_factory=lambda: [0])
    # The ids of the messages, by number.
    ids: dict[int, str] = field(default_factory=dict)
    kinds: list[int] = field(default_factory=list)
    # The texts that are not complete, by number.
    owners: list[int] = field(default_factory=lambda: [0])
    start: int = 0

    def scan(self) -> bool:
        """Read the data; return False if it is not a complete object."""
        at = 0
        while (found := _NEXT.match(self.data, at)) is not None:
            at = found.end()
            if found[2]:
                if not self.kinds or self.close(at):
                    return not self.kinds and len(self.texts[0]) > 1
            else:
                self.open(at, name=found[1], is_object=self.data[at - 1] == ord("{"))
        return False

    def open(self, at: int, *, name: bytes | None, is_object: bool) -> None:
        """Note the bracket that ends at a position; `name` is the name before it."""
        within = self.kinds[-1] if self.kinds else None
        kind = OTHER
        if within is None and is_object:
            kind = CHAT
        elif within == TREE and is_object:
            kind = MESSAGE
            self.note_stray(at - 1)
            self.owners.append(self.add_message([]))
            self.start = at - 1
        elif name is not None and within == (MESSAGE if name == b"children" else CHAT):
            kind = TREE
            self.finish_piece(at)
            if within == CHAT:
                self.trees.append([])
        self.kinds.append(kind)

    def close(self, at: int) -> bool:
        """Note the closing bracket that ends at a position. Return True if it ends the chat."""
        kind = self.kinds.pop()
        if kind == MESSAGE:
            self.finish_piece(at)
            self.owners.pop()
        elif kind == TREE:
            self.note_stray(at - 1)
            self.start = at - 1
        elif kind == CHAT:
            self.finish_piece(at)
        return not self.kinds

    def finish_piece(self, end: int) -> None:
        self.texts[self.owners[-1]].append(self.data[self.start : end])
        self.start = end

    def note_stray(self, end: int) -> None:
        """Add a message that is not an object, so that it is reported, for text between two."""
        if self.data[self.start : end].strip(_BETWEEN):
            self.add_message([b"null"])

    def add_message(self, pieces: list[bytes | bytearray]) -> int:
        if len(self.texts) > bounds.LINES:
            raise jsonstream.build_json_entries_error(self.place)
        self.texts.append(pieces)
        self.parents.append(self.owners[-1])
        self.trees[-1].append(len(self.texts) - 1)
        return len(self.texts) - 1

    def join(self) -> bytearray:
        """Return the chat with the messages of each of its trees as a list."""
        first, *rest = self.texts[0]
        found = bytearray(first)
        for tree, piece in zip(self.trees, rest, strict=True):
            for place, number in enumerate(tree):
                found += b"," if place else b""
                found += self.join_message(number)
                self.texts[number] = []
            found += piece
        return found

    def join_message(self, number: int) -> bytes:
        """Return a message with its id and its parent. One that cannot be parsed is unchanged."""
        data = b"".join(self.texts[number])
        message = parse_message(data)
        if not isinstance(message, dict):
            return data
        added: dict[str, str] = {}
        own_id = self.ids[number] = str(message.get("messageId") or f"message-{number - 1}")
        if not message.get("messageId"):
            added["messageId"] = own_id
            if "messageId" in message:
                del message["messageId"]
                data = json.dumps(message).encode()
        if "parentMessageId" not in message and self.parents[number] in self.ids:
            added["parentMessageId"] = self.ids[self.parents[number]]
        if not added:
            return data
        comma = b"," if message else b""
        return json.dumps(added).encode()[:-1] + comma + data.removeprefix(b"{")


def parse_message(data: bytes) -> Any:
    """Return the value of a message; None if it is not JSON or has too many levels."""
    if bounds.measure_json_depth(data) > bounds.DEPTH:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
