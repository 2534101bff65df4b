"""Collects UI messages from a file, with their images and losses."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange import jsonstream
from chats.exchange.draft_messages import LONGEST_MESSAGE
from chats.exchange.drafts import ImportRefused
from chats.exchange.entry_values import shorten_id
from chats.exchange.foreign_metadata import CHANNEL
from chats.exchange.inline_images import InlineImages
from chats.exchange.shelf import IN_MEMORY, Shelf
from chats.exchange.thoughts import extract_reasoning_parts
from chats.ground.sentences import Sentence
from chats.ground.texts import sanitise_value
from contextpolicy.engine.messages.given_parts import build_kept_parts
from contextpolicy.engine.messages.messages import TextPart
from contextpolicy.engine.messages.ui_messages import (
    MalformedUIMessage,
    UIMessage,
    parse_ui_message,
)
from contextpolicy.engine.text import names

LONGEST_ID = 200


class LineReader:
    """Collects messages in order. Their ids must be valid and unique.

    `is_foreign`: the messages may be those of other products. Reasoning in the text of replies is
    separated, and messages get new ids in place of invalid and repeated ones. `tick` is called for
    each image.
    """

    def __init__(self, *, tick: Callable[[], None], is_foreign: bool = False) -> None:
        self.is_foreign = is_foreign
        self.messages: list[UIMessage] = []
        self.losses: list[str] = []
        self.ids: set[str] = set()
        # The next number of a new id, by what precedes it.
        self.numbers: dict[str, int] = {}
        # Whether a message was written here.
        self.is_marked = False
        self.images = InlineImages(tick=tick)
        # Holds the content of all but the first messages on disk.
        self.shelf = Shelf()

    def read(self, value: object, *, place: Promise) -> UIMessage:
        """Parse a JSON value as a UI message. Raises `ImportRefused`."""
        value = jsonstream.parse_lazy_value(value)
        if self.is_foreign and isinstance(value, dict):
            value = {**value, "id": self.find_valid_id(value.get("id"))}
        try:
            message, losses = parse_ui_message(value)
        except MalformedUIMessage as error:
            problem = Sentence(
                gettext_noop("In {place}: {problem}"), place=place, problem=str(error)
            )
            raise ImportRefused("import_malformed", problem) from error
        if len(message.id) > LONGEST_ID or not names.is_allowed_name(message.id):
            sentence = gettext_lazy(
                "The message ID in {place} is too long or contains control characters. Correct it."
            )
            raise ImportRefused("import_malformed", Sentence(sentence, place=place))
        if all(isinstance(part, TextPart) and not part.text for part in message.parts):
            # An export writes an empty text for a message without parts.
            message = replace(message, parts=())
        parts = message.parts
        if self.is_foreign and message.role == "assistant":
            message = replace(message, parts=extract_reasoning_parts(parts))
        is_whole = message.parts is parts
        stored, left_out = self.images.take(message.parts)
        message = replace(message, parts=stored)
        # A reply whose reasoning was separated is exported with separate reasoning.
        given = find_given_parts(value, message) if is_whole else []
        # Given parts are exported unchanged, so nothing is lost.
        self.losses += left_out if given else (*losses, *left_out)
        return replace(message, given=given)

    def find_valid_id(self, own_id: object) -> str:
        """Return an id of another product in a form that can be stored."""
        if isinstance(own_id, int) and not isinstance(own_id, bool):
            own_id = str(own_id)
        if isinstance(own_id, str) and own_id:
            return shorten_id(own_id)
        return self.find_free_id(f"message-{len(self.messages) + 1}")

    def find_free_id(self, own_id: str) -> str:
        """Return an id that no message has yet: the given one, or one with a number."""
        if own_id not in self.ids:
            return own_id
        base = shorten_id(own_id[:100])
        number = max(self.numbers.get(base, 0), len(self.messages))
        while (free := f"{base}~{number}") in self.ids:
            number += 1
        self.numbers[base] = number + 1
        return free

    def add(self, value: object, *, place: Promise) -> None:
        """Parse a message and append it to the list. Raises `ImportRefused`."""
        message = self.read(value, place=place)
        if message.id in self.ids and self.is_foreign:
            if is_same_message(message, self.messages[-1]):
                return
            self.losses.append(f"id_twice:{message.id[:80]}")
            message = replace(message, id=self.find_free_id(message.id))
        if message.id in self.ids:
            problem = Sentence(
                gettext_noop(
                    "The ID {id} appears twice, the second time in {place}. Change one of the IDs."
                ),
                id=repr(message.id),
                place=place,
            )
            raise ImportRefused("import_malformed", problem)
        self.ids.add(message.id)
        self.is_marked = self.is_marked or message.metadata.get("channel") == CHANNEL
        if len(self.messages) >= IN_MEMORY:
            parts, metadata = message.parts, message.metadata
            message = replace(
                message,
                parts=self.shelf.parts(parts),
                metadata=self.shelf.metadata(metadata),
                given=self.shelf.values(message.given),
            )
        self.messages.append(message)


def is_same_message(one: UIMessage, other: UIMessage) -> bool:
    """Return True if two messages are equal."""
    said = [(m.id, m.role, tuple(m.parts), dict(m.metadata)) for m in (one, other)]
    return said[0] == said[1]


def find_given_parts(value: Any, message: UIMessage) -> list[Any]:
    """Return the parts of a message's JSON value if the parsed ones cannot express all of them.

    Returns an empty list otherwise, and for parts that are too long to be kept.
    """
    given = sanitise_value([drop_address(part) for part in value["parts"]])
    if not build_kept_parts(given, message.parts):
        return []
    return given if len(json.dumps(given, ensure_ascii=False)) <= LONGEST_MESSAGE else []


def drop_address(part: Any) -> Any:
    """Return a part; if it is a file, with an empty URL, because the stored file has its own."""
    is_file = isinstance(part, Mapping) and part.get("type") == "file"
    return {**part, "url": ""} if is_file else part
