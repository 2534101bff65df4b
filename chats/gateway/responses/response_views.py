"""The Responses endpoints of the OpenAI-compatible API."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import IO, Any, cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils import timezone

from chats.gateway import body, choice, request_types
from chats.gateway.chat_completions import views
from chats.gateway.chat_completions.views import gateway
from chats.gateway.choice import NamedModel
from chats.gateway.errors import InvalidRequest
from chats.gateway.logprobs import load_logprobs
from chats.gateway.matching import identity
from chats.gateway.matching.conversation import (
    Conversation,
    Item,
    check_conversation,
    split_prefill,
)
from chats.gateway.matching.identity import Identity
from chats.gateway.request_types import BranchEnd
from chats.gateway.responses import (
    fields,
    items,
    previous_response,
    stored_conversations,
    stored_responses,
)
from chats.gateway.responses.response_form import (
    ResponseForm,
    build_request_echo,
    format_response_usage,
)
from chats.gateway.responses.stored_responses import ItemQuery
from chats.models import ApiKey, PassedOn
from chats.record.idempotency import IdempotentRequest

PREVIOUS = "previous_response_id"
CONVERSATION = "conversation"


@gateway("POST")
def responses(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """Reply to the input items, complete or as a stream.

    Raises the errors of parsing the body, choosing the model, finding the previous response, and
    of `append_request.place_request`.
    """
    sent = body.parse_gateway_body(cast(IO[bytes], request))
    find_hosted = partial(choice.find_hosted_types, user=key.owner)
    asked = fields.validate_response_fields(sent, find_hosted=find_hosted)
    user = key.owner
    wanted = choice.resolve_model_name(asked.model, user=user)
    who = identity.parse_identity(request.headers, sent)
    before = previous_response.find_previous_response(
        sent.get(PREVIOUS), user=user, wanted=wanted, identity=who
    )
    keyed = views.build_idempotent_request(request, sent, user=user)
    end, earlier = load_named_conversation(sent, who=who, wanted=wanted, keyed=keyed, user=user)
    known = stored_responses.load_referenced_items(
        sent.get("input"), user=user, wanted=wanted, identity=who
    )
    if is_to_compact(sent):
        refuse_conversation(sent)
        said = build_input_conversation(
            remove_compaction_trigger(sent),
            earlier=before.items if before else (),
            known=known,
            user=user,
        )
        return build_compacted_response(said, asked=asked, sent=sent, user=user)
    earlier = before.items if before else earlier
    said = build_input_conversation(sent, earlier=earlier, known=known, user=user)
    given = sent.get("input")
    last = given[-1] if isinstance(given, list) and given else None
    said = check_conversation(
        split_prefill(said, last=last),
        field="input",
        has_stored_start=end is not None and bool(earlier),
    )
    if before is not None:
        who = Identity(PREVIOUS, sent[PREVIOUS], who.end_user)
    read_request = request_types.Sent(
        user=user,
        api_key=key,
        wanted=wanted,
        conversation=said,
        identity=who,
        client=views.build_client_fields(said, asked=asked),
        keyed=keyed,
        earlier=before.branch if before else None,
        end=end,
        field="input",
    )

    def form(place: views.ReplyPlace) -> ResponseForm:
        return ResponseForm(
            id=previous_response.format_response_id(
                place.id, stored=place.is_kept and sent.get("store") is not False
            ),
            created=place.created,
            echo=build_request_echo(sent, tools=asked.tools),
            forms=asked.forms,
        )

    return views.reply_to_request(
        request, sent=read_request, asked=asked, form=form, kind=PassedOn.Kind.RESPONSES
    )


@gateway("POST")
def compact_input(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """Compact the input into one item. Nothing is stored, and no model is called.

    Raises the errors of parsing the body, choosing the model and finding the previous response.
    """
    sent = body.parse_gateway_body(cast(IO[bytes], request))
    asked = fields.validate_response_fields(sent)
    refuse_conversation(sent)
    wanted = choice.resolve_model_name(asked.model, user=key.owner)
    who = identity.parse_identity(request.headers, sent)
    before = previous_response.find_previous_response(
        sent.get(PREVIOUS), user=key.owner, wanted=wanted, identity=who
    )
    known = stored_responses.load_referenced_items(
        sent.get("input"), user=key.owner, wanted=wanted, identity=who
    )
    conversation = build_input_conversation(
        remove_compaction_trigger(sent),
        earlier=before.items if before else (),
        known=known,
        user=key.owner,
    )
    return JsonResponse(
        {
            "id": generate_response_id(),
            "object": "response.compaction",
            "created_at": int(timezone.now().timestamp()),
            "output": [build_compaction_item(conversation, user=key.owner)],
            "usage": format_response_usage({}),
        },
        headers={"Cache-Control": "no-store"},
    )


@gateway("GET", "DELETE")
def response_detail(request: HttpRequest, key: ApiKey, response_id: str) -> HttpResponseBase:
    """Retrieve or delete a stored response. Raises `ResponseNotFound`."""
    turn = stored_responses.find_response_turn(response_id, user=key.owner)
    told = {"id": response_id, "object": "response", "deleted": True}
    if request.method == "DELETE":
        actor = f"user:{key.owner_id}"
        stored_responses.delete_response(turn, actor=actor, now=timezone.now())
        return JsonResponse(told, headers={"Cache-Control": "no-store"})
    stored = load_logprobs(turn.pk)
    told = stored_responses.build_stored_response(turn, found=stored.found)
    return JsonResponse(told, headers={"Cache-Control": "no-store", **stored.headers})


@gateway("GET")
def input_item_list(request: HttpRequest, key: ApiKey, response_id: str) -> HttpResponseBase:
    """List the input items of a response. Raises `ResponseNotFound` and `InvalidRequest`."""
    turn = stored_responses.find_response_turn(response_id, user=key.owner)
    asked = ItemQuery.read(request.GET.dict())
    found = stored_responses.list_input_items(turn, asked=asked)
    return JsonResponse(found, headers={"Cache-Control": "no-store"})


def load_named_conversation(
    sent: Mapping[str, Any],
    *,
    who: Identity,
    wanted: NamedModel,
    keyed: IdempotentRequest,
    user: User,
) -> tuple[BranchEnd | None, tuple[Item, ...]]:
    """Return the end of the conversation that a request continues by id, and its items.

    Returns None and no items if the request has no `conversation`. Raises `InvalidRequest`,
    `ConversationNotFound` and `IdempotencyKeyReused`.
    """
    named = sent.get(CONVERSATION)
    if named is None:
        return None, ()
    if sent.get(PREVIOUS) is not None or wanted.chat is not None:
        problem = "conversation cannot be combined with previous_response_id, or with a chat as "
        problem += "the model."
        raise InvalidRequest(problem, param=CONVERSATION)
    chat = stored_conversations.find_conversation(named, user=user)
    stored_conversations.check_end_user(chat, end_user=who.end_user)
    return stored_conversations.load_conversation_end(chat, keyed=keyed, now=timezone.now())


def refuse_conversation(sent: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` for compacting a conversation, because its policy controls that."""
    if sent.get(CONVERSATION) is not None:
        problem = "A conversation is summarised by its policy. Send the request without "
        problem += "conversation, or without a compaction."
        raise InvalidRequest(problem, param=CONVERSATION, code="unsupported_parameter")


