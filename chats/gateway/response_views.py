"""The Responses endpoints of the OpenAI-compatible API."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import IO, Any, cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils import timezone

from chats.gateway import body, choice, earlier, identity, items, placing, stored_responses, views
from chats.gateway import responses as fields
from chats.gateway.conversation import Conversation, checked
from chats.gateway.earlier import Earlier
from chats.gateway.identity import Identity
from chats.gateway.response_form import ResponseForm, echo_of, usage
from chats.gateway.stored_responses import ItemQuery
from chats.gateway.views import gateway
from chats.models import ApiKey, PassedOn

PREVIOUS = "previous_response_id"


@gateway("POST")
def responses(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """Reply to the input items, complete or as a stream.

    Raises what parsing the body, choosing the model, finding the previous response and
    `placing.place` raise.
    """
    sent = body.read(cast(IO[bytes], request))
    asked = fields.sorted_out(sent)
    user = key.owner
    wanted = choice.wanted(asked.model, user=user)
    who = identity.identity_of(request.headers, sent)
    before = earlier.find(sent.get(PREVIOUS), user=user, wanted=wanted, identity=who)
    known = stored_responses.referenced(sent.get("input"), user=user, wanted=wanted, identity=who)
    if is_to_compact(sent):
        said = read(without_trigger(sent), before=before, known=known, user=user)
        return compacted(said, asked=asked, sent=sent, user=user)
    said = checked(read(sent, before=before, known=known, user=user), field="input")
    if before is not None:
        who = Identity(PREVIOUS, sent[PREVIOUS], who.end_user)
    read_request = placing.Sent(
        user=user,
        api_key=key,
        wanted=wanted,
        conversation=said,
        identity=who,
        client=views.client_of(said, asked=asked),
        keyed=views.keyed_request(request, sent, user=user),
        earlier=before.branch if before else None,
        field="input",
    )

    def form(place: views.ReplyPlace) -> ResponseForm:
        return ResponseForm(
            id=earlier.id_of(place.id, stored=place.is_kept and sent.get("store") is not False),
            created=place.created,
            echo=echo_of(sent, tools=asked.tools),
            forms=asked.forms,
        )

    return views.replied(
        request, sent=read_request, asked=asked, form=form, kind=PassedOn.Kind.RESPONSES
    )


@gateway("POST")
def compact(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """Compact the input into one item. Nothing is stored, and no model is called.

    Raises what parsing the body, choosing the model and finding the previous response raise.
    """
    sent = body.read(cast(IO[bytes], request))
    asked = fields.sorted_out(sent)
    wanted = choice.wanted(asked.model, user=key.owner)
    who = identity.identity_of(request.headers, sent)
    before = earlier.find(sent.get(PREVIOUS), user=key.owner, wanted=wanted, identity=who)
    known = stored_responses.referenced(
        sent.get("input"), user=key.owner, wanted=wanted, identity=who
    )
    said = read(without_trigger(sent), before=before, known=known, user=key.owner)
    return JsonResponse(
        {
            "id": new_id(),
            "object": "response.compaction",
            "created_at": int(timezone.now().timestamp()),
            "output": [compaction(said, user=key.owner)],
            "usage": usage({}),
        },
        headers={"Cache-Control": "no-store"},
    )


@gateway("GET", "DELETE")
def response(request: HttpRequest, key: ApiKey, response_id: str) -> HttpResponseBase:
    """Retrieve or delete a stored response. Raises `ResponseNotFound`."""
    turn = stored_responses.turn_for(response_id, user=key.owner)
    told = {"id": response_id, "object": "response", "deleted": True}
    if request.method == "DELETE":
        actor = f"user:{key.owner_id}"
        stored_responses.delete(turn, actor=actor, now=timezone.now())
    else:
        told = stored_responses.response_json(turn)
    return JsonResponse(told, headers={"Cache-Control": "no-store"})


@gateway("GET")
def input_items(request: HttpRequest, key: ApiKey, response_id: str) -> HttpResponseBase:
    """List the input items of a response. Raises `ResponseNotFound` and `InvalidRequest`."""
    turn = stored_responses.turn_for(response_id, user=key.owner)
    asked = ItemQuery.read(request.GET.dict())
    found = stored_responses.input_items(turn, asked=asked)
    return JsonResponse(found, headers={"Cache-Control": "no-store"})


def read(
    sent: Mapping[str, Any], *, before: Earlier | None, known: items.Known, user: User
) -> Conversation:
    """Return the conversation of a request, with its instructions first.

    Raises `InvalidRequest`, `ItemNotFound` and `ForeignCompaction`.
    """
    head = fields.instructions(sent)
    said = items.read(
        sent.get("input"),
        earlier=before.items if before else (),
        known=known,
        unseal=partial(earlier.unseal, user=user),
    )
    return replace(said, system=tuple(dict.fromkeys((*head, *said.system))))


def is_to_compact(sent: Mapping[str, Any]) -> bool:
    """Return True if the last item requests a compaction."""
    said = sent.get("input")
    last = said[-1] if isinstance(said, list) and said else None
    return isinstance(last, dict) and last.get("type") == items.TRIGGER


def without_trigger(sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the input to compact. Clients send the instructions again with the next request."""
    said = sent.get("input")
    kept = said[:-1] if isinstance(said, list) and is_to_compact(sent) else said
    return {"input": kept}


def compacted(
    said: Conversation, *, asked: body.RequestFields, sent: Mapping[str, Any], user: User
) -> HttpResponseBase:
    """Return a response with only a compaction item, as a stream if requested."""
    form = ResponseForm(
        id=new_id(),
        created=int(timezone.now().timestamp()),
        echo=echo_of(sent, tools=asked.tools),
    )
    text = form.compacted(compaction(said, user=user), is_stream=asked.stream)
    kind = "text/event-stream; charset=utf-8" if asked.stream else "application/json"
    return HttpResponse(text, content_type=kind, headers={"Cache-Control": "no-store"})


def new_id() -> str:
    """Return a response id that cannot be used as `previous_response_id`."""
    return earlier.id_of(uuid.uuid4(), stored=False)


def compaction(said: Conversation, *, user: User) -> dict[str, Any]:
    """Return the compaction item of a conversation."""
    return {
        "id": f"cmp_{uuid.uuid4().hex}",
        "type": "compaction",
        "encrypted_content": earlier.seal(said, user=user),
    }
