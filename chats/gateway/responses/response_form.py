"""Formats replies as OpenAI responses: complete, or as stream events."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chats.gateway.logprobs import Logprobs, list_entries
from chats.gateway.responses import tools
from chats.gateway.wire import Reply, collect_provider_fields
from chats.ground.refusals import Refusal
from chats.ground.texts import sanitise_value
from contextpolicy.engine.messages.extras import read_extras

ARGUMENTS = "response.function_call_arguments"
# Prefix of the provider's fields in our reasoning items.
FIELDS_MARK = "fields:"
# OpenAI's error codes for a failed response. The `error` event before it has our own code.
RATE_LIMIT, SERVER_ERROR = "rate_limit_exceeded", "server_error"


@dataclass(slots=True, kw_only=True)
class ResponseForm:
    """The format of one reply. `echo` has the request fields that the response repeats."""

    id: str
    created: int
    echo: Mapping[str, Any]
    # Item form of the calls of tools that are not plain functions.
    forms: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    number: int = 0
    has_text: bool = False
    # The reasoning so far, and whether its end was sent.
    thought: str = ""
    has_closed_thoughts: bool = False

    @property
    def message_id(self) -> str:
        return self.id.replace("resp_", "msg_", 1)

    @property
    def reasoning_id(self) -> str:
        return self.id.replace("resp_", "rs_", 1)

    def opening(self) -> str:
        begun = self.frame(status="in_progress", output=[])
        return self.event("response.created", response=begun) + self.event(
            "response.in_progress", response=begun
        )

    def text(self, text: str, found: Logprobs = ()) -> str:
        """Return the events for more text. The first call also starts the text item."""
        begun = ""
        if not self.has_text:
            begun = self.close_thoughts()
            self.has_text = True
            item = build_text_item(self.message_id, None, status="in_progress")
            at = self.place["output_index"]
            begun += self.event("response.output_item.added", output_index=at, item=item)
            begun += self.event(
                "response.content_part.added", **self.place, part=build_text_part("")
            )
        delta = "response.output_text.delta"
        logprobs = list_entries(found)
        return begun + self.event(delta, **self.place, delta=text, logprobs=logprobs)

    def thoughts(self, text: str) -> str:
        """Return the events for more reasoning. The first call also starts its item.

        Reasoning after the first text appears only in the final item.
        """
        if self.has_text:
            return ""
        begun = ""
        if not self.thought:
            item = build_reasoning_item(self.reasoning_id, {}, thoughts="", status="in_progress")
            begun = self.event("response.output_item.added", output_index=0, item=item)
            added = "response.reasoning_summary_part.added"
            begun += self.event(added, **self.thought_place, part=build_summary_part(""))
        self.thought += text
        delta = "response.reasoning_summary_text.delta"
        return begun + self.event(delta, **self.thought_place, delta=text)

    def close_thoughts(self) -> str:
        """Return the end of the reasoning text. Its item ends with the response."""
        if not self.thought or self.has_closed_thoughts:
            return ""
        self.has_closed_thoughts = True
        done, at = "response.reasoning_summary_text.done", self.thought_place
        part = build_summary_part(self.thought)
        return self.event(done, **at, text=self.thought) + self.event(
            "response.reasoning_summary_part.done", **at, part=part
        )

    def ending(self, reply: Reply) -> str:
        """Return the end of reasoning and text, the calls, and the complete response."""
        events = self.close_thoughts()
        output = self.output(reply)
        if self.thought:
            events += self.event("response.output_item.done", output_index=0, item=output[0])
        if self.has_text:
            done, logprobs = "response.output_text.done", list_entries(reply.logprobs)
            events += self.event(done, **self.place, text=reply.text, logprobs=logprobs)
            part = build_text_part(reply.text, found=reply.logprobs)
            events += self.event("response.content_part.done", **self.place, part=part)
        for place, item in enumerate(output):
            if item["type"] == "reasoning":
                if self.thought:
                    continue
                added = {**item, "status": "in_progress"}
                events += self.event("response.output_item.added", output_index=place, item=added)
            elif item["type"] != "message":
                events += self.call(item, place)
            if item["type"] != "message" or self.has_text:
                events += self.event("response.output_item.done", output_index=place, item=item)
        whole = self.completed(reply, output)
        return events + self.event(f"response.{whole['status']}", response=whole)

    def call(self, item: Mapping[str, Any], place: int) -> str:
        """Return the events of one call, without the end of its item."""
        at = {"item_id": item["id"], "output_index": place}
        is_custom = item["type"] == "custom_tool_call"
        name = "input" if is_custom else "arguments"
        begun = {**item, name: "", "status": "in_progress"}
        fields = {"input": item[name]} if is_custom else {"name": item["name"], name: item[name]}
        kind = "response.custom_tool_call_input" if is_custom else ARGUMENTS
        return (
            self.event("response.output_item.added", output_index=place, item=begun)
            + self.event(f"{kind}.delta", **at, delta=item[name])
            + self.event(f"{kind}.done", **at, **fields)
        )

    def whole(self, reply: Reply) -> str:
        output = self.output(reply)
        if reply.is_refusal:
            output = [decline_text_item(item) for item in output]
        return json.dumps(self.completed(reply, output))

    def broken(self, refusal: Refusal) -> str:
        """Return the end of a failed stream: an error with our code, then the failed response."""
        code = RATE_LIMIT if refusal.code == RATE_LIMIT else SERVER_ERROR
        error = {"code": code, "message": refusal.sentence}
        failed = self.frame(status="failed", output=[], error=error)
        details = {"code": refusal.code, "message": refusal.sentence, "param": refusal.param}
        return self.event("error", **details) + self.event("response.failed", response=failed)

    def compacted(self, item: Mapping[str, Any], *, is_stream: bool) -> str:
        whole = self.frame(status="completed", output=[item], usage=format_response_usage({}))
        if not is_stream:
            return json.dumps(whole)
        return (
            self.opening()
            + self.event("response.output_item.added", output_index=0, item=item)
            + self.event("response.output_item.done", output_index=0, item=item)
            + self.event("response.completed", response=whole)
        )

    @property
    def place(self) -> dict[str, Any]:
        """The position of the text item, which follows any reasoning sent before it."""
        index = 1 if self.thought else 0
        return {"item_id": self.message_id, "output_index": index, "content_index": 0}

    @property
    def thought_place(self) -> dict[str, Any]:
        return {"item_id": self.reasoning_id, "output_index": 0, "summary_index": 0}

    def output(self, reply: Reply) -> list[dict[str, Any]]:
        """Return the items of a reply: reasoning and text, if any, and calls.

        A stream whose text started before its reasoning has the text first.
        """
        found = []
        own = collect_provider_fields(reply)
        # A restarted reply may have no reasoning. The part sent before is kept.
        thoughts = reply.thoughts or self.thought
        if own or thoughts:
            found.append(build_reasoning_item(self.reasoning_id, own, thoughts=thoughts))
        if reply.text:
            place = 0 if self.has_text and not self.thought else len(found)
            status = format_reply_status(reply)
            text = build_text_item(self.message_id, reply.text, status=status, found=reply.logprobs)
            found.insert(place, text)
        for number, call in enumerate(reply.calls):
            item = tools.build_call_item(call, forms=self.forms)
            item = {**read_extras(call.get("extra", "")).call, **item}
            mark = "ctc_" if item["type"] == "custom_tool_call" else "fc_"
            item_id = f"{self.id.replace('resp_', mark, 1)}_{number}"
            found.append({"id": item_id, "status": "completed", **item})
        return found

    def completed(self, reply: Reply, output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        status = format_reply_status(reply)
        usage = format_response_usage(reply.usage)
        made = self.frame(status=status, output=output, usage=usage)
        if status == "incomplete":
            made["incomplete_details"] = {"reason": "max_output_tokens"}
        return made

    def frame(self, *, status: str, output: Sequence[Any], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "output": list(output),
            "usage": None,
            **self.echo,
            **more,
        }

    def event(self, kind: str, **fields: Any) -> str:
        data = {"type": kind, "sequence_number": self.number, **fields}
        self.number += 1
        return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def build_reasoning_item(
    item_id: str, own: Mapping[str, Any], *, thoughts: str, status: str = "completed"
) -> dict[str, Any]:
    """Return the reasoning item, including the fields that the provider expects back.

    Clients show the summary, and return the encrypted content unchanged.
    """
    sealed = base64.b64encode(json.dumps(own).encode()).decode()
    return {
        "id": item_id,
        "type": "reasoning",
        "status": status,
        "summary": [build_summary_part(thoughts)] if thoughts else [],
        "encrypted_content": f"{FIELDS_MARK}{sealed}" if own else None,
    }


def build_summary_part(text: str) -> dict[str, Any]:
    """Return the part of a reasoning item that clients display."""
    return {"type": "summary_text", "text": text}


def decode_provider_fields(sealed: Any) -> dict[str, Any]:
    """Return the fields in one of our reasoning items; empty for those from other servers."""
    if not isinstance(sealed, str) or not sealed.startswith(FIELDS_MARK):
        return {}
    try:
        found = json.loads(base64.b64decode(sealed.removeprefix(FIELDS_MARK), validate=True))
    except (ValueError, RecursionError):
        return {}
    return sanitise_value(found) if isinstance(found, dict) else {}


def build_request_echo(
    sent: Mapping[str, Any], *, tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the request fields that the response repeats."""
    text = sent.get("text") or {}
    reasoning = sent.get("reasoning") or {}
    named = sent.get("conversation")
    return {
        "model": sent["model"],
        "conversation": {"id": named} if isinstance(named, str) else named,
        "instructions": sent.get("instructions"),
        "max_output_tokens": sent.get("max_output_tokens"),
        "metadata": sent.get("metadata") or {},
        "parallel_tool_calls": sent.get("parallel_tool_calls") is not False,
        "previous_response_id": sent.get("previous_response_id"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "store": sent.get("store") is not False,
        "temperature": sent.get("temperature"),
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tool_choice": sent.get("tool_choice") or "auto",
        "tools": [
            tool["parameters"] if tool.get("hosted") else {"type": "function", **tool}
            for tool in tools
        ],
        "top_logprobs": sent.get("top_logprobs") or 0,
        "top_p": sent.get("top_p"),
        "truncation": sent.get("truncation") or "disabled",
    }


def format_reply_status(reply: Reply) -> str:
    return "incomplete" if reply.finish == "length" else "completed"


def build_text_item(
    item_id: str, text: str | None, *, status: str, found: Logprobs | None = None
) -> dict[str, Any]:
    """Return a text item. `found`: its log probabilities.

    If `text` is None, the text has not started and the item has no content.
    """
    content = [] if text is None else [build_text_part(text, found=found)]
    return {
        "id": item_id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def decline_text_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the item with its text as a refusal. Other items are unchanged."""
    if item["type"] != "message":
        return dict(item)
    return {
        **item,
        "content": [{"type": "refusal", "refusal": part["text"]} for part in item["content"]],
    }


def build_text_part(text: str, *, found: Logprobs | None = None) -> dict[str, Any]:
    logprobs = list_entries(found)
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def format_response_usage(usage: Mapping[str, int]) -> dict[str, Any]:
    """Return the provider's token counts. Each is 0 if it reported none: clients need numbers."""
    sent, written = usage.get("input", 0), usage.get("output", 0)
    return {
        "input_tokens": sent,
        "input_tokens_details": {
            "cached_tokens": usage.get("cached", 0),
            "cache_write_tokens": usage.get("written", 0),
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": usage.get("reasoning", 0)},
        "total_tokens": sent + written,
    }
