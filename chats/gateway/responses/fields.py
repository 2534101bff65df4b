"""Validates the fields of a request to /v1/responses."""

from collections.abc import Mapping
from typing import Any

from chats.gateway import body, parameters, request_tools
from chats.gateway.body import RequestFields
from chats.gateway.errors import InvalidRequest
from chats.gateway.logprobs import build_logprob_fields, parse_logprob_count
from chats.gateway.responses import tools
from chats.gateway.responses.tool_choice import choose_tools

# Refused: fields of chat completions. Ignoring them would hide a mistake.
ELSEWHERE = {
    "logprobs": 'Use include with "message.output_text.logprobs".',
    "max_completion_tokens": "Use max_output_tokens.",
    "max_tokens": "Use max_output_tokens.",
    "messages": "Use input.",
    "reasoning_effort": "Use reasoning.",
    "response_format": "Use text.format.",
    "verbosity": "Use text.verbosity.",
}
# Refused: features that only OpenAI's servers have.
NOT_HERE = {
    "background": "Background responses are not supported. Use stream instead.",
    "n": "Use /v1/chat/completions.",
    "prompt": "Stored prompts are not supported. Send instructions and input.",
}
# Handled here. The other fields are filtered by `parameters`.
OWN = frozenset(
    {
        *("context_management", "conversation", "include", "input", "instructions"),
        "max_output_tokens",
        *("max_tool_calls", "previous_response_id", "reasoning", "text", "tool_choice"),
        *("truncation", *body.OWN, *ELSEWHERE, *NOT_HERE),
    }
)
LOGPROBS = "message.output_text.logprobs"


def validate_response_fields(
    sent: Mapping[str, Any],
    *,
    find_hosted: request_tools.FindHostedTypes = request_tools.find_no_types,
) -> RequestFields:
    """Validate the fields other than the items.

    Raises `InvalidRequest`, naming the field, and the errors of `find_hosted`.
    """
    refuse_unsupported_response_fields(sent)
    asked = body.validate_chat_fields({"model": sent.get("model"), "stream": sent.get("stream")})
    hosted = request_tools.find_requested_types(sent, asked.model, find_hosted=find_hosted)
    forbidden = request_tools.list_forbidden_fields(sent, hosted=hosted)
    others = {n: said for n, said in sent.items() if n not in OWN and n not in forbidden}
    passed = parameters.select_provider_fields(others)
    given = tools.parse_offered_tools(sent, hosted=hosted)
    offered, choice = choose_tools(sent, given=given)
    passed |= choice | parse_text_format(sent) | parse_reasoning_effort(sent)
    logprobs = parse_included_logprobs(sent)
    if not given.tools:
        passed = {name: said for name, said in passed.items() if name not in parameters.OF_TOOLS}
    return RequestFields(
        model=asked.model,
        stream=asked.stream,
        include_usage=False,
        max_output=body.parse_token_limit(sent, "max_output_tokens"),
        tools=offered,
        parameters=passed | logprobs,
        logprobs_field="include" if logprobs else "",
        dropped=(*parameters.list_dropped_fields(body.list_given_fields(others)), *forbidden),
        left_out=given.left_out,
        forms=given.forms,
    )


def refuse_unsupported_response_fields(sent: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` for fields that select a provider or would be ignored."""
    body.refuse_unsupported_fields(sent, known=OWN | parameters.CHAT)
    for name, instead in ELSEWHERE.items():
        if sent.get(name) is not None:
            raise build_unsupported_error(name, f"{name} is a field of chat completions. {instead}")
    for name, why in NOT_HERE.items():
        harmless = (None, 1) if name == "n" else (None, False)
        if sent.get(name) not in harmless:
            raise build_unsupported_error(name, f"{name} is not supported. {why}")
    check_forms(sent)
    check_compaction(sent.get("context_management"))


def check_forms(sent: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` for a field with an invalid value, such as `include` or `store`."""
    included = sent.get("include")
    if included is not None and not isinstance(included, list):
        raise InvalidRequest("include must be a list.", param="include")
    if sent.get("truncation") not in (None, "auto", "disabled"):
        raise InvalidRequest("truncation must be auto or disabled.", param="truncation")
    for name in ("store", "parallel_tool_calls"):
        body.parse_bool_field(sent, name)
    parse_object_field(sent, "metadata")


def parse_included_logprobs(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that request log probabilities from the provider.

    If `include` does not request them, `top_logprobs` has no effect, as in OpenAI's API. Raises
    `InvalidRequest`.
    """
    count = parse_logprob_count(sent, "top_logprobs")
    return build_logprob_fields(count) if LOGPROBS in (sent.get("include") or ()) else {}


def build_unsupported_error(name: str, problem: str) -> InvalidRequest:
    return InvalidRequest(problem, param=name, code="unsupported_parameter")


def check_compaction(said: Any) -> None:
    """Raise `InvalidRequest` if `context_management` has entries other than compaction.

    Compaction entries have no effect, because the policy controls compaction.
    """
    entries = [] if said is None else said
    if not isinstance(entries, list):
        raise InvalidRequest("context_management must be a list.", param="context_management")
    for place, entry in enumerate(entries):
        if not isinstance(entry, dict) or entry.get("type") != "compaction":
            at = f"context_management[{place}]"
            raise InvalidRequest(f"{at}.type must be compaction.", param=at)


def parse_instructions(sent: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the system text of a request. Raises `InvalidRequest`."""
    value = sent.get("instructions")
    if value is not None and not isinstance(value, str):
        raise InvalidRequest("instructions must be a text.", param="instructions")
    return (value,) if value else ()


def parse_text_format(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text format as the provider expects it. Raises `InvalidRequest`."""
    said = parse_object_field(sent, "text")
    form = parse_object_field(said, "format", at="text.format")
    found = {"verbosity": said["verbosity"]} if said.get("verbosity") else {}
    kind = form.get("type", "text")
    if kind == "json_schema":
        schema = {name: value for name, value in form.items() if name != "type"}
        return found | {"response_format": {"type": kind, "json_schema": schema}}
    if kind == "json_object":
        return found | {"response_format": {"type": kind}}
    if kind != "text":
        problem = "text.format.type must be text, json_object or json_schema."
        raise InvalidRequest(problem, param="text.format.type")
    return found


def parse_reasoning_effort(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reasoning effort in the provider's format. Raises `InvalidRequest`."""
    value = parse_object_field(sent, "reasoning").get("effort")
    return {"reasoning_effort": value} if value else {}


def parse_object_field(holder: Mapping[str, Any], name: str, *, at: str = "") -> Mapping[str, Any]:
    """Return a field that is an object, or an empty object. Raises `InvalidRequest`."""
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(f"{at or name} must be an object.", param=at or name)
    return value
