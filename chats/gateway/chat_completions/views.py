"""The models and chat completions endpoints of the OpenAI-compatible API."""

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial, wraps
from typing import IO, Any, NamedTuple, cast

from django.contrib.auth.models import AbstractBaseUser
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from chats.gateway import (
    body,
    choice,
    held_response,
    merge_choices,
    parameters,
    place_choices,
    relay,
    request_files,
    request_types,
    wire,
)
from chats.gateway.chat_completions import dry_run
from chats.gateway.errors import NoKey, UnknownAddress, WrongMethod
from chats.gateway.matching import conversation, identity
from chats.gateway.matching.conversation import Conversation
from chats.gateway.passthrough import forward, rules
from chats.ground import databases, rates
from chats.ground.refusals import Refusal
from chats.models import ApiKey, PassedOn
from chats.people import keys, signin
from chats.prompt.model_choice import ChosenModel
from chats.prompt.tokenizer import O200kCounter
from chats.record.idempotency import GATEWAY, IdempotentRequest, InvalidIdempotencyKey
from chats.streams.follow import build_turn_row

SCOPE = "gateway"
# Maximum length of an unknown address in its error message.
LONGEST_PATH = 200
View = Callable[..., HttpResponseBase]


def gateway(*methods: str) -> Callable[[View], View]:
    """Decorator for views: allow the given methods, and require a key with the gateway scope.

    Limits the requests of each key. Refusals and temporary database errors become OpenAI errors.
    """

    def make(view: View) -> View:
        @csrf_exempt  # No session here: only a key gives access.
        @wraps(view)
        def guarded(request: HttpRequest, **named: Any) -> HttpResponseBase:
            try:
                key = authenticate_gateway_key(request)
                if request.method not in methods:
                    raise WrongMethod(allowed=", ".join(methods))
                rates.GATEWAY.take(f"key:{key.pk}", now=time.monotonic())
                return view(request, key, **named)
            except Refusal as refusal:
                return build_refusal_response(refusal)
            except (OperationalError, InterfaceError) as error:
                if not databases.is_retryable_error(error):
                    raise
                return build_refusal_response(databases.build_database_refusal(error))

        return guarded

    return make


def authenticate_gateway_key(request: HttpRequest) -> ApiKey:
    """Return the API key of a request if it is valid and has the gateway scope.

    Raises `KeyInAddress`, `NoKey`, `InvalidKey`, `LoginThrottled` and `InsufficientScope`.
    """
    keys.refuse_in_address(request.META.get("QUERY_STRING", ""))
    authorization = request.headers.get("Authorization")
    if authorization is None:
        raise NoKey
    address = signin.resolve_client_address(
        remote_addr=request.META.get("REMOTE_ADDR", ""),
        forwarded_for=request.headers.get("X-Forwarded-For", ""),
    )
    key = keys.get_key_from_header(authorization=authorization, address=address, now=timezone.now())
    keys.require_scope(key=key, scope=SCOPE)
    return key


def build_refusal_response(refusal: Refusal) -> HttpResponseBase:
    """Return a refusal in OpenAI's error format, with its HTTP status."""
    headers = wire.build_error_headers(refusal)
    answer = JsonResponse(wire.format_openai_error(refusal), status=refusal.status, headers=headers)
    if refusal.status == 401:
        answer["WWW-Authenticate"] = 'Bearer realm="Palimpsest"'
    if isinstance(refusal, WrongMethod):
        answer["Allow"] = refusal.details["allowed"]
    return answer