def build_input_conversation(
    sent: Mapping[str, Any], *, earlier: tuple[Item, ...], known: items.Known, user: User
) -> Conversation:
    """Return the conversation of a request, beginning with its instructions.

    Raises `InvalidRequest`, `ItemNotFound` and `ForeignCompaction`.
    """
    head = fields.parse_instructions(sent)
    conversation = items.parse_input_items(
        sent.get("input"),
        earlier=earlier,
        known=known,
        unseal=partial(previous_response.decrypt_conversation, user=user),
        is_optional=bool(head) or sent.get(CONVERSATION) is not None,
    )
    return replace(conversation, system=tuple(dict.fromkeys((*head, *conversation.system))))


def is_to_compact(sent: Mapping[str, Any]) -> bool:
    """Return True if the last item requests a compaction."""
    value = sent.get("input")
    last = value[-1] if isinstance(value, list) and value else None
    return isinstance(last, dict) and last.get("type") == items.TRIGGER


def remove_compaction_trigger(sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the input to compact, without the trigger and without instructions.

    Clients send the instructions again with the next request.
    """
    value = sent.get("input")
    kept = value[:-1] if isinstance(value, list) and is_to_compact(sent) else value
    return {"input": kept}


def build_compacted_response(
    said: Conversation, *, asked: body.RequestFields, sent: Mapping[str, Any], user: User
) -> HttpResponseBase:
    """Return a response that has only a compaction item, as a stream if requested."""
    form = ResponseForm(
        id=generate_response_id(),
        created=int(timezone.now().timestamp()),
        echo=build_request_echo(sent, tools=asked.tools),
    )
    text = form.compacted(build_compaction_item(said, user=user), is_stream=asked.stream)
    kind = "text/event-stream; charset=utf-8" if asked.stream else "application/json"
    return HttpResponse(text, content_type=kind, headers={"Cache-Control": "no-store"})


def generate_response_id() -> str:
    """Return a response id that cannot be used as `previous_response_id`."""
    return previous_response.format_response_id(uuid.uuid4(), stored=False)


def build_compaction_item(said: Conversation, *, user: User) -> dict[str, Any]:
    return {
        "id": f"cmp_{uuid.uuid4().hex}",
        "type": "compaction",
        "encrypted_content": previous_response.encrypt_conversation(said, user=user),
    }
