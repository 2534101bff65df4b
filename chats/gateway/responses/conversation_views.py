"""The Conversations endpoints of the OpenAI-compatible API."""

from collections.abc import Mapping
from functools import partial
from typing import IO, Any, cast

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone

from chats.gateway import body, request_files
from chats.gateway.chat_completions import views
from chats.gateway.chat_completions.views import gateway
from chats.gateway.errors import InvalidRequest
from chats.gateway.matching.conversation import Conversation, Item
from chats.gateway.responses import items, previous_response, stored_conversations
from chats.gateway.responses.stored_conversations import NewItems
from chats.gateway.responses.stored_responses import ItemQuery
from chats.models import ApiKey, Chat
from chats.prompt.tokenizer import O200kCounter
from chats.record.idempotency import IdempotentRequest


@gateway("POST")
def conversations(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """Create a conversation, with up to 20 items.

    Raises `InvalidRequest`, `TooManyChats` and the refusals of `add_items`.
    """
    sent = parse_body(request, known={"items", "metadata"})
    metadata = stored_conversations.parse_metadata(sent.get("metadata"))
    new = build_new_items(request, sent, key=key, chat=Chat(owner_id=key.owner_id))
    chat = stored_conversations.create_conversation(
        new, metadata=metadata, counter=O200kCounter(), now=timezone.now()
    )
    return build_json_response(stored_conversations.build_conversation(chat))


@gateway("GET", "POST", "DELETE")
def conversation_detail(
    request: HttpRequest, key: ApiKey, conversation_id: str
) -> HttpResponseBase:
    """Retrieve a conversation, replace its metadata, or delete it.

    Raises `ConversationNotFound` and `InvalidRequest`.
    """
    chat = stored_conversations.find_conversation(conversation_id, user=key.owner)
    actor, now = f"user:{key.owner_id}", timezone.now()
    if request.method == "DELETE":
        stored_conversations.delete_conversation(chat, actor=actor, now=now)
        fields = {"id": conversation_id, "object": "conversation.deleted", "deleted": True}
        return build_json_response(fields)
    if request.method == "POST":
        sent = parse_body(request, known={"metadata"})
        if "metadata" not in sent:
            raise InvalidRequest("metadata is missing.", param="metadata", code="missing_field")
        metadata = stored_conversations.parse_metadata(sent["metadata"])
        chat = stored_conversations.change_metadata(chat, metadata, actor=actor, now=now)
    return build_json_response(stored_conversations.build_conversation(chat))


@gateway("GET", "POST")
def item_list(request: HttpRequest, key: ApiKey, conversation_id: str) -> HttpResponseBase:
    """List the items of a conversation, or add up to 20.

    Raises `ConversationNotFound`, `InvalidRequest` and the refusals of `add_items`.
    """
    chat = stored_conversations.find_conversation(conversation_id, user=key.owner)
    if request.method == "GET":
        asked = ItemQuery.read(request.GET.dict())
        return build_json_response(stored_conversations.list_items(chat, asked=asked))
    sent = parse_body(request, known={"items"})
    if not sent.get("items"):
        problem = "items must be a list with at least one item."
        raise InvalidRequest(problem, param="items", code="missing_field")
    now = timezone.now()
    keyed = build_keyed(request, sent, key=key)
    # A repeated result has no open call any more, so it would not be accepted again.
    made = stored_conversations.find_added_items(keyed, now=now)
    if made is None:
        end, earlier = stored_conversations.load_conversation_end(chat, keyed=keyed, now=now)
        new = build_new_items(request, sent, key=key, chat=chat, earlier=earlier)
        made = stored_conversations.add_items(new, end=end, counter=O200kCounter(), now=now)
    return build_json_response(
        {
            "object": "list",
            "data": made,
            "first_id": made[0]["id"] if made else None,
            "last_id": made[-1]["id"] if made else None,
            "has_more": False,
        }
    )


@gateway("GET", "DELETE")
def item_detail(
    request: HttpRequest, key: ApiKey, conversation_id: str, item_id: str
) -> HttpResponseBase:
    """Retrieve an item, or exclude its message from later prompts.

    Raises `ConversationNotFound`, `ItemNotFound`, and the refusals of `marks.exclude_message`.
    """
    chat = stored_conversations.find_conversation(conversation_id, user=key.owner)
    if request.method == "DELETE":
        actor = f"user:{key.owner_id}"
        stored_conversations.remove_item(chat, item_id, actor=actor, now=timezone.now())
        return build_json_response(stored_conversations.build_conversation(chat))
    return build_json_response(stored_conversations.find_item(chat, item_id)[1])


def build_json_response(fields: Mapping[str, Any]) -> HttpResponseBase:
    return JsonResponse(fields, headers={"Cache-Control": "no-store"})


def parse_body(request: HttpRequest, *, known: set[str]) -> dict[str, Any]:
    """Return the body of a request, or an empty object if it has none.

    Raises `InvalidRequest` for an unknown field, and the refusals of `body.parse_gateway_body`.
    """
    if not request.headers.get("Content-Length", "0").strip("0"):
        return {}
    sent = body.parse_gateway_body(cast(IO[bytes], request))
    if unknown := sorted(sent.keys() - known):
        problem = f"{unknown[0][:80]} is not a field of this request."
        raise InvalidRequest(problem, param=unknown[0][:80], code="unsupported_parameter")
    return sent


def build_keyed(request: HttpRequest, sent: Mapping[str, Any], *, key: ApiKey) -> IdempotentRequest:
    """Return the idempotency record of a request, scoped to its URL."""
    return views.build_idempotent_request(
        request, {"path": request.path, "sent": sent}, user=key.owner
    )


def build_new_items(
    request: HttpRequest,
    sent: Mapping[str, Any],
    *,
    key: ApiKey,
    chat: Chat,
    earlier: tuple[Item, ...] = (),
) -> NewItems:
    """Parse the items of a request, and store their files.

    `earlier`: the end of the conversation, which may have open calls. Raises `InvalidRequest`,
    `ItemNotFound`, `ForeignCompaction`, and the refusals of `choose_item_policy` and
    `request_files.store_given_files`.
    """
    given = sent.get("items")
    if given is None:
        said = Conversation((), earlier)
    else:
        if not isinstance(given, list) or len(given) > stored_conversations.MOST_ITEMS:
            problem = f"items must be a list of at most {stored_conversations.MOST_ITEMS} items."
            raise InvalidRequest(problem, param="items")
        unseal = partial(previous_response.decrypt_conversation, user=key.owner)
        said = items.parse_input_items(
            given,
            earlier=earlier,
            unseal=unseal,
            is_optional=True,
            leaves_out=False,
            field="items",
        )
    if said.system:
        problem = "Conversations do not store system texts. Send them as instructions with each "
        problem += "request."
        raise InvalidRequest(problem, param="items", code="unsupported_content")
    chat.policy = chat.policy or key.policy
    chosen = stored_conversations.choose_item_policy(chat) if said.items else None
    if chosen is not None:
        with request_files.blame_field("items"):
            said = request_files.store_given_files(
                said, user=key.owner, choice=chosen, now=timezone.now()
            )
    return NewItems(key.owner, said, key.policy, build_keyed(request, sent, key=key), chosen)
