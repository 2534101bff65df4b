"""Writes replies as responses: whole, or as the events of a stream."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chats.gateway import offered
from chats.gateway.wire import Reply, own_fields
from chats.ground.refusals import Refusal
from chats.ground.texts import storable_value
from contextpolicy.engine.extras import read_extras

# The codes that the form has for a failure; ours stands in the event before it.
ARGUMENTS = "response.function_call_arguments"
# Before the fields of a reply in a reasoning item of ours.
FIELDS_MARK = "fields:"
RATE_LIMIT, SERVER_ERROR = "rate_limit_exceeded", "server_error"


@dataclass(slots=True, kw_only=True)
class ResponseForm:
    """One reply on its way; `echo` are the fields that come back as they were sent."""

    id: str
    created: int
    echo: Mapping[str, Any]
    # How calls are written whose tools have another form than a function.
    forms: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    number: int = 0
    has_text: bool = False

    @property
    def message_id(self) -> str:
        """The id of the item that has the text."""
        return self.id.replace("resp_", "msg_", 1)

    def opening(self) -> str:
        """Return the events before the first words."""
        begun = self.frame(status="in_progress", output=[])
        return self.event("response.created", response=begun) + self.event(
            "response.in_progress", response=begun
        )

    def text(self, text: str) -> str:
        """Return more text, behind the beginning of its item."""
        begun = ""
        if not self.has_text:
            self.has_text = True
            item = message(self.message_id, None, status="in_progress")
            begun = self.event("response.output_item.added", output_index=0, item=item)
            begun += self.event("response.content_part.added", **self.place, part=text_part(""))
        delta = "response.output_text.delta"
        return begun + self.event(delta, **self.place, delta=text, logprobs=[])

    def ending(self, reply: Reply) -> str:
        """Return the end of the text, the calls, and the whole response."""
        events = ""
        output = self.output(reply)
        if self.has_text:
            done = "response.output_text.done"
            events += self.event(done, **self.place, text=reply.text, logprobs=[])
            part = text_part(reply.text)
            events += self.event("response.content_part.done", **self.place, part=part)
        for place, item in enumerate(output):
            if item["type"] == "reasoning":
                added = {**item, "status": "in_progress"}
                events += self.event("response.output_item.added", output_index=place, item=added)
            elif item["type"] != "message":
                events += self.call(item, place)
            if item["type"] != "message" or self.has_text:
                events += self.event("response.output_item.done", output_index=place, item=item)
        whole = self.completed(reply, output)
        return events + self.event(f"response.{whole['status']}", response=whole)

    def call(self, item: Mapping[str, Any], place: int) -> str:
        """Return the events of one call, before its end."""
        at = {"item_id": item["id"], "output_index": place}
        is_custom = item["type"] == "custom_tool_call"
        name = "input" if is_custom else "arguments"
        begun = {**item, name: "", "status": "in_progress"}
        told = {"input": item[name]} if is_custom else {"name": item["name"], name: item[name]}
        kind = "response.custom_tool_call_input" if is_custom else ARGUMENTS
        return (
            self.event("response.output_item.added", output_index=place, item=begun)
            + self.event(f"{kind}.delta", **at, delta=item[name])
            + self.event(f"{kind}.done", **at, **told)
        )

    def whole(self, reply: Reply) -> str:
        """Return the response in one piece."""
        return json.dumps(self.completed(reply, self.output(reply)))

    def broken(self, refusal: Refusal) -> str:
        """Return the end of a stream that breaks off: our code, then the failed response."""
        code = RATE_LIMIT if refusal.code == RATE_LIMIT else SERVER_ERROR
        error = {"code": code, "message": refusal.sentence}
        failed = self.frame(status="failed", output=[], error=error)
        told = {"code": refusal.code, "message": refusal.sentence, "param": refusal.param}
        return self.event("error", **told) + self.event("response.failed", response=failed)

    def compacted(self, item: Mapping[str, Any], *, is_stream: bool) -> str:
        """Return a response that has one compaction item alone."""
        whole = self.frame(status="completed", output=[item], usage=usage({}))
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
        """The place of the text."""
        return {"item_id": self.message_id, "output_index": 0, "content_index": 0}

    def output(self, reply: Reply) -> list[dict[str, Any]]:
        """Return the items of a reply: its text, unless there is none, then its calls."""
        found = [message(self.message_id, reply.text, status=status_of(reply))]
        if not reply.text:
            found = []
        own = own_fields(reply)
        if own or reply.thoughts:
            item_id = self.id.replace("resp_", "rs_", 1)
            found.append(reasoning(item_id, own, thoughts=reply.thoughts))
        for number, call in enumerate(reply.calls):
            item = offered.written(call, forms=self.forms)
            item = {**read_extras(call.get("extra", "")).call, **item}
            mark = "ctc_" if item["type"] == "custom_tool_call" else "fc_"
            item_id = f"{self.id.replace('resp_', mark, 1)}_{number}"
            found.append({"id": item_id, "status": "completed", **item})
        return found

    def completed(self, reply: Reply, output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the response of a reply that is over."""
        status = status_of(reply)
        told = usage(reply.usage) if reply.usage else None
        made = self.frame(status=status, output=output, usage=told)
        if status == "incomplete":
            made["incomplete_details"] = {"reason": "max_output_tokens"}
        return made

    def frame(self, *, status: str, output: Sequence[Any], **more: Any) -> dict[str, Any]:
        """Return a response as it stands."""
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
        """Write one event of the stream, numbered."""
        told = {"type": kind, "sequence_number": self.number, **fields}
        self.number += 1
        return f"event: {kind}\ndata: {json.dumps(told, separators=(',', ':'))}\n\n"


