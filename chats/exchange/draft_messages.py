"""Builds the rows of imported messages from drafts, and cleans text that cannot be stored."""

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django.utils.translation import gettext_noop

from chats.exchange.drafts import ChatDraft, ImportRefused, Node
from chats.exchange.message_times import MessageTime
from chats.exchange.originals import set_document_ids
from chats.ground.sentences import Sentence
from chats.ground.texts import UNSTORABLE, sanitise_text
from chats.models import Message
from contextpolicy.engine.messages.given_parts import KEPT, build_kept_parts
from contextpolicy.engine.messages.messages import serialize_parts
from contextpolicy.engine.text import names

# Maximum characters of a message's parts and metadata. A result of a tool can have 4 MiB, so an
# export of this server can have long messages. Counting the tokens can take 12 seconds.
LONGEST_MESSAGE = 8_000_000


LONGEST_METADATA = 20_000
# OpenAI rejects longer ids of tool calls.
LONGEST_CALL_ID = 40


def build_draft_message(
    node: Node,
    time: MessageTime,
    *,
    now: datetime,
    is_checked: bool = False,
    file_ids: Mapping[str, uuid.UUID] = MappingProxyType({}),
) -> Message:
    """Return the row of a message without its position. `file_ids` maps hashes to files.

    `is_checked`: check that the values can be stored, and raise `ImportRefused` if not.
    """
    parts = set_document_ids(serialize_parts(node.parts), ids=file_ids)
    kept = dict(node.metadata)
    restored_by = build_kept_parts(node.given, node.parts) if node.given else {}
    if is_checked:
        check_storable(node.id, parts, kept)
    role = Message.Role.USER if node.role == "user" else Message.Role.ASSISTANT
    usual = Message.Finish.STOP if role == Message.Role.ASSISTANT else ""
    erased = pop_valid_metadata(kept, "erased", lambda said: said is True and not parts)
    return Message(
        role=role,
        parts=parts,
        speaker=pop_valid_metadata(kept, "speaker", is_valid_speaker),
        addressees=pop_valid_metadata(kept, "addressees", is_valid_addressees) or [],
        model_name=pop_valid_metadata(kept, "model", lambda said: is_bounded_name(said, most=200))
        or "",
        finish=pop_valid_metadata(kept, "finish", lambda said: is_valid_finish(said, role=role))
        or usual,
        pinned_at=now if pop_valid_metadata(kept, "pinned", lambda said: said is True) else None,
        excluded=bool(pop_valid_metadata(kept, "excluded", lambda said: said is True)),
        erased_at=now if erased else None,
        metadata={
            "source": {
                "id": node.id,
                "metadata": kept,
                **({KEPT: restored_by} if restored_by else {}),
            }
        },
        created_at=time.at,
        undated=None if time.is_known else True,
    )


def pop_valid_metadata(kept: dict[str, object], name: str, is_sound: Any) -> Any:
    """Pop a value from the metadata to store it in a column.

    Invalid values stay in the metadata.
    """
    if name in kept and is_sound(kept[name]):
        return kept.pop(name)
    return None


def is_bounded_name(said: object, *, most: int = 100) -> bool:
    """Return True if a value is a string of 1 to `most` printable characters."""
    return isinstance(said, str) and len(said) <= most and names.is_allowed_name(said)


def is_valid_addressees(said: object) -> bool:
    """Return True if a value is a valid list of recipients."""
    return isinstance(said, list) and 0 < len(said) <= 50 and all(map(is_bounded_name, said))


def is_valid_speaker(said: object) -> bool:
    """Return True if a value is an object with a valid `roleId`, `roleName` and `type`."""
    if not isinstance(said, Mapping) or set(said) != {"roleId", "roleName", "type"}:
        return False
    return (
        is_bounded_name(said["roleId"])
        and is_bounded_name(said["roleName"])
        and said["type"] in ("human", "ai")
    )


def is_valid_finish(said: object, *, role: str) -> bool:
    """Return True if a value is a valid finish reason for the role."""
    return role == Message.Role.ASSISTANT and said in Message.Finish.values


def check_storable(own_id: str, parts: object, kept: object) -> None:
    """Raise `ImportRefused` for values that databases reject or that exceed a limit."""
    for value, limit in ((parts, LONGEST_MESSAGE), (kept, LONGEST_METADATA)):
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > limit:
            problem = Sentence(
                gettext_noop("Message {id} exceeds the limit of {limit:,} characters. Shorten it."),
                id=repr(own_id),
                limit=limit,
            )
            raise ImportRefused("import_too_large", problem)
        if UNSTORABLE.search(text) or "\\u0000" in text:
            problem = Sentence(
                gettext_noop(
                    "Message {id} contains a character that cannot be stored. Remove the character."
                ),
                id=repr(own_id),
            )
            raise ImportRefused("import_malformed", problem)


def clean_draft(draft: ChatDraft) -> ChatDraft:
    """Return a draft of another product with unstorable characters replaced."""
    return replace(draft, nodes=tuple(map(clean_node, draft.nodes)))


def clean_node(node: Node) -> Node:
    """Return a message whose text can be stored; usually the same object."""
    parts = tuple(node.parts)
    sound = tuple(map(clean_part, parts))
    return node if sound == parts else replace(node, parts=sound)


def clean_part(part: Any) -> Any:
    """Return a message part with NUL and lone surrogates replaced by U+FFFD.

    Long ids of tool calls are replaced by a digest, because some servers reject them.
    """
    values = {name: sanitise_text(getattr(part, name)) for name in part.__slots__}
    if len(values.get("call_id", "")) > LONGEST_CALL_ID:
        digest = hashlib.sha256(values["call_id"].encode()).hexdigest()
        values["call_id"] = f"call_{digest[:32]}"
    return type(part)(**values)
