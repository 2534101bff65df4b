"""Formats replies, stream chunks and errors in OpenAI's chat completions format."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from chats.gateway import custom_tools
from chats.gateway.logprobs import Logprobs, build_chat_logprobs
from chats.ground.refusals import Refusal
from chats.models import Message, Turn
from contextpolicy.engine.messages.extras import ORIGIN_MARK, THOUGHTS, hash_origin, read_extras

# The form of the calls of a tool, by the tool's name. Plain functions are missing.
Forms = Mapping[str, Mapping[str, str]]
DONE = "data: [DONE]\n\n"
# The usual field for reasoning.
REASONING = "reasoning_content"
FINISHES = {
    Message.Finish.TOOL_CALLS: "tool_calls",
    Message.Finish.LENGTH: "length",
    Message.Finish.LIMIT: "length",
}
# Status and code for the failure of a turn. Other failures are server errors.
TOO_LONG = (400, "context_length_exceeded")
FAILURES = {
    "context_overflow": TOO_LONG,
    "message_too_large": TOO_LONG,
    "turn_too_large": TOO_LONG,
    "policy_impossible": TOO_LONG,
    "content_filtered": (400, "content_filter"),
    "provider_rejected": (400, "provider_rejected"),
    "tools_unsupported": (400, "tools_unsupported"),
    "message_erased": (409, "message_erased"),
    "message_excluded": (409, "message_excluded"),
    "quota_exceeded": (402, "quota_exceeded"),
    "provider_rate_limited": (429, "rate_limit_exceeded"),
    "model_not_allowed": (403, "model_not_allowed"),
    "files_not_allowed_for_model": (403, "files_not_allowed_for_model"),
    "model_unavailable": (503, "model_unavailable"),
    "server_restarting": (503, "server_restarting"),
    "reply_restarted": (503, "reply_restarted"),
    "provider_timeout": (504, "provider_timeout"),
    "provider_auth": (502, "provider_auth"),
    "provider_unavailable": (502, "provider_unavailable"),
    "provider_protocol": (502, "provider_protocol"),
    "provider_error": (502, "provider_error"),
    "reply_incomplete": (502, "reply_incomplete"),
}
# Failures that may not recur if the request is repeated.
TEMPORARY = frozenset(
    {
        "internal_error",
        "model_unavailable",
        "provider_error",
        "provider_protocol",
        "provider_rate_limited",
        "provider_timeout",
        "provider_unavailable",
        "reply_incomplete",
        "reply_restarted",
        "server_restarting",
    }
)
# Seconds to wait before retrying a temporary failure, and the longest wait of OpenAI's clients.
RETRY_AFTER = 5
LONGEST_WAIT = 60


class TurnFailed(Refusal):
    """The turn failed, was stopped, or was deleted."""

    code = "internal_error"
    status = 500
    sentence = "{reason}"

    def __init__(self, *, code: str, reason: str, wait: float | None = None) -> None:
        """`wait`: the seconds after which a retry makes sense, if the provider stated them."""
        super().__init__(reason=reason)
        self.status, self.code = FAILURES.get(code, (500, code))
        if self.status in (429, 503):
            self.retry_after = RETRY_AFTER if wait is None else max(1, round(wait))
        # OpenAI's clients retry these statuses. A permanent failure would only recur, and clients
        # do not wait longer than `LONGEST_WAIT`.
        is_long = (self.retry_after or 0) > LONGEST_WAIT
        is_repeated = self.status in (408, 409, 429) or self.status >= 500
        self.should_retry = not is_repeated or (code in TEMPORARY and not is_long)


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished reply as stored: text, reasoning, calls, usage and finish reason."""

    id: str
    model: str
    created: int
    text: str
    calls: Sequence[Mapping[str, str]]
    finish: str
    usage: Mapping[str, int]
    thoughts: str = ""
    # Log probabilities of the text. None: not requested, or none from the provider.
    logprobs: Logprobs | None = None
    # The text declines the request, so it may not have the requested format.
    is_refusal: bool = False