def reasoning(item_id: str, own: Mapping[str, Any], *, thoughts: str) -> dict[str, Any]:
    """Return the item with a reply's thoughts, and the fields that its server wants back.

    Clients show the summary, and return the encrypted content unchanged.
    """
    sealed = base64.b64encode(json.dumps(own).encode()).decode()
    return {
        "id": item_id,
        "type": "reasoning",
        "status": "completed",
        "summary": [{"type": "summary_text", "text": thoughts}] if thoughts else [],
        "encrypted_content": f"{FIELDS_MARK}{sealed}" if own else None,
    }


def fields_in(sealed: Any) -> dict[str, Any]:
    """Return the fields in a reasoning item of ours; empty for one of another server."""
    if not isinstance(sealed, str) or not sealed.startswith(FIELDS_MARK):
        return {}
    try:
        found = json.loads(base64.b64decode(sealed.removeprefix(FIELDS_MARK), validate=True))
    except (ValueError, RecursionError):
        return {}
    return storable_value(found) if isinstance(found, dict) else {}


def echo_of(sent: Mapping[str, Any], *, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of a request that its response repeats."""
    text = sent.get("text") or {}
    reasoning = sent.get("reasoning") or {}
    return {
        "model": sent["model"],
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
        "tools": [{"type": "function", **tool} for tool in tools],
        "top_p": sent.get("top_p"),
        "truncation": sent.get("truncation") or "disabled",
    }


def status_of(reply: Reply) -> str:
    """Return the status of a reply that is over."""
    return "incomplete" if reply.finish == "length" else "completed"


def message(item_id: str, text: str | None, *, status: str) -> dict[str, Any]:
    """Return the item of a text; None: it has not begun."""
    content = [] if text is None else [text_part(text)]
    return {
        "id": item_id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def text_part(text: str) -> dict[str, Any]:
    """Return the part of a text."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def usage(told: Mapping[str, int]) -> dict[str, Any]:
    """Return what the provider counted."""
    sent, written = told.get("input", 0), told.get("output", 0)
    return {
        "input_tokens": sent,
        "input_tokens_details": {
            "cached_tokens": told.get("cached", 0),
            "cache_write_tokens": 0,
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": told.get("reasoning", 0)},
        "total_tokens": sent + written,
    }
