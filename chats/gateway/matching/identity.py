"""The end user and the conversation id of a request.

They determine the scope in which a request is matched; its messages determine the branch. `user`
and `safety_identifier` name people: they separate scopes and never merge them. `prompt_cache_key`
is ignored, because several chats can share it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from contextpolicy.engine.text.names import is_allowed_name

LONGEST = 255
# Prefix of the source of an invalid id.
INVALID = "invalid:"
# Headers that clients send. The first one present is used.
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
# Separates end-user names. Names that contain it, and numbers, are encoded as a JSON list instead.
SEPARATOR = "\x1f"
IN_METADATA = ("session_id", "conversation_id", "chat_id", "thread_id")


class Identity(NamedTuple):
    """The source and value of a conversation id, and the end user. Each may be empty."""

    source: str
    value: str
    end_user: str


def parse_identity(headers: Mapping[str, str], body: Mapping[str, Any]) -> Identity:
    """Return the first conversation id of a request, and its end user.

    If this id is too long or is not a valid name (`names`), the request has no id. Later
    headers are not tried, because they may contain the id of another conversation.
    """
    people = (headers.get("X-OpenWebUI-User-Id"), body.get("safety_identifier"), body.get("user"))
    # Each name has a fixed position, so different kinds of names never match.
    names = ["" if said is None else said for said in people]
    is_plain = all(isinstance(name, str) and SEPARATOR not in name for name in names)
    end_user = SEPARATOR.join(names) if is_plain else json.dumps(names, sort_keys=True)
    source, value = next(iter_conversation_ids(headers, body), ("", ""))
    if value and not (isinstance(value, str) and is_allowed_name(value) and len(value) <= LONGEST):
        return Identity(f"{INVALID}{source}", "", end_user)
    return Identity(source, value, end_user)


def iter_conversation_ids(
    headers: Mapping[str, str], body: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the conversation ids of a request with their sources."""
    for name in HEADERS:
        if value := headers.get(name):
            yield name.lower(), value
    conversation = body.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    if conversation:
        yield "conversation", conversation
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return
    for name in IN_METADATA:
        if value := metadata.get(name):
            yield f"metadata.{name}", value
