"""The replies of the fake model: its deltas, and the bodies of its errors."""

import json
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.fakes.scripting import Options, Plan, text_of
from tests.fakes.summaries import summary_of

Delta = dict[str, Any]

_RATE_LIMIT = {
    "message": (
        "Rate limit reached for fake-chat on tokens per min (TPM): "
        "Limit 30000, Used 29990, Requested 400. Please try again in 780ms."
    ),
    "type": "tokens",
    "param": None,
    "code": "rate_limit_exceeded",
}
_SERVER_ERROR = {
    "message": "The server had an error while processing your request.",
    "type": "server_error",
    "param": None,
    "code": None,
}
_STATUS_FAULTS: dict[str, tuple[int, dict[str, Any]]] = {
    "401": (401, {"message": "Incorrect API key provided.", "code": "invalid_api_key"}),
    "402": (402, {"message": "Insufficient Balance", "code": "invalid_request_error"}),
    "403": (403, {"message": "This key may not do that.", "code": "permission_denied"}),
    "404": (404, {"message": "The model does not exist.", "code": "model_not_found"}),
    "429": (429, _RATE_LIMIT),
    "500": (500, _SERVER_ERROR),
    "502": (502, _SERVER_ERROR),
    "503": (503, _SERVER_ERROR),
    "quota": (429, {"message": "You exceeded your quota.", "code": "insufficient_quota"}),
    "redirect": (307, {"message": "Moved.", "code": None}),
    "filter400": (400, {"message": "The prompt was filtered.", "code": "content_filter"}),
    "context413": (413, {"message": "Request too large.", "type": "invalid_request_error"}),
}


def has_list_result(body: dict[str, Any]) -> bool:
    """Return True if a tool result is a list of parts."""
    results = (each for each in body.get("messages", ()) if each["role"] == "tool")
    return any(isinstance(each["content"], list) for each in results)


# Errors for ids of calls: OpenAI's, and that of Mistral's chat template in llama.cpp.
LONG_ID = {
    "message": (
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum "
        "length 40, but got a string with length 64 instead."
    ),
    "type": "invalid_request_error",
    "param": "messages[1].tool_calls[0].id",
    "code": "string_above_max_length",
}
OTHER_ID = {
    "code": 500,
    "message": "Tool call IDs should be alphanumeric strings with length 9!",
    "type": "server_error",
}


# Anthropic's error for a reply limit above that of the model.
TOO_LONG = {
    "type": "invalid_request_error",
    "message": (
        "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for m"
    ),
}
# Errors for missing messages and fields: Mistral, DeepSeek, Gemini.
WRONG_ORDER = {
    "object": "error",
    "message": "Unexpected role 'user' after role 'tool'",
    "type": "invalid_request_message_order",
    "param": None,
    "code": "3230",
}
NO_THOUGHTS = "The `reasoning_content` in the thinking mode must be passed back to the API."
NO_SIGNATURE = (
    "Function call is missing a thought_signature in functionCall parts. This is required for "
    "tools to work correctly."
)


def find_missing_part(rule: str, body: dict[str, Any]) -> tuple[int, Any] | None:
    """Return the error for messages that lack the requirement of a server with this rule."""
    messages = body.get("messages", ())
    roles = [each["role"] for each in messages]
    replies = [each for each in messages if each["role"] == "assistant"]
    if rule == "user_after_tool" and ("tool", "user") in pairwise(roles):
        return 400, WRONG_ORDER
    if rule == "no_thoughts" and not all(each.get("reasoning_content") for each in replies):
        return 400, {"error": {"message": NO_THOUGHTS, "type": "invalid_request_error"}}
    detail = rule.removeprefix("detail.")
    if detail != rule and f'"detail": "{detail}"' in json.dumps(messages):
        words = f"Invalid value: '{detail}'. Supported values are: 'low', 'high', and 'auto'."
        return 400, {"error": {"message": words, "type": "invalid_request_error"}}
    field = rule.removeprefix("message.")
    if field != rule and any(field in each for each in messages):
        return 400, {"error": {"message": f"'messages.1' : property '{field}' is unsupported"}}
    calls = [each["tool_calls"][0] for each in replies if each.get("tool_calls")]
    if rule == "no_signatures" and not all("extra_content" in call for call in calls):
        return 400, [{"error": {"code": 400, "message": NO_SIGNATURE}}]
    return None


