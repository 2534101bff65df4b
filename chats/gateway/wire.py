"""Writes replies, pieces of replies and errors as OpenAI's programs read them."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from chats.ground.refusals import Refusal
from chats.models import Message, Turn
from contextpolicy.engine.extras import THOUGHTS, read_extras

DONE = "data: [DONE]\n\n"
# The usual name of the field with a model's thoughts.
REASONING = "reasoning_content"
FINISHES = {
    Message.Finish.TOOL_CALLS: "tool_calls",
    Message.Finish.LENGTH: "length",
    Message.Finish.LIMIT: "length",
}
# What a turn's failure means to a program: status and code; every other one is the server's.
TOO_LONG = (400, "context_length_exceeded")
FAILURES = {
    "context_overflow": TOO_LONG,
    "message_too_large": TOO_LONG,
    "turn_too_large": TOO_LONG,
    "policy_impossible": TOO_LONG,
    "content_filtered": (400, "content_filter"),
    "provider_rejected": (400, "provider_rejected"),
    "tools_unsupported": (400, "tools_unsupported"),
    "provider_rate_limited": (429, "rate_limit_exceeded"),
    "model_not_allowed": (403, "model_not_allowed"),
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
# The seconds after which a passing failure is worth another try.
RETRY_AFTER = 5


class TurnFailed(Refusal):
    """The turn that should have replied failed, was stopped, or is gone."""

    code = "internal_error"
    status = 500
    sentence = "{reason}"

    def __init__(self, *, code: str, reason: str) -> None:
        super().__init__(reason=reason)
        self.status, self.code = FAILURES.get(code, (500, code))
        if self.status in (429, 503):
            self.retry_after = RETRY_AFTER


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it is stored, with what its program has to know."""

    id: str
    model: str
    created: int
    text: str
    calls: Sequence[Mapping[str, str]]
    finish: str
    usage: Mapping[str, int]
    thoughts: str = ""


def reply_of(turn: Turn, *, model: str) -> Reply:
    """Return the reply of a turn that is over. Raises `TurnFailed` if it is not a whole one."""
    if turn.status == Turn.Status.STOPPED:
        raise TurnFailed(code="stopped", reason="The reply was stopped before its end.")
    if turn.status != Turn.Status.COMPLETED or turn.reply is None:
        reason = turn.error_sentence or "The reply failed. Send the request again."
        raise TurnFailed(code=turn.error_code or "internal_error", reason=reason)
    return Reply(
        id=id_of(turn.pk),
        model=model,
        created=int(turn.queued_at.timestamp()),
        text=turn.reply.text,
        calls=[part for part in turn.reply.parts if part["type"] == "tool_call"],
        finish=FINISHES.get(Message.Finish(turn.reply.finish), "stop"),
        usage=turn.usage,
        thoughts="".join(part["text"] for part in turn.reply.parts if part["type"] == "reasoning"),
    )


def id_of(reply_id: uuid.UUID) -> str:
    """Return the id of a reply: that of its turn, if it has one."""
    return f"chatcmpl-{reply_id.hex}"


