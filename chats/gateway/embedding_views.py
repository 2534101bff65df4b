"""The embeddings endpoint of the OpenAI-compatible API."""

import json
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import IO, Any, cast

from django.http import HttpRequest, HttpResponseBase

from chats.gateway import body, choice, parameters
from chats.gateway.chat_completions.views import gateway
from chats.gateway.errors import InvalidRequest
from chats.gateway.held_response import WaitingHead
from chats.gateway.passthrough import provider_call
from chats.gateway.passthrough.provider_call import DirectCall
from chats.models import ApiKey, PassedOn
from chats.providers.base import ProviderError
from chats.providers.embeddings import request_embeddings
from contextpolicy.engine.messages.tokens import TokenCounter

# Limits of OpenAI's API.
MOST_INPUTS = 2048
MOST_DIMENSIONS = 65_536
FORMATS = (None, "float", "base64")


@gateway("POST")
def embeddings(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """Return embeddings from a provider. The call is recorded, but its input is not stored.

    Raises the errors of parsing the body and choosing the model, `InvalidRequest`,
    `ModelUnavailable`, `TooManyPassthroughRequests` and `quotas.QuotaExceeded`.
    """
    sent = body.parse_gateway_body(cast(IO[bytes], request))
    name = body.parse_model_name(sent)
    check_embedding_request(sent)
    model, values = choice.find_embedding_model(name, user=key.owner)
    call = provider_call.begin_direct_call(
        key=key,
        model=model,
        meter=provider_call.build_call_meter(
            key,
            model=model,
            values=values,
            count=lambda counter: count_input_tokens(sent["input"], counter=counter),
        ),
        kind=PassedOn.Kind.EMBEDDINGS,
        why=PassedOn.Why.KIND,
    )
    asked = {
        **parameters.select_provider_fields(sent, allowed=parameters.EMBEDDINGS),
        "model": model.name,
    }
    headers = parameters.build_dropped_headers(
        parameters.list_dropped_fields(sent, allowed=parameters.EMBEDDINGS)
    )
    return provider_call.build_direct_response(
        request,
        call,
        partial(stream_embeddings_body, asked, name),
        is_stream=False,
        headers=headers,
    )


async def stream_embeddings_body(
    asked: Mapping[str, Any], name: str, call: DirectCall, held: WaitingHead
) -> AsyncGenerator[str, None]:
    """Yield the body of an embeddings response, or an error in OpenAI's format."""
    try:
        found = await request_embeddings(
            call.account, asked, timeouts=provider_call.build_provider_timeouts()
        )
    except ProviderError as error:
        yield held.fail(await call.fail(error))
        return
    if found.tokens is not None:
        call.usage["input"] = found.tokens
    await call.end("ok")
    tokens = found.tokens or 0
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    yield json.dumps({"object": "list", "data": found.data, "model": name, "usage": usage})


def check_embedding_request(sent: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` for invalid input and for fields that select a provider."""
    body.refuse_unsupported_fields(sent, known=parameters.EMBEDDINGS)
    value = sent.get("input")
    if value in (None, "", []):
        raise InvalidRequest("Send the input.", param="input", code="missing_field")
    if not is_input(value):
        problem = (
            "input must be a text, a list of texts, or lists of tokens. None of them may be empty."
        )
        raise InvalidRequest(problem, param="input")
    if isinstance(value, list) and not isinstance(value[0], int) and len(value) > MOST_INPUTS:
        problem = f"input has {len(value):,} entries. The maximum is {MOST_INPUTS:,}."
        raise InvalidRequest(problem, param="input")
    dimensions = body.parse_token_limit(sent, "dimensions")
    if dimensions is not None and dimensions > MOST_DIMENSIONS:
        raise InvalidRequest(f"dimensions must be at most {MOST_DIMENSIONS:,}.", param="dimensions")
    if sent.get("encoding_format") not in FORMATS:
        raise InvalidRequest("encoding_format must be float or base64.", param="encoding_format")


def count_input_tokens(value: Any, *, counter: TokenCounter) -> int:
    """Return the tokens of a valid input: texts, tokens, or lists of tokens."""
    if isinstance(value, str):
        return counter.count(value)
    if isinstance(value, list):
        return sum(count_input_tokens(entry, counter=counter) for entry in value)
    return 1


def is_input(said: Any) -> bool:
    """Return True if the value is a valid input, or a list of inputs of one type."""
    if isinstance(said, str) or is_tokens(said):
        return bool(said)
    if not isinstance(said, list):
        return False
    texts = all(isinstance(entry, str) and entry for entry in said)
    return texts or all(is_tokens(entry) for entry in said)


def is_tokens(said: Any) -> bool:
    """Return True if the value is a non-empty list of tokens."""
    return (
        isinstance(said, list)
        and bool(said)
        and all(type(token) is int and token >= 0 for token in said)
    )
