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
        # By the id in the file, which can repeat: the new ids of the calls without a result, and
        # that of the newest call.
        self.waiting: dict[str, list[str]] = {}
        self.newest: dict[str, str] = {}
        # The last number of a new id, by what precedes it.
        self.numbers: dict[str, int] = {}
        self.results = ResultCollector(self.parts, builder.losses)

    def add_call(self, call_id: object, name: object, arguments: str) -> str:
        """Add a call. Return its id, which is new if the given one is empty or known."""
        given = str(call_id or "")
        own_id = given if given and given not in self.calls else self.find_free_id(given)
        if given:
            self.waiting.setdefault(given, []).append(own_id)
            self.newest[given] = own_id
        call = ToolCallPart(own_id, str(name or "tool")[:200], arguments or "{}")
        self.calls[own_id] = call
        self.parts.append(call)
        return own_id

    def find_free_id(self, given: str) -> str:
        """Return an id that no call has yet, for one with an empty or a known id."""
        base = given or self.own_id
        number = max(self.numbers.get(base, 0), len(self.calls)) + 1
        while (free := f"{base}-{number}") in self.calls:
            number += 1
        self.numbers[base] = number
        return free

    def add_result(self, call_id: str, text: str, files: Sequence[FilePart] = ()) -> None:
        """Add a result with its files, by the id in the file. Report it if there is no such call.

        If the id repeats, it belongs to the newest call without a result.
        """
        waiting = self.waiting.get(call_id)
        own_id = waiting.pop() if waiting else self.newest.get(call_id)
        if own_id is None:
            self.builder.losses.append(f"stray_result:{call_id[:80]}")
            return
        self.results.add(self.calls[own_id], text, files)

    def add_own_result(self, own_id: str, text: str, files: Sequence[FilePart] = ()) -> None:
        """Add a result with its files to the call with this new id."""
        self.results.add(self.calls[own_id], text, files)

    def add_code(self, code: str, *, language: str, output: str | None) -> None:
        """Add code that was run as a call, with its output if there is one."""
        arguments = encode_as_json({"language": language, "code": code})
        own_id = self.add_call("", "code_interpreter", arguments)
        if output is not None:
            self.add_own_result(own_id, output)

    def finish(self) -> list[Part]:
        """Return the parts with the results of the calls. Nothing may be added afterwards."""
        self.results.finish()
        return self.parts


def describe_output(output: object) -> str | None:
    """Return the output of code as text; None without one."""
    return extract_result_text(output) if output else None