def build_turn_reply(turn: Turn, *, model: str) -> Reply:
    """Return the reply of a finished turn. Raises `TurnFailed` if it is not complete."""
    if turn.status == Turn.Status.STOPPED:
        raise TurnFailed(code="stopped", reason="The reply was stopped before its end.")
    if turn.status != Turn.Status.COMPLETED or turn.reply is None:
        reason = turn.error_sentence or "The reply failed. Send the request again."
        wait = find_stated_wait(turn.error_details)
        raise TurnFailed(code=turn.error_code or "internal_error", reason=reason, wait=wait)
    return Reply(
        id=format_completion_id(turn.pk),
        model=model,
        created=int(turn.queued_at.timestamp()),
        text=turn.reply.text,
        calls=[part for part in turn.reply.parts if part["type"] == "tool_call"],
        finish=FINISHES.get(Message.Finish(turn.reply.finish), "stop"),
        usage=turn.usage,
        thoughts="".join(part["text"] for part in turn.reply.parts if part["type"] == "reasoning"),
        is_refusal=bool((turn.client or {}).get("is_refusal")),
    )


def find_stated_wait(details: Any) -> float | None:
    """Return the seconds in the stored sentence of a failure, which may be within another one."""
    values = details.get("values") if isinstance(details, dict) else None
    if not isinstance(values, dict):
        return None
    seconds = values.get("seconds")
    if isinstance(seconds, int | float):
        return seconds
    return next((found for each in values.values() if (found := find_stated_wait(each))), None)


def format_completion_id(reply_id: uuid.UUID) -> str:
    return f"chatcmpl-{reply_id.hex}"


def build_completion(reply: Reply, *, forms: Forms) -> dict[str, Any]:
    said, declined = (None, reply.text) if reply.is_refusal else (reply.text or None, None)
    message: dict[str, Any] = {"role": "assistant", "content": said, "refusal": declined}
    if reply.calls:
        message["tool_calls"] = format_tool_calls(reply, forms=forms)
    elif said is None and not reply.is_refusal:
        message["content"] = ""
    message |= collect_extra_fields(reply)
    choice = {
        "index": 0,
        "message": message,
        "logprobs": build_chat_logprobs(reply.logprobs),
        "finish_reason": reply.finish,
    }
    return {
        "id": reply.id,
        "object": "chat.completion",
        "created": reply.created,
        "model": reply.model,
        "choices": [choice],
        "usage": format_chat_usage(reply.usage),
    }


def format_tool_calls(reply: Reply, *, forms: Forms) -> list[dict[str, Any]]:
    """Return the calls of a reply, with the fields that the provider expects back."""
    return [format_tool_call(call, forms=forms) for call in reply.calls]


def format_tool_call(call: Mapping[str, str], *, forms: Forms) -> dict[str, Any]:
    """Return a call in the format for its kind of tool: function or custom tool."""
    own = read_extras(call.get("extra", "")).call
    inner = own.get("function")
    if call["name"] in forms:
        text = custom_tools.parse_custom_input(call["arguments"])
        others = {name: value for name, value in own.items() if name != "function"}
        custom = {"name": call["name"], "input": text}
        return {**others, "id": call["call_id"], **forms[call["name"]], "custom": custom}
    function = {
        **(inner if isinstance(inner, dict) else {}),
        "name": call["name"],
        "arguments": call["arguments"],
    }
    return {**own, "id": call["call_id"], "type": "function", "function": function}


def collect_extra_fields(reply: Reply) -> dict[str, Any]:
    """Return the reasoning of a reply, and the fields that the provider expects back."""
    own = collect_provider_fields(reply)
    thoughts = {REASONING: reply.thoughts} if reply.thoughts and not {*own} & {*THOUGHTS} else {}
    return {**thoughts, **own}


def collect_provider_fields(reply: Reply) -> dict[str, Any]:
    """Return the fields that the provider expects back with a reply's calls."""
    found: dict[str, Any] = {}
    for call in reply.calls:
        extras = read_extras(call.get("extra", ""))
        found |= extras.message
        if extras.thoughts and reply.thoughts:
            found[extras.thoughts] = reply.thoughts
        if extras.by:
            found[ORIGIN_MARK] = hash_origin(extras.by)
    return found


