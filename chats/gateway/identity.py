"""Says whose conversation a request is: its end user, and the id that the program gives it.

Such an id only opens a room; within it the place is found by the messages. `user` and
`safety_identifier` name people: they split rooms, never join any. `prompt_cache_key` is the name of
a cache, which chats share, and says nothing.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from contextpolicy.engine.names import is_sound

LONGEST = 255
# Before the source of an id that is none.
INVALID = "invalid:"
# Seen in the field; the first that is there counts.
HEADERS = (
    "X-Context-Chat-Id",
    "X-OpenWebUI-Chat-Id",
    "X-Claude-Code-Session-Id",
    "X-Opencode-Session",
    "X-Session-Id",
    "X-Session-Affinity",
    "X-Conversation-Id",
    "Session-Id",
    "Thread-Id",
    "Conversation-Id",
    "X-Hermes-Session-Id",
    "X-Litellm-Session-Id",
    "Helicone-Session-Id",
    "X-Amp-Thread-Id",
    "X-Grok-Conv-Id",
)
# Between names that do not contain it; others are written as a list.
SEPARATOR = "\x1f"
IN_METADATA = ("session_id", "conversation_id", "chat_id", "thread_id")


class Identity(NamedTuple):
    """The source of an id and its value, and the end user; all may be empty."""

    source: str
    value: str
    end_user: str


def identity_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> Identity:
    """Return the first id that a request has.

    One that is too long, or is no name (`names`), is no id at all: the next one would be another's.
    """
    people = (headers.get("X-OpenWebUI-User-Id"), body.get("safety_identifier"), body.get("user"))
    # Each in its place, so that two kinds of names never meet, and no character can join two.
    names = [said if isinstance(said, str) else "" for said in people]
    end_user = SEPARATOR.join(names)
    if any(SEPARATOR in name for name in names):
        end_user = json.dumps(names)
    source, value = next(ids(headers, body), ("", ""))
    if value and not (isinstance(value, str) and is_sound(value) and len(value) <= LONGEST):
        return Identity(f"{INVALID}{source}", "", end_user)
    return Identity(source, value, end_user)


def ids(headers: Mapping[str, str], body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the ids of a request with the names of their sources."""
    for name in HEADERS:
        if said := headers.get(name):
            yield name.lower(), said
    conversation = body.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    if conversation:
        yield "conversation", conversation
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return
    for name in IN_METADATA:
        if said := metadata.get(name):
            yield f"metadata.{name}", said
