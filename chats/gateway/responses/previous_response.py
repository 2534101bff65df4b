"""Resolves earlier conversations: a previous response by id, or a compaction item.

Providers never receive our ids or encrypted texts.
"""

import base64
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from chats.gateway.choice import NamedModel
from chats.gateway.errors import ForeignCompaction, PreviousResponseNotFound
from chats.gateway.files import GivenFile, get_document_hash
from chats.gateway.matching.conversation import Conversation, Item
from chats.gateway.matching.hashes import build_room_key
from chats.gateway.matching.identity import INVALID, Identity
from chats.gateway.matching.side_calls import SIDE
from chats.ground import secrets
from chats.models import Branch, Chat, GatewayChat, Turn
from chats.record import access, history
from chats.record.images import parse_data_url
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    parse_parts,
    serialize_parts,
)

ID = re.compile(r"resp_([0-9a-f]{32})")
# Suffix of the ids of responses with `store: false`, which cannot be continued by id.
UNSTORED = "_unstored"
# Distinguishes our compaction items from those of other servers, and from other secrets with the
# same encryption keys.
SEAL = "plm1:"
KIND = "compaction"


@dataclass(frozen=True, slots=True)
class Earlier:
    """The branch of a previous response, and its messages up to that response."""

    branch: Branch
    items: tuple[Item, ...]


def format_response_id(turn_id: uuid.UUID, *, stored: bool) -> str:
    """Return the id of a reply. Only a `stored` one can be used as `previous_response_id`."""
    return f"resp_{turn_id.hex}" + ("" if stored else UNSTORED)


def find_previous_response(
    said: Any, *, user: User, wanted: NamedModel, identity: Identity
) -> Earlier | None:
    """Return the conversation of `previous_response_id`. None if the field is absent.

    Raises `PreviousResponseNotFound`.
    """
    if said is None:
        return None
    known = ID.fullmatch(said) if isinstance(said, str) else None
    turn = find_replied_turn(uuid.UUID(known[1]), user=user) if known else None
    if turn is None or turn.reply is None or not is_of(turn.branch.chat, user, wanted, identity):
        raise PreviousResponseNotFound(id=str(said)[:80])
    # The reply was the last message of its turn. Later messages are left out.
    rows = history.select_path_messages(turn.branch, after=0, before=(turn.reply.seq or 0) + 1)
    items = [
        Item(history.get_engine_role(row), select_client_parts(row.parts))
        for row in rows.order_by("seq")
    ]
    # All calls of a client's turn are the client's, also those of a reply at its output limit.
    if turn.client is not None and items:
        items[-1] = remove_later_results(items[-1])
    return Earlier(turn.branch, tuple(item for item in items if item.parts))


def remove_later_results(item: Item) -> Item:
    """Return a reply with its calls, but without the results that a later request added.

    The new request contains its own results, which may differ.
    """
    gone = (*item.results, *item.result_images)
    return Item(item.role, tuple(part for part in item.parts if part not in gone))


def find_replied_turn(turn_id: uuid.UUID, *, user: User) -> Turn | None:
    """Return a completed turn in one of the user's chats without a team, with its reply.

    None if there is none, or if its response was deleted.
    """
    rows = Turn.objects.filter(
        pk=turn_id,
        status=Turn.Status.COMPLETED,
        deleted_response=None,
        branch__chat__in=access.get_visible_chats(user=user).filter(team=None),
    )
    return rows.select_related("branch__chat", "branch__parent", "reply").first()


def is_of(chat: Chat, user: User, wanted: NamedModel, identity: Identity) -> bool:
    """Return True if a request may continue a chat.

    The chat must be the one that the request names. If the request names no chat, it must belong to
    the same end user, with the same conversation id or none. Chats that no API client opened are
    always allowed.
    """
    if wanted.chat is not None:
        return wanted.chat.pk == chat.pk
    row = GatewayChat.objects.filter(chat=chat).first()
    source = "" if identity.source.startswith(INVALID) else identity.source
    rooms = {
        build_room_key(owner_id=user.pk, end_user=identity.end_user, source=name, value=value)
        for known, value in ((source, identity.value), ("", ""))
        # A request that looks like one for a title has its own room.
        for name in (known, f"{SIDE}{known}")
    }
    return row is None or row.room in rooms


def select_client_parts(parts: Any) -> tuple[Part, ...]:
    """Return the parts of a message that were sent to its client."""
    return tuple(
        part
        for part in parse_parts(parts)
        if isinstance(part, TextPart | ToolCallPart | ToolResultPart)
        or (isinstance(part, FilePart) and is_sent(part))
    )


def is_sent(part: FilePart) -> bool:
    """Return True if the client sent the content of a file."""
    return part.image is not None or bool(get_document_hash(part))


def encrypt_conversation(said: Conversation, *, user: User) -> str:
    """Encrypt a conversation. Only this instance can decrypt it, and only for the same owner."""
    items: Sequence[Any] = [[item.role, serialize_parts(item.parts)] for item in said.items]
    images = {sha256: image.data_url for sha256, image in said.images.items()}
    files = {
        sha256: [given.name, base64.b64encode(given.data).decode()]
        for sha256, given in said.files.items()
    }
    payload = {
        "kind": KIND,
        "owner": user.pk,
        "system": said.system,
        "items": items,
        "images": images,
        "files": files,
    }
    return SEAL + secrets.encrypt(json.dumps(payload))


def decrypt_conversation(sealed: str, *, user: User) -> Conversation:
    """Decrypt a conversation. Raises `ForeignCompaction` if it is from another server or owner."""
    try:
        payload = json.loads(secrets.decrypt(sealed.removeprefix(SEAL)))
    except (secrets.SecretUnreadable, ValueError):
        raise ForeignCompaction from None
    is_ours = sealed.startswith(SEAL) and isinstance(payload, dict) and payload.get("kind") == KIND
    if not is_ours or payload["owner"] != user.pk:
        raise ForeignCompaction
    items = [Item(role, parse_parts(parts)) for role, parts in payload["items"]]
    images = {sha256: parse_data_url(url) for sha256, url in payload.get("images", {}).items()}
    files = {
        sha256: GivenFile(name, base64.b64decode(data))
        for sha256, (name, data) in payload.get("files", {}).items()
    }
    return Conversation(tuple(payload["system"]), tuple(items), images, files)
