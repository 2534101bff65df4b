"""Conversations that clients create and continue by id: chats of the key's owner.

Items are messages of the chat's active branch, so policies, summaries, receipts and erasure apply
to them as to all messages. Changes by the owner on the chat page apply to the conversation.
"""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from chats.actions import lifecycle, marks
from chats.gateway.append_request import place_at_end
from chats.gateway.choice import choose_with_key_policy, list_usable_models
from chats.gateway.errors import (
    ConversationNotFound,
    InvalidRequest,
    ItemNotFound,
)
from chats.gateway.matching.conversation import Conversation, Item
from chats.gateway.matching.hashes import build_room_key
from chats.gateway.request_chats import derive_request_title
from chats.gateway.request_types import BranchEnd, Placement
from chats.gateway.responses.previous_response import remove_later_results, select_client_parts
from chats.gateway.responses.stored_responses import (
    CONVERSATIONS,
    ItemQuery,
    build_item_page,
    build_message_items,
    find_item_message,
    normalise_item_id,
)
from chats.gateway.store_items import ItemSource, check_chat_room, store_items
from chats.models import Branch, Chat, GatewayChat, KeptText, Message, Turn
from chats.prompt.model_choice import ChosenModel, ModelNotAllowed, NoModel
from chats.record import access, history, kept_texts
from chats.record.idempotency import IdempotentRequest
from chats.record.locking import lock_chat_for_writing
from chats.record.message_commitments import Sealed, build_stored_data
from chats.turns.start import get_active_branch
from chats.turns.statements import PERSON_LOCK
from contextpolicy import ledger
from contextpolicy.engine.messages.messages import ToolCallPart
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.models import ContextPolicy
from speed import prepared

ID = re.compile(r"conv_([0-9a-f]{32})")
# The finish reasons of replies that their clients did not receive.
UNSEEN = (Message.Finish.STOPPED, Message.Finish.INCOMPLETE)
# Maximum items of one request, pairs of metadata, and characters of their names and values.
MOST_ITEMS = 20
MOST_PAIRS, LONGEST_NAME, LONGEST_VALUE = 16, 64, 512


@dataclass(frozen=True, slots=True)
class NewItems:
    """Parsed items that a client adds without requesting a reply.

    `policy` is that of the API key. The limits of `choice` apply to text and files; it is None if
    there are no items.
    """

    user: User
    conversation: Conversation
    policy: ContextPolicy | None
    keyed: IdempotentRequest
    choice: ChosenModel | None


def format_conversation_id(chat_id: uuid.UUID) -> str:
    return f"conv_{chat_id.hex}"


def build_conversation(chat: Chat) -> dict[str, Any]:
    """Return a conversation in OpenAI's format."""
    return {
        "id": format_conversation_id(chat.pk),
        "object": "conversation",
        "created_at": int(chat.created_at.timestamp()),
        "metadata": chat.gateway.metadata or {},
    }


def parse_metadata(said: Any) -> dict[str, str]:
    """Return the metadata of a request. Raises `InvalidRequest`."""
    if said is None:
        return {}
    is_valid = (
        isinstance(said, dict)
        and len(said) <= MOST_PAIRS
        and all(len(name) <= LONGEST_NAME for name in said)
        and all(isinstance(text, str) and len(text) <= LONGEST_VALUE for text in said.values())
    )
    if not is_valid:
        problem = f"metadata must be an object of at most {MOST_PAIRS} texts. Names may have "
        problem += f"{LONGEST_NAME} characters, texts {LONGEST_VALUE}."
        raise InvalidRequest(problem, param="metadata")
    return {**said}


def select_conversations(user: User) -> QuerySet[Chat]:
    """Return a user's chats that are conversations."""
    rows = access.get_visible_chats(user=user).filter(
        team=None, gateway__source=CONVERSATIONS, gateway__removed_at=None
    )
    return rows.select_related("gateway", "active_branch__parent")


def find_conversation(conversation_id: Any, *, user: User) -> Chat:
    """Return the chat of a conversation. Raises `ConversationNotFound`."""
    named = conversation_id.get("id") if isinstance(conversation_id, dict) else conversation_id
    known = ID.fullmatch(named) if isinstance(named, str) else None
    chat = select_conversations(user).filter(pk=uuid.UUID(known[1])).first() if known else None
    if chat is None:
        raise ConversationNotFound(id=str(named)[:80])
    return chat


def build_conversation_room(chat: Chat, *, end_user: str) -> str:
    """Return the scope key of a conversation for an end user."""
    return build_room_key(
        owner_id=chat.owner_id, end_user=end_user, source=CONVERSATIONS, value=chat.pk.hex
    )


