"""The address of OpenAI's embeddings below /v1."""

import json
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import IO, Any, cast

from django.http import HttpRequest, HttpResponseBase

from chats.gateway import body, choice, direct, parameters
from chats.gateway.direct import DirectCall
from chats.gateway.refused import InvalidRequest
from chats.gateway.relay import WaitingHead
from chats.gateway.views import gateway
from chats.models import ApiKey, PassedOn
from chats.providers.base import ProviderError
from chats.providers.embeddings import embed

# As OpenAI's servers take them.
MOST_INPUTS = 2048
MOST_DIMENSIONS = 65_536
FORMATS = (None, "float", "base64")


@gateway("POST")
def embeddings(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """Return the embeddings that a provider makes of texts, of which nothing is stored.

    Raises what reading the body and choosing the model raise, `InvalidRequest`, `ModelUnavailable`
    and `TooManyPassedOn`.
    """
    sent = body.read(cast(IO[bytes], request))
    name = body.model_in(sent)
    check(sent)
    model = choice.embedding_model(name, user=key.owner)
    call = direct.begin(key=key, model=model, kind=PassedOn.Kind.EMBEDDINGS, why=PassedOn.Why.KIND)
    asked = {**parameters.passed(sent, allowed=parameters.EMBEDDINGS), "model": model.name}
    headers = parameters.header_of(parameters.left_out(sent, allowed=parameters.EMBEDDINGS))
    return direct.response(
        request, call, partial(embedded, asked, name), is_stream=False, headers=headers
    )


async def embedded(
    asked: Mapping[str, Any], name: str, call: DirectCall, held: WaitingHead
) -> AsyncGenerator[str, None]:
    """Yield the answer in one piece, or why there is none."""
    try:
        found = await embed(call.account, asked, timeouts=direct.timeouts())
    except ProviderError as error:
        yield held.fail(await call.fail(error))
        return
    if found.tokens is not None:
        call.usage["input"] = found.tokens
    await call.end("ok")
    tokens = found.tokens or 0
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    yield json.dumps({"object": "list", "data": found.data, "model": name, "usage": usage})


def check(sent: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` for what cannot be embedded, or would choose the way to a provider."""
    body.refuse_unsupported(sent, known=parameters.EMBEDDINGS)
    said = sent.get("input")
    if said in (None, "", []):
        raise InvalidRequest("Send the input.", param="input", code="missing_field")
    if not is_input(said):
        problem = "input must be a text, a list of texts, or lists of tokens, none of them empty."
        raise InvalidRequest(problem, param="input")
    if isinstance(said, list) and not isinstance(said[0], int) and len(said) > MOST_INPUTS:
        problem = f"input has {len(said):,} entries; at most {MOST_INPUTS:,} go at once."
        raise InvalidRequest(problem, param="input")
    dimensions = body.count(sent, "dimensions")
    if dimensions is not None and dimensions > MOST_DIMENSIONS:
        raise InvalidRequest(f"dimensions is at most {MOST_DIMENSIONS:,}.", param="dimensions")
    if sent.get("encoding_format") not in FORMATS:
        raise InvalidRequest("encoding_format must be float or base64.", param="encoding_format")


def is_input(said: Any) -> bool:
    """Tell whether a value is one input, or a list of inputs of one kind."""
    if isinstance(said, str) or is_tokens(said):
        return bool(said)
    if not isinstance(said, list):
        return False
    texts = all(isinstance(entry, str) and entry for entry in said)
    return texts or all(is_tokens(entry) for entry in said)


def is_tokens(said: Any) -> bool:
    """Tell whether a value is a list of tokens with at least one."""
    return (
        isinstance(said, list)
        and bool(said)
        and all(type(token) is int and token >= 0 for token in said)
    )
