"""Items of the Responses API, which Codex and Open WebUI store: calls, their results, reasoning."""

from collections.abc import Mapping, Sequence
from typing import Any

from chats.exchange.draft_builder import Builder
from chats.exchange.entry_values import encode_as_json, extract_result_text, select_texts
from chats.exchange.jsonstream import get_list_items
from chats.exchange.tool_results import ResultCollector
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    ReasoningPart,
    ToolCallPart,
)

CALLS = frozenset({"function_call", "custom_tool_call"})
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})


def build_call(item: Mapping[str, Any]) -> ToolCallPart:
    """Return the call of an item whose type is one of `CALLS`."""
    arguments = encode_as_json(item.get("arguments") or item.get("input") or "{}")
    return ToolCallPart(str(item.get("call_id")), str(item.get("name")), arguments)


def build_reasoning(item: Mapping[str, Any]) -> list[Part]:
    """Return the reasoning of an item: its summary or, without one, its content."""
    for name in ("summary", "content"):
        listed = [s.get("text") for s in get_list_items(item.get(name)) if isinstance(s, Mapping)]
        if texts := select_texts(listed):
            return [ReasoningPart(text) for text in texts]
    return []


class ReplyParts:
    """Collects the parts of a reply that contains its calls and their results.

    `own_id`: the id of the reply, from which ids of calls without an id are made.
    """

    def __init__(self, own_id: str, builder: Builder) -> None:
        self.own_id = own_id
        self.builder = builder
        self.parts: list[Part] = []
        self.calls: dict[str, ToolCallPart] = {}
        self.results = ResultCollector(self.parts, builder.losses)

    def add_call(self, call_id: object, name: object, arguments: str) -> str:
        """Add a call. Return its id, which is new if the given one is empty or known."""
        own_id = str(call_id or "")
        if not own_id or own_id in self.calls:
            own_id = f"{own_id or self.own_id}-{len(self.calls) + 1}"
        call = ToolCallPart(own_id, str(name or "tool")[:200], arguments or "{}")
        self.calls[own_id] = call
        self.parts.append(call)
        return own_id

    def add_result(self, call_id: str, text: str, files: Sequence[FilePart] = ()) -> None:
        """Add a result with its files, or report it if the reply has no such call."""
        call = self.calls.get(call_id)
        if call is None:
            self.builder.losses.append(f"stray_result:{call_id[:80]}")
            return
        self.results.add(call, text, files)

    def add_code(self, code: str, *, language: str, output: str | None) -> None:
        """Add code that was run as a call, with its output if there is one."""
        arguments = encode_as_json({"language": language, "code": code})
        own_id = self.add_call("", "code_interpreter", arguments)
        if output is not None:
            self.add_result(own_id, output)

    def finish(self) -> list[Part]:
        """Return the parts with the results of the calls. Nothing may be added afterwards."""
        self.results.finish()
        return self.parts


def describe_output(output: object) -> str | None:
    """Return the output of code as text; None without one."""
    return extract_result_text(output) if output else None
