"""Parses request bodies to /v1 within limits, and classifies their fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from django.conf import settings

from chats.gateway import custom_tools, parameters
from chats.gateway.errors import BodyTooLarge, InvalidRequest
from chats.gateway.logprobs import build_logprob_fields, parse_logprob_count
from chats.gateway.request_tools import (
    FindHostedTypes,
    convert_tool_choice,
    find_no_types,
    find_requested_types,
    list_custom_names,
    list_forbidden_fields,
    parse_tools,
)
from chats.ground.texts import UNSTORABLE, sanitise_text, sanitise_value
from contextpolicy.engine.strict_json import (
    build_unique_object,
    has_more_levels,
    has_more_values,
    iter_json_strings,
    load_strict_json,
)

DEPTH = 64


# The inputs of an embeddings request may be 300,000 tokens.
VALUES = 500_000


# Maximum replies to one request. Each is a call to the provider.
MOST_CHOICES = 8


# Refused: the operator configures where requests go. Clients cannot set the address, the key or
# headers.
ROUTING = frozenset(
    {
        "api_base",
        "api_key",
        "api_type",
        "api_version",
        "base_url",
        "custom_llm_provider",
        "deployment_id",
        "extra_body",
        "extra_headers",
        "extra_query",
        "fallbacks",
        "headers",
        "model_list",
        "models",
        "organization",
        "plugins",
        "provider",
        "proxy",
        "route",
        "timeout",
        "transforms",
    }
)


# Refused: replies cannot return these, or another field has replaced them.
UNSUPPORTED = {
    "audio": "Replies are text.",
    "function_call": "Use tool_choice.",
    "functions": "Use tools.",
}


# Values of these fields that ask for nothing.
WITHOUT_EFFECT: tuple[Any, ...] = (False, [], "none")


# Handled here. `parameters` lists the other fields that go to the provider.
OWN = frozenset(
    {
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "modalities",
        "model",
        "n",
        "store",
        "stream",
        "stream_options",
        "tools",
        "top_logprobs",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFields:
    """The fields of a request other than its messages."""

    model: str
    stream: bool
    include_usage: bool
    max_output: int | None
    tools: tuple[dict[str, Any], ...]
    parameters: dict[str, Any]
    # The field that asks for log probabilities of the reply. Empty: none are returned.
    logprobs_field: str = ""
    # Names of fields that are not sent to the provider.
    dropped: tuple[str, ...] = ()
    # Number of replies.
    count: int = 1
    # Types of tools that are offered but not supported.
    left_out: tuple[str, ...] = ()
    # The form of the calls of tools that are not plain functions (`tools.build_call_item` and
    # `wire.format_tool_call`).
    forms: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def parse_gateway_body(stream: IO[bytes]) -> dict[str, Any]:
    """Parse the body as a JSON object. Characters that cannot be stored become U+FFFD.

    Raises `BodyTooLarge` and `InvalidRequest`.
    """
    limit = settings.GATEWAY_BYTES
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise BodyTooLarge(limit=limit)
    if has_more_values(data, limit=VALUES):
        raise InvalidRequest(
            f"The body has more than {VALUES:,} values.", param=None, code="invalid_json"
        )
    try:
        body = load_strict_json(data, pairs=build_unique_object)
    except RecursionError:
        raise build_depth_error() from None
    except ValueError as error:
        raise InvalidRequest(
            f"The body is not valid JSON: {error}.", param=None, code="invalid_json"
        ) from None
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be an object.", param=None, code="invalid_json")
    if has_more_levels(body, limit=DEPTH):
        raise build_depth_error()
    if any(map(UNSTORABLE.search, iter_json_strings(body))):
        # Agents read binary files and cut texts within a character, then resend that with every
        # later request. A refusal would end their session.
        return {sanitise_text(name): sanitise_value(said) for name, said in body.items()}
    return body


def build_depth_error() -> InvalidRequest:
    """Return the refusal of a body with too many levels."""
    return InvalidRequest(
        f"The body has more than {DEPTH} levels.", param=None, code="invalid_json"
    )


def validate_chat_fields(
    body: Mapping[str, Any], *, find_hosted: FindHostedTypes = find_no_types
) -> RequestFields:
    """Validate the fields other than the messages.

    Raises `InvalidRequest`, naming the field, and the errors of `find_hosted`.
    """
    refuse_unsupported_fields(body)
    model = parse_model_name(body)
    stream = parse_bool_field(body, "stream")
    hosted = find_requested_types(body, model, find_hosted=find_hosted)
    tools = parse_tools(body, hosted=hosted)
    forbidden = list_forbidden_fields(body, hosted=hosted)
    passed = parameters.select_provider_fields(
        {n: said for n, said in body.items() if n not in OWN and n not in forbidden}
    )
    if not tools:
        # Providers refuse these without tools.
        passed = {n: said for n, said in passed.items() if n not in parameters.OF_TOOLS}
    if "tool_choice" in passed:
        passed["tool_choice"] = convert_tool_choice(passed["tool_choice"])
    logprobs = parse_logprob_fields(body)
    return RequestFields(
        model=model,
        stream=stream,
        include_usage=stream and should_include_usage(body),
        max_output=min(
            (
                size
                for name in ("max_tokens", "max_completion_tokens")
                if (size := parse_token_limit(body, name)) is not None
            ),
            default=None,
        ),
        tools=tools,
        parameters=passed | logprobs,
        logprobs_field="logprobs" if logprobs else "",
        dropped=(*parameters.list_dropped_fields(list_given_fields(body)), *forbidden),
        forms={name: {"type": custom_tools.CUSTOM} for name in list_custom_names(body)},
        count=parse_choice_count(body),
    )


def list_given_fields(body: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields with an effect that are not handled here."""
    ignored = OWN | UNSUPPORTED.keys()
    return [name for name, said in body.items() if name not in ignored and said is not None]