def check_end_user(chat: Chat, *, end_user: str) -> None:
    """Raise `ConversationNotFound` if a conversation belongs to another end user.

    The first request to a conversation determines its end user.
    """
    room = build_conversation_room(chat, end_user=end_user)
    if chat.gateway.room == room:
        return
    rows = GatewayChat.objects.filter(chat=chat, proven=False)
    if not rows.update(room=room):
        raise ConversationNotFound(id=format_conversation_id(chat.pk))


def choose_item_policy(chat: Chat) -> ChosenModel:
    """Return the policy for items without a reply, with any model that it allows.

    Raises the refusals of `model_choice.choose_chat_model`.
    """
    refused: ModelNotAllowed | None = None
    for model in [chat.model] if chat.model else [None, *list_usable_models()]:
        try:
            return choose_with_key_policy(chat, named=False, default=model)
        except ModelNotAllowed as refusal:
            refused = refused or refusal
    raise refused or NoModel


def create_conversation(
    new: NewItems, *, metadata: Mapping[str, str], counter: TokenCounter, now: datetime
) -> Chat:
    """Create a conversation, with its first items if any.

    It stays archived until its first request. Raises `TooManyChats`, `IdempotencyKeyReused` and the
    refusals of `add_items`.
    """
    with transaction.atomic():
        PERSON_LOCK.hold(owner=new.user.pk)
        if known := new.keyed.find(now=now):
            return find_conversation(known["conversation"], user=new.user)
        title = derive_request_title(new.conversation)
        chat = lifecycle.create_chat(owner=new.user, now=now, title=title)
        chat.archived, chat.without_memory, chat.policy = True, True, new.policy
        prepared.save_row_fields(chat, "archived", "without_memory", "policy")
        room = build_conversation_room(chat, end_user="")
        row = GatewayChat(chat=chat, room=room, source=CONVERSATIONS, metadata={**metadata})
        prepared.insert_row(row)
        if new.choice is not None:
            place = Placement(get_active_branch(chat), 0, 0, "new")
            store_new_items(chat, place, new, choice=new.choice, counter=counter, now=now)
        result = {"conversation": format_conversation_id(chat.pk), "chat": str(chat.pk)}
        new.keyed.remember(result=result, now=now)
    return chat


def change_metadata(chat: Chat, metadata: Mapping[str, str], *, actor: str, now: datetime) -> Chat:
    """Replace the metadata of a conversation. A legal hold keeps the old metadata."""
    with transaction.atomic():
        lock_chat_for_writing(chat.pk)
        row = GatewayChat.objects.get(chat=chat)
        if row.metadata:
            before = json.dumps(row.metadata, ensure_ascii=False)
            kept_texts.keep_chat_text(
                KeptText.Kind.METADATA, before, chat=chat, actor=actor, now=now
            )
        row.metadata = {**metadata}
        row.save(update_fields=["metadata"])
    chat.gateway = row
    return chat


@transaction.atomic
def delete_conversation(chat: Chat, *, actor: str, now: datetime) -> None:
    """Make a conversation unavailable by its id. Its messages stay in the chat of the owner."""
    if GatewayChat.objects.filter(chat=chat, removed_at=None).update(removed_at=now):
        event = "gateway.conversation_deleted"
        ledger.record_event(event, actor=actor, now=now, chat_id=chat.pk, data={})


def load_conversation_end(
    chat: Chat, *, keyed: IdempotentRequest, now: datetime
) -> tuple[BranchEnd, tuple[Item, ...]]:
    """Return the end of a conversation, from its latest user message, and its items.

    A repeated request gets the end that its first request continued. Raises `IdempotencyKeyReused`.
    """
    known = keyed.find(now=now) or {}
    if "first" in known:
        turn = Turn.objects.select_related("branch__parent").get(pk=uuid.UUID(known["turn"]))
        branch, first, last = turn.branch, known["first"], known["last"]
    else:
        branch = get_active_branch(chat)
        last = branch.last_seq
        first = find_latest_user_seq(branch)
    branch.chat = chat
    path = history.select_path_messages(branch, after=first - 1, before=last + 1)
    rows = list(path.select_related("turn").order_by("seq"))
    items = [build_end_item(row) for row in rows]
    if rows and known.get("open"):
        # The first request completed this reply.
        whole = Item(items[-1].role, select_client_parts(rows[-1].parts))
        items[-1] = remove_later_results(whole)
    is_open = bool(items) and has_open_calls(items[-1])
    return BranchEnd(branch, first, last, is_open), tuple(items)


def build_end_item(row: Message) -> Item:
    """Return the item of a stored message, without open calls that get no results.

    The client did not receive the calls of a stopped or failed reply, nor those of a reply on the
    chat page that reached its output limit. Prompts leave out an excluded reply.
    """
    item = Item(history.get_engine_role(row), select_client_parts(row.parts))
    is_of_page = row.turn is not None and row.turn.client is None
    if item.results or not (row.excluded or row.finish in UNSEEN or is_of_page):
        return item
    kept = tuple(part for part in item.parts if not isinstance(part, ToolCallPart))
    return Item(item.role, kept)