def completion(reply: Reply) -> dict[str, Any]:
    """Return a whole reply."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.calls:
        message["tool_calls"] = calls(reply)
    elif message["content"] is None:
        message["content"] = ""
    message |= fields_beside(reply)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
    return {
        "id": reply.id,
        "object": "chat.completion",
        "created": reply.created,
        "model": reply.model,
        "choices": [choice],
        "usage": usage(reply.usage),
    }


def calls(reply: Reply) -> list[dict[str, Any]]:
    """Return the calls of a reply, with the fields that its server wants back."""
    return [written_call(call) for call in reply.calls]


def written_call(call: Mapping[str, str]) -> dict[str, Any]:
    """Return one call."""
    own = read_extras(call.get("extra", "")).call
    inner = own.get("function")
    function = {
        **(inner if isinstance(inner, dict) else {}),
        "name": call["name"],
        "arguments": call["arguments"],
    }
    return {**own, "id": call["call_id"], "type": "function", "function": function}


def fields_beside(reply: Reply) -> dict[str, Any]:
    """Return the thoughts of a reply, and the fields that its server wants back with its calls."""
    own = own_fields(reply)
    thoughts = {REASONING: reply.thoughts} if reply.thoughts and not {*own} & {*THOUGHTS} else {}
    return {**thoughts, **own}


def own_fields(reply: Reply) -> dict[str, Any]:
    """Return the fields of a reply that its server wants back with its calls: thoughts, details."""
    found: dict[str, Any] = {}
    for call in reply.calls:
        extras = read_extras(call.get("extra", ""))
        found |= extras.message
        if extras.thoughts and reply.thoughts:
            found[extras.thoughts] = reply.thoughts
    return found


def usage(told: Mapping[str, int]) -> dict[str, Any] | None:
    """Return what the provider counted; None where it told nothing."""
    if not told:
        return None
    sent, written = told.get("input", 0), told.get("output", 0)
    return {
        "prompt_tokens": sent,
        "completion_tokens": written,
        "total_tokens": sent + written,
        "prompt_tokens_details": {"cached_tokens": told.get("cached", 0)},
    }


class Form(Protocol):
    """The form in which one reply goes back: whole, or in pieces with a beginning and an end."""

    def opening(self) -> str:
        """Return what a stream begins with."""

    def text(self, text: str) -> str:
        """Return more text."""

    def ending(self, reply: Reply) -> str:
        """Return the end of a stream whose text was all sent."""

    def whole(self, reply: Reply) -> str:
        """Return the reply in one piece."""

    def broken(self, refusal: Refusal) -> str:
        """Return the end of a stream that breaks off."""


@dataclass(frozen=True)
class Chunks:
    """The pieces of one reply as a stream of events."""

    id: str
    model: str
    created: int
    include_usage: bool

    def opening(self) -> str:
        """Return the first piece: the role."""
        return self.piece({"role": "assistant", "content": ""})

    def text(self, text: str) -> str:
        """Return more text."""
        before, after = self.around_text
        return f"{before}{json.dumps(text)}{after}"

    @cached_property
    def around_text(self) -> tuple[str, str]:
        """What stands before and after the text in each of a reply's many pieces."""
        before, _, after = self.piece({"content": ""}).rpartition('""')
        return before, after

    def ending(self, reply: Reply) -> str:
        """Return the calls, the end and, if it was asked for, the usage."""
        made = [{"index": n, **call} for n, call in enumerate(calls(reply))]
        fields = fields_beside(reply)
        pieces = self.piece(fields) if fields else ""
        pieces += self.piece({"tool_calls": made}) if made else ""
        pieces += self.piece({}, finish=reply.finish)
        if self.include_usage:
            pieces += event({**self.frame(), "choices": [], "usage": usage(reply.usage)})
        return pieces + DONE

    def whole(self, reply: Reply) -> str:
        """Return the reply in one piece."""
        return json.dumps(completion(reply))

    def broken(self, refusal: Refusal) -> str:
        """Return the end of a stream that breaks off."""
        return event(error(refusal))

    def piece(self, delta: Mapping[str, Any], *, finish: str | None = None) -> str:
        """Return one chunk."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage_field = {"usage": None} if self.include_usage else {}
        return event({**self.frame(), "choices": [choice], **usage_field})

    def frame(self) -> dict[str, Any]:
        """Return what all chunks of the reply have in common."""
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
        }


def event(data: Mapping[str, Any]) -> str:
    """Write one event of a stream."""
    return f"data: {json.dumps(data, separators=(',', ':'))}\n\n"


def error(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as OpenAI's error, with its four keys."""
    body = refusal.body(request_id="")
    del body["error"]["request_id"]
    return body