def find_id_error(rule: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """Return the error for an id of a call that a server with this rule refuses."""
    messages = body.get("messages", ())
    ids = [call["id"] for each in messages for call in each.get("tool_calls", ())]
    ids += [each["tool_call_id"] for each in messages if "tool_call_id" in each]
    if rule == "long_ids" and any(len(each) > 40 for each in ids):
        return 400, {"error": LONG_ID}
    if rule == "other_ids" and not all(len(each) == 9 and each.isalnum() for each in ids):
        return 500, {"error": OTHER_ID}
    return None


def find_field_error(rule: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """Return the error of a server that refuses a field or its value, and repeats the value."""
    problem, _, field = rule.partition(".")
    if problem not in ("unknown", "invalid") or field not in body:
        return None
    kind = {"unknown": "extra_forbidden", "invalid": "literal_error"}[problem]
    return 422, {"detail": [{"type": kind, "loc": ["body", field], "input": body[field]}]}


def error_of(plan: Plan, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """The status and body of the error for a request, or None for a normal reply."""
    options, sent = plan.options, plan.prompt_tokens
    if options.reject == "result_images" and has_list_result(body):
        words = "Image URLs are only allowed for messages with role 'user'."
        return 400, {"error": {"message": words, "type": "invalid_request_error", "code": None}}
    if options.reject == "long_replies" and (output_limit(body) or 0) > 8192:
        return 400, {"error": TOO_LONG}
    if (missing := find_missing_part(options.reject, body)) is not None:
        return missing
    refused = find_id_error(options.reject, body) or find_field_error(options.reject, body)
    if refused is not None:
        return refused
    if options.reject and options.reject in body:
        other = "max_completion_tokens" if options.reject == "max_tokens" else "nothing"
        words = f"Unsupported parameter: '{options.reject}'. Use '{other}' instead."
        return 400, {"error": {"message": words, "type": "invalid_request_error", "code": None}}
    if options.fault == "context" or 0 < options.context_limit < sent:
        return 400, {"error": overflow_error(options.context_limit or max(sent - 1, 0), sent)}
    if options.fault == "context429":
        words = (
            f"Request too large for fake-chat on tokens per min (TPM): Limit {sent - 1}, Requested "
            f"{sent}. The input or output tokens must be reduced in order to run successfully."
        )
        return 429, {"error": {"message": words, "type": "tokens", "code": "rate_limit_exceeded"}}
    found = _STATUS_FAULTS.get(options.fault)
    return (found[0], {"error": found[1]}) if found else None


def overflow_error(limit: int, sent: int) -> dict[str, Any]:
    """OpenAI's error for a prompt that does not fit."""
    return {
        "message": (
            f"This model's maximum context length is {limit} tokens. However, your messages "
            f"resulted in {sent} tokens. Please reduce the length of the messages."
        ),
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }


def deltas(plan: Plan, body: dict[str, Any]) -> Iterator[Delta]:
    """The deltas of a reply. A numbered token has a timestamp of when it was requested.

    Token i reads ` i@t;` with t in microseconds of the monotonic clock. Lost, doubled and mixed
    tokens are visible in the text.
    """
    for n in range(plan.options.reasoning):
        yield {"reasoning_content": f" thought {n}"}
    if plan.reply is not None:
        yield from _scripted(plan)
    elif plan.options.fault == "whitespace":
        yield {"content": " \n"}
    elif plan.options.fault == "refusal":
        yield from ({"refusal": word} for word in ("I cannot", " help with that."))
    elif plan.options.reply:
        yield from ({"content": word} for word in _words(_told(plan, body)))
    elif plan.options.fault not in {"empty", "reasoning_only"}:
        for n in range(plan.options.tokens):
            yield {"content": f" {n}@{time.monotonic_ns() // 1000};"}


def logprobs_of(said: list[Delta], body: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's log probabilities of texts: one token for each delta, the longer the less likely."""
    words = [delta["content"] for delta in said if delta.get("content")]
    return {"content": [_logprob_of(word, body) for word in words], "refusal": None}


def _logprob_of(word: str, body: dict[str, Any]) -> dict[str, Any]:
    other = [(word, -len(word) / 8), *((f"{word}{n}", -n - 8.25) for n in range(20))]
    entries = [
        {"token": text, "logprob": logprob, "bytes": list(text.encode())} for text, logprob in other
    ]
    return {**entries[0], "top_logprobs": entries[: body.get("top_logprobs", 0)]}


def finish_of(plan: Plan, body: dict[str, Any], sent: int) -> str:
    """The finish reason after `sent` deltas."""
    if plan.reply is not None:
        return plan.reply.finish or ("tool_calls" if plan.reply.tool_calls else "stop")
    if plan.options.fault == "filter":
        return "content_filter"
    limit = output_limit(body)
    is_cut = limit is not None and sent >= limit
    return "length" if is_cut or plan.options.fault == "length" else "stop"


def output_limit(body: dict[str, Any]) -> int | None:
    """The client's limit of output tokens, under either of its names."""
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return limit if isinstance(limit, int) else None


def _scripted(plan: Plan) -> Iterator[Delta]:
    reply = plan.reply
    if reply is None:
        return
    yield from ({"reasoning_content": word} for word in _words(reply.reasoning))
    yield from ({"content": word} for word in _words(reply.text))
    for index, call in enumerate(reply.tool_calls):
        yield from _call_deltas(index, call)


def _call_deltas(index: int, call: dict[str, Any]) -> Iterator[Delta]:
    """One tool call: its head, then its arguments in three pieces.

    `id` and `index` can be scripted. If they are None they are left out, as some servers do.
    """
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    place = {"index": call.get("index", index), "id": call.get("id", f"call_fake{index}")}
    place = {key: value for key, value in place.items() if value is not None}
    head = {**place, "type": "function", "function": {"name": call["name"], "arguments": ""}}
    yield {"tool_calls": [head]}
    rest = {key: value for key, value in place.items() if key == "index"}
    size = max(1, -(-len(text) // 3))
    for start in range(0, len(text), size):
        yield {"tool_calls": [{**rest, "function": {"arguments": text[start : start + size]}}]}


def _told(plan: Plan, body: dict[str, Any]) -> str:
    if plan.options.reply.startswith("summary"):
        return summary_of(plan.options.reply, body)
    if plan.options.reply != "echo":
        return plan.options.reply.replace("_", " ")
    messages = body.get("messages", [])
    roles = ",".join(message["role"][0] for message in messages)
    size = sum(len(text_of(message.get("content"))) for message in messages)
    return f"messages={len(messages)} tokens={plan.prompt_tokens} chars={size} roles={roles}"


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+$", text)


def usage_of(plan: Plan, sent: int) -> dict[str, Any]:
    """The usage object; a quarter of the prompt counts as cached."""
    prompt = plan.options.billed or plan.prompt_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sent,
        "total_tokens": prompt + sent,
        "prompt_tokens_details": {"cached_tokens": prompt // 4},
    }


def has_usage(body: dict[str, Any], options: Options) -> bool:
    """Return True if this stream ends with its usage."""
    wants = (body.get("stream_options") or {}).get("include_usage")
    return bool(wants and options.usage)
