"""Retrieves stored responses and items by id, only for the owner of the key.

Items of a reply have the id of its turn (`msg_…`, `rs_…`, `fc_…_0`), other items that of their
message. Instructions, tools and parameters are not stored, so a retrieved response does not repeat
them.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from chats.gateway import wire
from chats.gateway.choice import NamedModel
from chats.gateway.errors import InvalidRequest, ResponseNotFound
from chats.gateway.logprobs import Logprobs
from chats.gateway.matching.identity import Identity
from chats.gateway.responses import previous_response, tools
from chats.gateway.responses.items import is_item_reference
from chats.gateway.responses.response_form import (
    ResponseForm,
    build_reasoning_item,
    build_request_echo,
    build_text_item,
)
from chats.models import Chat, DeletedResponse, GatewayChat, Message, MessageImage, Turn
from chats.record import access, history
from chats.record.images import format_data_url
from contextpolicy import ledger
from contextpolicy.engine.messages.files import parse_document_reference
from contextpolicy.engine.messages.images import Image
from contextpolicy.engine.messages.messages import (
    FilePart,
    WireMessage,
    find_result_images,
    parse_parts,
)

ITEM = re.compile(r"(?:msg|rs|fc|ctc|fco)_([0-9a-f]{32})(?:_\d{1,4})?")
# Maximum ids per query, because SQLite limits the number of parameters.
AT_ONCE = 500
# Default and maximum items per page.
USUAL, MOST = 20, 100
# The source of the chats that are conversations. A chat found by another id in the field
# `conversation` has the name of that field as its source.
CONVERSATIONS = "conversations"
RUNNING = (Turn.Status.QUEUED, Turn.Status.RUNNING)


@dataclass(frozen=True, slots=True)
class ItemQuery:
    """The page of input items that a client requests: limit, order and cursor."""

    limit: int = USUAL
    newest_first: bool = True
    after: str = ""

    @classmethod
    def read(cls, sent: Mapping[str, str]) -> "ItemQuery":
        """Parse the query parameters. Raises `InvalidRequest`, naming the parameter."""
        limit = sent.get("limit", str(USUAL))
        is_number = limit.isascii() and limit.isdigit() and len(limit) <= len(str(MOST))
        if not is_number or not 1 <= int(limit) <= MOST:
            raise InvalidRequest(f"limit must be a number from 1 to {MOST}.", param="limit")
        order = sent.get("order", "desc")
        if order not in ("asc", "desc"):
            raise InvalidRequest("order must be asc or desc.", param="order")
        return cls(int(limit), order == "desc", sent.get("after", ""))


def select_response_turns(user: User) -> QuerySet[Turn]:
    """Return the turns whose responses the user's keys may retrieve."""
    asked_here = Q(api_key__isnull=False) | Q(branch__chat__gateway__isnull=False)
    rows = Turn.objects.filter(
        asked_here,
        branch__chat__in=access.get_visible_chats(user=user).filter(team=None),
        deleted_response=None,
    )
    return rows.select_related("branch__chat", "branch__parent", "reply", "model", "trigger")


def find_response_turn(response_id: str, *, user: User) -> Turn:
    """Return the turn with this response id. Raises `ResponseNotFound`."""
    known = previous_response.ID.fullmatch(response_id)
    turn = select_response_turns(user).filter(pk=uuid.UUID(known[1])).first() if known else None
    if turn is None or (turn.reply is not None and turn.reply.erased_at is not None):
        raise ResponseNotFound(id=response_id[:80])
    return turn


def build_stored_response(turn: Turn, *, found: Logprobs) -> dict[str, Any]:
    """Return a response with its current status: running, completed, failed or cancelled.

    `found`: the log probabilities of its text that are still stored.
    """
    form = build_response_form(turn)
    if turn.status == Turn.Status.COMPLETED and turn.reply is not None:
        reply = wire.build_turn_reply(turn, model=find_reply_model(turn))
        reply = replace(reply, logprobs=found or None)
        return form.completed(reply, form.output(reply))
    if turn.status in RUNNING:
        return form.frame(status="in_progress", output=[])
    if turn.status == Turn.Status.STOPPED:
        return form.frame(status="cancelled", output=[])
    told = turn.error_sentence or "The reply failed. Send the request again."
    return form.frame(status="failed", output=[], error={"code": "server_error", "message": told})