def format_chat_usage(usage: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the provider's token counts, or None if it reported none."""
    if not usage:
        return None
    sent, written = usage.get("input", 0), usage.get("output", 0)
    thoughts = usage.get("reasoning", 0)
    return {
        "prompt_tokens": sent,
        "completion_tokens": written,
        "total_tokens": sent + written,
        "prompt_tokens_details": {"cached_tokens": usage.get("cached", 0)},
        **({"completion_tokens_details": {"reasoning_tokens": thoughts}} if thoughts else {}),
    }


def build_usage_header(reply: Reply) -> dict[str, str]:
    """Return the header of a reply whose provider reported no token counts."""
    return {} if reply.usage else {"X-Context-Usage": "unknown"}


class Form(Protocol):
    """The format of one reply: complete, or as a stream."""

    def opening(self) -> str:
        """Return the start of a stream."""

    def text(self, text: str, found: Logprobs = (), /) -> str:
        """Return the stream events for more text.

        `found`: its log probabilities, and those of earlier text that were missing.
        """

    def thoughts(self, text: str) -> str:
        """Return the stream events for more reasoning."""

    def ending(self, reply: Reply) -> str:
        """Return the end of a stream, after all text and reasoning."""

    def whole(self, reply: Reply) -> str:
        """Return the complete reply."""

    def broken(self, refusal: Refusal) -> str:
        """Return the end of a failed stream."""


@dataclass
class Chunks:
    id: str
    model: str
    created: int
    include_usage: bool
    has_thoughts: bool = False
    # The form of the calls of tools that are not functions.
    forms: Forms = field(default_factory=dict)

    def opening(self) -> str:
        return self.piece({"role": "assistant", "content": ""})

    def text(self, text: str, found: Logprobs = ()) -> str:
        if found:
            return self.piece({"content": text}, found=found)
        before, after = self.around_text
        return f"{before}{json.dumps(text)}{after}"

    def thoughts(self, text: str) -> str:
        self.has_thoughts = True
        return self.piece({REASONING: text})

    @cached_property
    def around_text(self) -> tuple[str, str]:
        """The parts of a chunk before and after its text, which are built once per reply."""
        before, _, after = self.piece({"content": ""}).rpartition('""')
        return before, after

    def ending(self, reply: Reply) -> str:
        """Return the last chunks of a reply: extra fields, calls, finish reason and end marker.

        The usage is included if the client requested it.
        """
        made = [
            {"index": n, **call}
            for n, call in enumerate(format_tool_calls(reply, forms=self.forms))
        ]
        fields = collect_extra_fields(reply)
        if self.has_thoughts:
            fields.pop(REASONING, None)
        pieces = self.piece(fields) if fields else ""
        pieces += self.piece({"tool_calls": made}) if made else ""
        pieces += self.piece({}, finish=reply.finish)
        if self.include_usage:
            pieces += format_stream_event(
                {**self.frame(), "choices": [], "usage": format_chat_usage(reply.usage)}
            )
        return pieces + DONE

    def whole(self, reply: Reply) -> str:
        return json.dumps(build_completion(reply, forms=self.forms))

    def broken(self, refusal: Refusal) -> str:
        return format_stream_event(format_openai_error(refusal))

    def piece(
        self, delta: Mapping[str, Any], *, finish: str | None = None, found: Logprobs = ()
    ) -> str:
        logprobs = build_chat_logprobs(found)
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        usage_field = {"usage": None} if self.include_usage else {}
        return format_stream_event({**self.frame(), "choices": [choice], **usage_field})

    def frame(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
        }


def format_stream_event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data, separators=(',', ':'))}\n\n"


def build_error_headers(refusal: Refusal) -> dict[str, str]:
    """Return the headers of a refusal that say when, and whether, to send the request again.

    A conflict that lasts has no wait, so clients must not repeat the request.
    """
    waits = refusal.retry_after is not None
    if isinstance(refusal, TurnFailed):
        repeats = refusal.should_retry
    else:
        repeats = waits or refusal.status != 409
    return {
        **({"Retry-After": str(refusal.retry_after)} if waits else {}),
        **({} if repeats else {"X-Should-Retry": "false"}),
    }


def format_openai_error(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal in OpenAI's error format, with its four keys."""
    body = refusal.body(request_id="")
    del body["error"]["request_id"]
    return body