def has_open_calls(item: Item) -> bool:
    """Return True if an item has calls, and no results yet."""
    return not item.results and any(isinstance(part, ToolCallPart) for part in item.parts)


def find_latest_user_seq(branch: Branch) -> int:
    """Return the seq of the latest user message that a reply can answer; 1 if there is none."""
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1)
    asked = rows.filter(role=Message.Role.USER, erased_at=None, excluded=False)
    return asked.order_by("-seq").values_list("seq", flat=True).first() or 1


def find_added_items(keyed: IdempotentRequest, *, now: datetime) -> list[dict[str, Any]] | None:
    """Return the items that an earlier request with the same idempotency key added, or None.

    Raises `IdempotencyKeyReused`.
    """
    known = keyed.find(now=now)
    return None if known is None else build_added_items(known["messages"])


def build_added_items(ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the items of messages, without those of erased ones."""
    rows = Message.objects.filter(pk__in=ids, erased_at=None).order_by("accepted")
    return [item for row in rows for item in build_message_items(row)]


def add_items(
    new: NewItems, *, end: BranchEnd, counter: TokenCounter, now: datetime
) -> list[dict[str, Any]]:
    """Add items to the end of a conversation, and return them as stored.

    The items of the request begin with those of `end`. Raises `IdempotencyKeyReused`, `ChatFull`,
    and the refusals of `place_at_end` and `store_items`.
    """
    with transaction.atomic():
        chat = lock_chat_for_writing(end.branch.chat_id)
        PERSON_LOCK.hold(owner=new.user.pk)
        known = new.keyed.find(now=now)
        if known is None:
            place = place_at_end(chat, end, user=new.user, now=now)
            choice = new.choice or choose_item_policy(chat)
            ids = store_new_items(chat, place, new, choice=choice, counter=counter, now=now)
            known = {"chat": str(chat.pk), "messages": [str(pk) for pk in ids]}
            new.keyed.remember(result=known, now=now)
    return build_added_items(known["messages"])


def store_new_items(
    chat: Chat,
    place: Placement,
    new: NewItems,
    *,
    choice: ChosenModel,
    counter: TokenCounter,
    now: datetime,
) -> list[uuid.UUID]:
    """Store items in a locked chat, and record them in the ledger.

    Returns the ids of the new and completed messages.
    """
    branch, shared = place.branch, place.shared
    branch.chat = chat
    items = new.conversation.items
    check_chat_room(branch, number=len(items) - shared)
    rows, completed = store_items(
        items[shared:],
        source=ItemSource(new.user, new.conversation, choice, "items"),
        branch=branch,
        completed=items[shared - 1] if place.completes else None,
        counter=counter,
        now=now,
    )
    chat.updated_at = now
    if not chat.title:
        chat.title = derive_request_title(new.conversation)
    prepared.save_row_fields(chat, "updated_at", "accepted_count", "title")
    stored: list[Message | Sealed] = [*completed, *rows]
    ledger.record_event(
        "gateway.items_added",
        actor=f"user:{new.user.pk}",
        now=now,
        chat_id=chat.pk,
        data={"messages": len(rows), **build_stored_data(stored)},
    )
    return [row.pk for row in stored]


def select_item_rows(chat: Chat) -> QuerySet[Message]:
    """Return the messages of a conversation that are listed as items."""
    branch = get_active_branch(chat)
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1)
    return rows.filter(erased_at=None, excluded=False)


def list_items(chat: Chat, *, asked: ItemQuery) -> dict[str, Any]:
    """Return a page of the items of a conversation, in OpenAI's list format.

    Raises `InvalidRequest` if the list has no item with the id in `after`.
    """
    return build_item_page(select_item_rows(chat), asked=asked)


def find_item(chat: Chat, item_id: str) -> tuple[Message, dict[str, Any]]:
    """Return an item of a conversation and its message. Raises `ItemNotFound`."""
    try:
        row = find_item_message(item_id, among=select_item_rows(chat))
    except InvalidRequest:
        raise ItemNotFound(item_id[:80], param="item_id") from None
    wanted = normalise_item_id(item_id)
    item = next((one for one in build_message_items(row) if one["id"] == wanted), None)
    if item is None:
        raise ItemNotFound(item_id[:80], param="item_id")
    return row, item


def remove_item(chat: Chat, item_id: str, *, actor: str, now: datetime) -> None:
    """Exclude the message of an item from later prompts and lists. It stays in the chat.

    Raises `ItemNotFound`, and the refusals of `marks.exclude_message`.
    """
    row, _ = find_item(chat, item_id)
    marks.exclude_message(message=row, actor=actor, now=now)