def build_response_form(turn: Turn) -> ResponseForm:
    named = {"model": find_reply_model(turn), "conversation": find_conversation_id(turn)}
    return ResponseForm(
        id=previous_response.format_response_id(turn.pk, stored=True),
        created=int(turn.queued_at.timestamp()),
        echo=build_request_echo(named, tools=()),
    )


def find_conversation_id(turn: Turn) -> str | None:
    """Return the id of the conversation to which a turn belongs, or None."""
    rows = GatewayChat.objects.filter(chat=turn.branch.chat_id, source=CONVERSATIONS)
    return f"conv_{turn.branch.chat_id.hex}" if rows.exists() else None


def find_reply_model(turn: Turn) -> str:
    return turn.model.slug if turn.model is not None else turn.model_name


@transaction.atomic
def delete_response(turn: Turn, *, actor: str, now: datetime) -> None:
    """Make a response unavailable by its id. Its messages stay in the chat of the key's owner."""
    _, is_new = DeletedResponse.objects.get_or_create(turn=turn, defaults={"deleted_at": now})
    if is_new:
        chat_id = turn.branch.chat_id
        event = "gateway.response_deleted"
        ledger.record_event(event, actor=actor, now=now, chat_id=chat_id, turn_id=turn.pk, data={})


def list_input_items(turn: Turn, *, asked: ItemQuery) -> dict[str, Any]:
    """Return a page of the input items of a response, in OpenAI's list format.

    Raises `InvalidRequest` if the list has no item with the id in `after`.
    """
    end = turn.reply or turn.trigger
    last = (end.seq or 0) if end is not None else 0
    rows = history.select_path_messages(turn.branch, after=0, before=last + (turn.reply is None))
    return build_item_page(rows.filter(erased_at=None), asked=asked)


def build_item_page(rows: QuerySet[Message], *, asked: ItemQuery) -> dict[str, Any]:
    """Return a page of the items of messages, in OpenAI's list format.

    Raises `InvalidRequest` if the list has no item with the id in `after`.
    """
    if asked.after:
        row = find_item_message(asked.after, among=rows)
        side = "seq__lte" if asked.newest_first else "seq__gte"
        rows = rows.filter(**{side: row.seq})
    ordered = rows.order_by("-seq" if asked.newest_first else "seq")
    listed = iter_message_items(ordered, newest_first=asked.newest_first)
    if asked.after:
        listed = iter_items_after(listed, asked.after)
    found = list(islice(listed, asked.limit + 1))
    page = found[: asked.limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(found) > len(page),
    }


def find_item_message(item_id: str, *, among: QuerySet[Message]) -> Message:
    """Return the message of an item. Raises `InvalidRequest`."""
    known = ITEM.fullmatch(item_id)
    own = uuid.UUID(known[1]) if known else None
    row = among.filter(Q(pk=own) | Q(reply_of=own)).first() if own else None
    if row is None:
        raise InvalidRequest("after must be the id of an item in this list.", param="after")
    return row


def iter_items_after(listed: Iterator[dict[str, Any]], item_id: str) -> Iterator[dict[str, Any]]:
    for item in listed:
        if item["id"] == item_id:
            break
    yield from listed


def iter_message_items(rows: QuerySet[Message], *, newest_first: bool) -> Iterator[dict[str, Any]]:
    """Yield the items of messages in order, loading one page of rows at a time."""
    for row in rows.select_related("reply_of").iterator(chunk_size=MOST):
        made = build_message_items(row)
        yield from reversed(made) if newest_first else made


def build_message_items(row: Message) -> list[dict[str, Any]]:
    """Return the items of one message. A reply's items keep the ids with which they were sent."""
    turn = getattr(row, "reply_of", None)
    own = (turn.pk if turn is not None else row.pk).hex
    if row.role == Message.Role.USER:
        item = build_text_item(f"msg_{own}", None, status="completed")
        return [{**item, "role": "user", "content": list(iter_input_parts(row))}]
    found: list[dict[str, Any]] = []
    thoughts = "".join(part["text"] for part in row.parts if part["type"] == "reasoning")
    if thoughts:
        found.append(build_reasoning_item(f"rs_{own}", {}, thoughts=thoughts))
    if row.text:
        found.append(build_text_item(f"msg_{own}", row.text, status="completed"))
    calls = [part for part in row.parts if part["type"] == "tool_call"]
    results = [part for part in row.parts if part["type"] == "tool_result"]
    for number, call in enumerate(calls):
        item = tools.build_call_item(call, forms={})
        found.append({"id": f"fc_{own}_{number}", "status": "completed", **item})
    for number, result in enumerate(results):
        fields = {"call_id": result["call_id"], "output": build_output_content(row, result)}
        kind = "function_call_output"
        found.append({"id": f"fco_{own}_{number}", "type": kind, "status": "completed", **fields})
    return found


