"""The Responses endpoints of the OpenAI-compatible API."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import IO, Any, cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils import timezone

from chats.gateway import append_request, body, choice
from chats.gateway.chat_completions import views
from chats.gateway.chat_completions.views import gateway
from chats.gateway.matching import identity
from chats.gateway.matching.conversation import (
    Conversation,
    check_conversation,
    split_prefill,
)
from chats.gateway.matching.identity import Identity
from chats.gateway.responses import fields, items, previous_response, stored_responses
from chats.gateway.responses.previous_response import Earlier
from chats.gateway.responses.response_form import (
    ResponseForm,
    build_request_echo,
    format_response_usage,
)
from chats.gateway.responses.stored_responses import ItemQuery
from chats.models import ApiKey, PassedOn

PREVIOUS = "previous_response_id"


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
    known = stored_responses.load_referenced_items(
        sent.get("input"), user=user, wanted=wanted, identity=who
    )
    if is_to_compact(sent):
        said = build_input_conversation(
            remove_compaction_trigger(sent), before=before, known=known, user=user
        )
        return build_compacted_response(said, asked=asked, sent=sent, user=user)
    said = build_input_conversation(sent, before=before, known=known, user=user)
    given = sent.get("input")
    last = given[-1] if isinstance(given, list) and given else None
    said = check_conversation(split_prefill(said, last=last), field="input")
    if before is not None:
        who = Identity(PREVIOUS, sent[PREVIOUS], who.end_user)
    read_request = append_request.Sent(
        user=user,
        api_key=key,
        wanted=wanted,
        conversation=said,
        identity=who,
        client=views.build_client_fields(said, asked=asked),
        keyed=views.build_idempotent_request(request, sent, user=user),
        earlier=before.branch if before else None,
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
    wanted = choice.resolve_model_name(asked.model, user=key.owner)
    who = identity.parse_identity(request.headers, sent)
    before = previous_response.find_previous_response(
        sent.get(PREVIOUS), user=key.owner, wanted=wanted, identity=who
    )
    known = stored_responses.load_referenced_items(
        sent.get("input"), user=key.owner, wanted=wanted, identity=who
    )
    conversation = build_input_conversation(
        remove_compaction_trigger(sent), before=before, known=known, user=key.owner
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
    else:
        told = stored_responses.build_stored_response(turn)
    return JsonResponse(told, headers={"Cache-Control": "no-store"})


@gateway("GET")
def input_item_list(request: HttpRequest, key: ApiKey, response_id: str) -> HttpResponseBase:
    """List the input items of a response. Raises `ResponseNotFound` and `InvalidRequest`."""
    turn = stored_responses.find_response_turn(response_id, user=key.owner)
    asked = ItemQuery.read(request.GET.dict())
    found = stored_responses.list_input_items(turn, asked=asked)
    return JsonResponse(found, headers={"Cache-Control": "no-store"})


def build_input_conversation(
    sent: Mapping[str, Any], *, before: Earlier | None, known: items.Known, user: User
) -> Conversation:
    """Return the conversation of a request, with its instructions first.

    Raises `InvalidRequest`, `ItemNotFound` and `ForeignCompaction`.
    """
    head = fields.parse_instructions(sent)
    conversation = items.parse_input_items(
        sent.get("input"),
        earlier=before.items if before else (),
        known=known,
        unseal=partial(previous_response.decrypt_conversation, user=user),
        is_optional=bool(head),
    )
    return replace(conversation, system=tuple(dict.fromkeys((*head, *conversation.system))))


def is_to_compact(sent: Mapping[str, Any]) -> bool:
    """Return True if the last item requests a compaction."""
    value = sent.get("input")
    last = value[-1] if isinstance(value, list) and value else None
    return isinstance(last, dict) and last.get("type") == items.TRIGGER


def remove_compaction_trigger(sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the input to compact. Clients send the instructions again with the next request."""
    value = sent.get("input")
    kept = value[:-1] if isinstance(value, list) and is_to_compact(sent) else value
    return {"input": kept}


def build_compacted_response(
    said: Conversation, *, asked: body.RequestFields, sent: Mapping[str, Any], user: User
) -> HttpResponseBase:
    """Return a response with only a compaction item, as a stream if requested."""
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