@gateway("GET")
def model_list(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """List the models and policies that the key's owner may use."""
    del request
    found = [
        format_model_entry(entry)
        for entry in choice.list_gateway_models(user=key.owner, policy=key.policy)
    ]
    return JsonResponse({"object": "list", "data": found})


@gateway("GET")
def model_detail(request: HttpRequest, key: ApiKey, name: str) -> HttpResponseBase:
    """Retrieve a model by any name that requests may use.

    Raises `ModelNotFound` and `TeamInChat`.
    """
    del request
    return JsonResponse(
        format_model_entry(choice.find_model_entry(name, user=key.owner, policy=key.policy))
    )


@csrf_exempt  # changes nothing
def unknown_address(request: HttpRequest) -> HttpResponseBase:
    """Return an error that lists the available URLs."""
    return build_refusal_response(UnknownAddress(path=request.path[:LONGEST_PATH]))


def format_model_entry(entry: choice.ListedModel) -> dict[str, Any]:
    """Return a model as a list entry, with its maximum prompt tokens if known."""
    return {
        "id": entry.name,
        "object": "model",
        "created": 0,
        "owned_by": entry.owner,
        "context_window": entry.window,
    }


@gateway("POST")
def chat_completions(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """Reply to a conversation, in one response or as a stream.

    Raises the errors of parsing the body, choosing the model and `append_request.place_request`.
    """
    fields = body.parse_gateway_body(cast(IO[bytes], request))
    user = key.owner
    find_hosted = partial(choice.find_hosted_types, user=user)
    asked = body.validate_chat_fields(fields, find_hosted=find_hosted)
    said = conversation.parse_messages(fields.get("messages"))
    sent = request_types.Sent(
        user=user,
        api_key=key,
        wanted=choice.resolve_model_name(asked.model, user=user),
        conversation=said,
        identity=identity.parse_identity(request.headers, fields),
        client=build_client_fields(said, asked=asked),
        keyed=build_idempotent_request(request, fields, user=user),
    )

    def form(place: ReplyPlace) -> wire.Form:
        return wire.Chunks(
            id=wire.format_completion_id(place.id),
            model=asked.model,
            created=place.created,
            include_usage=asked.include_usage,
            forms=asked.forms,
        )

    return reply_to_request(request, sent=sent, asked=asked, form=form, kind=PassedOn.Kind.CHAT)


def build_client_fields(said: Conversation, *, asked: body.RequestFields) -> dict[str, Any]:
    """Return the request fields to store with the turn: all except the messages."""
    return {
        "system": list(said.system),
        "tools": list(asked.tools),
        "parameters": asked.parameters,
        "max_output": asked.max_output,
        **({"prefill": build_prefill(said)} if said.prefill else {}),
    }


def build_prefill(said: Conversation) -> dict[str, str]:
    """Return the prefill and its style in the format that `chats.prompt.client` expects."""
    return {"text": said.prefill, "style": "marked" if said.is_marked else "plain"}


class ReplyPlace(NamedTuple):
    """The id and the start time of a reply.

    `is_kept` is True if the id can be used as `previous_response_id`.
    """

    id: uuid.UUID
    created: int
    is_kept: bool


MakeForm = Callable[[ReplyPlace], wire.Form]


def reply_to_request(
    request: HttpRequest,
    *,
    sent: request_types.Sent,
    asked: body.RequestFields,
    form: MakeForm,
    kind: str,
) -> HttpResponseBase:
    """Reply to a parsed request: in a chat, by pass-through, or with a dry run.

    Raises the errors of `rules.route_request` and `append_request.place_request`.
    """
    way = rules.route_request(request.headers, sent=sent)
    choice.check_tools(way.choice.model, asked.tools)
    rules.check_system_only(sent, way=way)
    rules.check_prefill(sent, asked=asked, way=way)
    rules.check_logprobs(asked=asked, way=way)
    counter, now = O200kCounter(), timezone.now()
    is_dry_run = rules.is_dry_run(request.headers)
    sent = prepare_files(
        sent,
        choice=way.choice,
        counter=counter,
        stores=not (way.why or is_dry_run),
        now=now,
        is_passed=bool(way.why),
    )
    if is_dry_run:
        found = dry_run.build_dry_run_report(sent, asked=asked, way=way, counter=counter, now=now)
        return JsonResponse(found, headers={"Cache-Control": "no-store"})
    if way.why:
        place = ReplyPlace(uuid.uuid4(), int(now.timestamp()), is_kept=False)
        head = wire.Reply(
            wire.format_completion_id(place.id), asked.model, place.created, "", (), "", {}
        )
        return forward.build_passthrough_response(
            request,
            sent=sent,
            asked=asked,
            way=way,
            form=partial(form, place),
            head=head,
            kind=kind,
        )
    placed = place_choices.place_choices(sent, count=asked.count, counter=counter, now=now)
    turn = placed[0].turn
    place = ReplyPlace(turn.pk, int(turn.queued_at.timestamp()), is_kept=True)
    return build_reply_response(
        request, sent, placed=placed, asked=asked, form=partial(form, place)
    )


def prepare_files(
    sent: request_types.Sent,
    *,
    choice: ChosenModel,
    counter: O200kCounter,
    stores: bool,
    now: datetime,
    is_passed: bool = False,
) -> request_types.Sent:
    """Return the request with the text of its files.

    `stores`: True stores the files; False reads them without storing anything. `is_passed`: the
    request is passed through, so its images stay unchanged. Raises `FileNotFound` and the refusals
    of uploads and of attached files.
    """
    said, user = sent.conversation, sent.user
    with request_files.blame_field(sent.field):
        if stores:
            said = request_files.store_given_files(said, user=user, choice=choice, now=now)
        else:
            said = request_files.read_given_files(
                said, user=user, choice=choice, counter=counter, is_unchanged=is_passed
            )
    return replace(sent, conversation=said)


def build_idempotent_request(
    request: HttpRequest, sent: dict[str, Any], *, user: AbstractBaseUser
) -> IdempotentRequest:
    """Return the idempotency record of a request. Raises `InvalidIdempotencyKey`."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not key:
        raise InvalidIdempotencyKey
    canonical = json.dumps(sent, sort_keys=True)
    return IdempotentRequest(user=user, route=GATEWAY, key=key or "", body=canonical)


def build_reply_response(
    request: HttpRequest,
    sent: request_types.Sent,
    *,
    placed: Sequence[request_types.Placed],
    asked: body.RequestFields,
    form: Callable[[], wire.Form],
) -> HttpResponseBase:
    """Return the response with the replies, and headers that describe their placement."""
    first = placed[0]
    turn = first.turn
    chat_id = turn.branch.chat_id
    headers = {
        "X-Context-Report-Id": str(turn.pk),
        "X-Context-Report": f"/api/v1/chats/{chat_id}/turns/{turn.pk}",
        "X-Context-Chat": str(chat_id),
        "X-Context-Decision": first.decision,
        **({"X-Context-Choices": ",".join(str(e.turn.pk) for e in placed)} if placed[1:] else {}),
        **({"Idempotent-Replayed": "true"} if first.decision == "repeat" else {}),
        "X-Context-Identity": sent.identity.source or "messages",
        **parameters.build_dropped_headers(
            asked.dropped, tools=asked.left_out, items=sent.conversation.left_out
        ),
    }
    group = relay.ChoiceGroup()
    bodies = [
        partial(
            relay.stream_relayed_reply,
            relay.Asker(
                user=sent.user,
                key_id=sent.api_key.pk,
                turn_id=each.turn.pk,
                model=asked.model,
                form=form(),
                is_stream=asked.stream,
                row=None if each.decision == "repeat" else build_turn_row(each.turn, text=""),
                keyed=sent.keyed,
                repeat=first.repeat,
                prefill=sent.conversation.prefill,
                wants_logprobs=bool(asked.logprobs_field),
                group=group,
            ),
        )
        for each in placed
    ]
    merged = merge_choices.merge_bodies(bodies, is_stream=asked.stream)
    return held_response.build_held_response(
        request, merged, is_stream=asked.stream, headers=headers
    )