def parse_choice_count(body: Mapping[str, Any]) -> int:
    """Return the number of replies that the request asks for. Raises `InvalidRequest`."""
    value = body.get("n")
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CHOICES:
        raise InvalidRequest(f"n must be a number from 1 to {MOST_CHOICES}.", param="n")
    return value


def parse_model_name(body: Mapping[str, Any]) -> str:
    """Return the model name. Raises `InvalidRequest`."""
    model = body.get("model")
    if not isinstance(model, str) or not model or len(model) > 200:
        raise InvalidRequest("Name a model.", param="model", code="missing_field")
    return model


def refuse_unsupported_fields(
    body: Mapping[str, Any], *, known: frozenset[str] = OWN | parameters.CHAT
) -> None:
    """Raise `InvalidRequest` for fields that select a provider or would be ignored.

    `known` fields are always accepted, even if their names look like those of refused fields.
    """
    for name, said in body.items():
        if said is None:
            # Some clients send each field that they know.
            continue
        if name.lower() in ROUTING or parameters.is_routing(name, allowed=known):
            problem = f"{name}: the server chooses the provider. Leave this field out."
            raise InvalidRequest(problem, param=name, code="unsupported_parameter")
        if name in UNSUPPORTED and said not in WITHOUT_EFFECT:
            problem = f"{name} is not supported. {UNSUPPORTED[name]}"
            raise InvalidRequest(problem, param=name, code="unsupported_parameter")
    if body.get("modalities") not in (None, ["text"]):
        raise InvalidRequest(
            "modalities: replies are text only.", param="modalities", code="unsupported_parameter"
        )


def parse_bool_field(body: Mapping[str, Any], name: str) -> bool:
    """Return a boolean field. False if absent. Raises `InvalidRequest`."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false.", param=name)
    return bool(value)


def parse_logprob_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that request log probabilities from the provider.

    Raises `InvalidRequest`.
    """
    count = parse_logprob_count(body, "top_logprobs")
    if parse_bool_field(body, "logprobs"):
        return build_logprob_fields(count)
    if count:
        problem = "top_logprobs needs logprobs. Set logprobs to true, or leave both out."
        raise InvalidRequest(problem, param="top_logprobs")
    return {}


def should_include_usage(body: Mapping[str, Any]) -> bool:
    """Return True if the request asks for token usage at the end of the stream.

    Raises `InvalidRequest`.
    """
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise InvalidRequest("stream_options must be an object.", param="stream_options")
    return parse_bool_field(options or {}, "include_usage")


def parse_token_limit(body: Mapping[str, Any], name: str) -> int | None:
    """Return a field with a number of tokens. None if absent. Raises `InvalidRequest`."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 10**9:
        raise InvalidRequest(f"{name} must be a positive number.", param=name)
    return value