def build_output_content(row: Message, result: Mapping[str, str]) -> str | list[dict[str, Any]]:
    """Return the output of a call: its text, or its text and images in order."""
    images = find_result_images(parse_parts(row.parts)).get(result["call_id"], ())
    if not images:
        return result["content"]
    wire = WireMessage("tool", result["content"], images=tuple(images))
    return [
        {"type": "input_text", "text": piece}
        if isinstance(piece, str)
        else build_image_item(row, piece)
        for piece in wire.pieces()
    ]


def build_image_item(row: Message, part: FilePart) -> dict[str, Any]:
    """Return the input item for an image, with its stored bytes or its URL."""
    image = part.image or Image(0)
    stored = MessageImage.objects.filter(message=row, sha256=image.sha256).first()
    url = format_data_url(stored.media_type, bytes(stored.data)) if stored else image.url
    return {"type": "input_image", "detail": image.detail or "auto", "image_url": url}


def iter_input_parts(row: Message) -> Iterator[dict[str, Any]]:
    """Yield the parts of a user message: texts, images and documents."""
    for part in row.parts:
        if part["type"] == "text":
            yield {"type": "input_text", "text": part["text"]}
        elif part["type"] == "file":
            held = FilePart(part["media_type"], part["name"], part["reference"])
            if held.image is None:
                if (document := parse_document_reference(part["reference"])) is not None:
                    named = {"file_id": document.id, "filename": part["name"]}
                    yield {"type": "input_file", **named}
                continue
            yield build_image_item(row, held)


def load_referenced_items(
    said: Any, *, user: User, wanted: NamedModel, identity: Identity
) -> Mapping[str, Mapping[str, Any]]:
    """Return the items that a request references by id, if they belong to the key's owner.

    Items of other end users and erased items are not found.
    """
    listed = said if isinstance(said, list) else ()
    named = {str(item.get("id")) for item in listed if is_item_reference(item)}
    known = {item_id: found for item_id in named if (found := ITEM.fullmatch(item_id))}
    hexes = sorted({match[1] for match in known.values()})
    items: dict[str, Mapping[str, Any]] = {}
    allowed: dict[uuid.UUID, bool] = {}
    for start in range(0, len(hexes), AT_ONCE):
        ids = [uuid.UUID(one) for one in hexes[start : start + AT_ONCE]]
        for chat, made in load_items_by_id(ids, user=user):
            if chat.pk not in allowed:
                allowed[chat.pk] = previous_response.is_of(chat, user, wanted, identity)
            if allowed[chat.pk]:
                items |= {item["id"]: item for item in made}
    return {
        item_id: items[own] for item_id in known if (own := normalise_item_id(item_id)) in items
    }


def normalise_item_id(item_id: str) -> str:
    """Return the stored id of a call, which is the same for functions and custom tools."""
    return f"fc_{item_id[4:]}" if item_id.startswith("ctc_") else item_id


def load_items_by_id(
    ids: Sequence[uuid.UUID], *, user: User
) -> Iterator[tuple[Chat, Sequence[Mapping[str, Any]]]]:
    """Yield the chats and items of the given turn and message ids."""
    turns = select_response_turns(user).filter(
        pk__in=ids, status=Turn.Status.COMPLETED, reply__erased_at=None
    )
    for turn in turns:
        form, reply = (
            build_response_form(turn),
            wire.build_turn_reply(turn, model=find_reply_model(turn)),
        )
        output = [{**item, "id": normalise_item_id(item["id"])} for item in form.output(reply)]
        stored = build_message_items(turn.reply) if turn.reply is not None else []
        results = [item for item in stored if item["type"] == "function_call_output"]
        yield turn.branch.chat, [*output, *results]
    visible = access.get_visible_chats(user=user).filter(team=None, gateway__isnull=False)
    rows = Message.objects.filter(pk__in=ids, erased_at=None, branch__chat__in=visible)
    for row in rows.select_related("branch__chat", "reply_of"):
        yield row.branch.chat, build_message_items(row)
