"""Keyed hashes for matching the messages of a request to stored ones.

Text is normalised only for hashing. `found` is a chain over the client's own messages, so the chat
is found even if the client changed the format of a reply. `item` covers one complete message. The
key prevents guessing texts from the table.
"""

import hashlib
import hmac
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.conf import settings

from chats.gateway.files import get_document_hash
from chats.gateway.matching.conversation import Item
from chats.ground.texts import replace_tagged_blocks
from chats.providers.think_tags import TAG_NAMES, split_unopened
from chats.turns.derived_titles import remove_tagged_blocks
from contextpolicy.engine.messages.messages import (
    JOINT,
    FilePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from contextpolicy.engine.strict_json import has_more_levels

_THOUGHTS = re.compile(
    rf"[<\[](?P<slash>/?)(?P<name>{'|'.join(TAG_NAMES)}|details)"
    r"(?:\s[^<>\[\]]*)?[>\]]",
    re.IGNORECASE,
)
# Characters of a message's first line that its loose hash covers.
LONGEST_BEGINNING = 200
# Levels of arguments that are compared as values. Others are compared as text.
LEVELS = 500
# The forms of parts that a client adds to our reply with calls.
IN_RESULTS = ("result", "image")


class Hashes(NamedTuple):
    """The hashes of a message. `found` and `loose` are empty for a reply without tool results."""

    found: str
    item: str
    loose: str = ""


def build_room_key(*, owner_id: int, end_user: str, source: str, value: str) -> str:
    """Return the scope key of a request. Only chats with the same key are matched."""
    return _compute_hmac("room", [owner_id, end_user, source, value])


def hash_messages(items: Sequence[Item], *, room: str) -> list[Hashes]:
    made = []
    chain, loose = room, _compute_hmac("loose", room)
    for item in items:
        whole = hash_item(item.parts, room=room)
        own = extract_client_part(item)
        if own is None:
            made.append(Hashes("", whole))
            continue
        chain = _compute_hmac(chain, own)
        loose = _compute_hmac(loose, extract_first_line(item) if item.role == "user" else own)
        made.append(Hashes(chain, whole, loose))
    return made


def extract_first_line(item: Item) -> str:
    """Return the first line of a message, which reminders added by clients do not change."""
    lines = strip_client_tags(join_item_texts(item)).splitlines()
    # A block that was removed from the line leaves a second space.
    return " ".join(next(iter(lines), "").split())[:LONGEST_BEGINNING]


def join_item_texts(item: Item) -> str:
    """Return the normalised texts of a message, joined as a stored message joins them."""
    return normalise_hash_text(
        JOINT.join(part.text for part in item.parts if isinstance(part, TextPart))
    )


def strip_client_tags(text: str) -> str:
    """Return normalised text without the client's tagged blocks.

    Text that consists only of such blocks is returned unchanged.
    """
    return remove_tagged_blocks(text) or text.strip()


def hash_item(parts: Sequence[Part], *, room: str) -> str:
    return _compute_hmac(room, ["item", normalise_message_parts(parts)])


def extract_client_part(item: Item) -> Any:  # JSON
    """Return the part of a message that the client wrote, as a JSON value.

    This is a user message, or the results of a reply's calls. None for a reply without results.
    """
    if item.role == "user":
        return [
            "user",
            [own for part in item.parts if (own := normalise_user_part(part)) is not None],
        ]
    if item.results:
        return [
            "results",
            [form for form in normalise_message_parts(item.parts) if form[0] in IN_RESULTS],
        ]
    return None


def normalise_user_part(part: Part) -> Any:  # JSON
    """Return the comparable form of a part of a user message: its text, image or document."""
    if isinstance(part, TextPart):
        return normalise_hash_text(part.text)
    if not isinstance(part, FilePart):
        return None
    if (image := part.image) is not None:
        # Signed URLs of the same image differ in the query string.
        return ["image", image.sha256 or image.url.partition("?")[0]]
    sha256 = get_document_hash(part)
    return ["file", sha256] if sha256 else None


def normalise_images(parts: Sequence[Part]) -> list[Any]:
    """Return the comparable forms of the images and documents of a message, in order."""
    return [normalise_user_part(part) for part in parts if isinstance(part, FilePart)]


def normalise_message_parts(parts: Sequence[Part]) -> list[list[Any]]:
    """Return the normalised form of a message, without reasoning."""
    forms: list[list[Any]] = []
    places: dict[str, int] = {}
    for part in parts:
        if isinstance(part, TextPart):
            forms.append(["text", normalise_hash_text(part.text)])
        elif isinstance(part, ToolCallPart):
            places[part.call_id] = len(places)
            forms.append(["call", part.name, parse_call_arguments(part)])
        elif isinstance(part, ToolResultPart):
            forms.append(
                ["result", places.get(part.call_id, -1), normalise_hash_text(part.content)]
            )
        elif isinstance(part, FilePart) and (own := normalise_user_part(part)) is not None:
            forms.append(own)
    return [form for form in forms if form != ["text", ""]]


def normalise_reply(parts: Sequence[Part]) -> list[Any]:
    """Return a reply in the form used for matching: without reasoning, spaces and results."""
    text = normalise_hash_text("".join(part.text for part in parts if isinstance(part, TextPart)))
    _, text = split_unopened(text) or ("", text)
    spoken = " ".join(replace_tagged_blocks(text, tags=_THOUGHTS, by=" ").split())
    calls = [form for form in normalise_message_parts(parts) if form[0] == "call"]
    return [spoken, *calls]


def normalise_hash_text(text: str) -> str:
    """Return text with normalised line endings and characters, without trailing whitespace."""
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n")).rstrip()


def parse_call_arguments(call: ToolCallPart) -> Any:  # JSON, or the text if it is invalid
    """Return the parsed arguments of a call, so that spaces and key order do not matter."""
    try:
        found = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ["text", call.arguments]
    # Deeper values can be parsed, but not always be written for the hash.
    return ["text", call.arguments] if has_more_levels(found, limit=LEVELS) else ["json", found]


def _compute_hmac(before: str, said: Any) -> str:
    text = json.dumps([before, said], sort_keys=True, separators=(",", ":"))
    key = hashlib.sha256(b"gateway\0" + settings.SECRET_KEY.encode()).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
