"""Converts OpenAI chat messages to a list of turns, and back.

Calls and their results become parts of the assistant's message; role `tool` exists only in the
list. Content lost on import is reported (`KIND:detail`). A message that cannot be read is rejected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    WireMessage,
)

JOINT = "\n\n"


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """One message without an id: its role and its parts."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """A parsed list of chat messages. Its system text is separate and is not applied."""

    system: str
    messages: tuple[ReadMessage, ...]
    losses: tuple[str, ...] = ()


class MalformedChatMessage(ValueError):
    """A chat message cannot be parsed."""

    code = "malformed_chat_message"


def parse_chat_messages(data: object) -> ReadMessages:
    """Parse chat messages. Raises MalformedChatMessage for an unknown format.

    Losses: `system_moved:N` (a system text after the first message), `stray_result:ID` (a result
    whose call is not in the preceding message), `content_dropped:KIND` (content that a message
    cannot contain).
    """
    if not isinstance(data, list | tuple):
        raise MalformedChatMessage("The messages must be a list.")
    reader = _MessageReader()
    for place, item in enumerate(data, start=1):
        reader.read(item, place)
    messages = tuple(ReadMessage(role, tuple(parts)) for role, parts in reader.said)
    return ReadMessages(JOINT.join(reader.system), messages, tuple(reader.losses))


def format_chat_messages(wires: Sequence[WireMessage]) -> list[dict[str, object]]:
    """Convert wire messages to JSON-serialisable chat messages, without images and reasoning."""
    return [_write_message(wire) for wire in wires]


class _MessageReader:
    def __init__(self) -> None:
        self.system: list[str] = []
        self.said: list[tuple[Role, list[Part]]] = []
        self.losses: list[str] = []

    def read(self, item: object, place: int) -> None:
        """Parse the message at `place`; raises MalformedChatMessage if its format is unknown."""
        if not isinstance(item, Mapping):
            raise MalformedChatMessage(f"Message {place} must be an object.")
        role = item.get("role")
        if role in ("system", "developer"):
            self._system(item, place)
        elif role == "user":
            self.said.append(("user", self._content(item.get("content"), place)))
        elif role == "assistant":
            parts = self._content(item.get("content") or "", place)
            self.said.append(("assistant", [*parts, *_calls(item.get("tool_calls"), place)]))
        elif role == "tool":
            self._result(item, place)
        else:
            raise MalformedChatMessage(
                f"Message {place} has the role {role!r}. Use system, developer, user, assistant or "
                "tool."
            )

    def _system(self, item: Mapping[str, object], place: int) -> None:
        if self.said:
            self.losses.append(f"system_moved:{place}")
        parts = self._content(item.get("content"), place)
        self.system += [part.text for part in parts if isinstance(part, TextPart)]

    def _result(self, item: Mapping[str, object], place: int) -> None:
        call_id = item.get("tool_call_id")
        if not isinstance(call_id, str):
            raise MalformedChatMessage(f"Message {place} needs a tool_call_id, a text.")
        parts = self.said[-1][1] if self.said else []
        names = {part.call_id: part.name for part in parts if isinstance(part, ToolCallPart)}
        if call_id not in names:
            self.losses.append(f"stray_result:{call_id}")
            return
        found = self._content(item.get("content"), place)
        content = JOINT.join(part.text for part in found if isinstance(part, TextPart))
        parts.append(ToolResultPart(call_id, names[call_id], content))

    def _content(self, content: object, place: int) -> list[Part]:
        if isinstance(content, str):
            return [TextPart(content)] if content else []
        if not isinstance(content, list | tuple):
            raise MalformedChatMessage(f"The content of message {place} must be a text or a list.")
        return [part for item in content for part in self._part(item, place)]

    def _part(self, item: object, place: int) -> list[Part]:
        kind = item.get("type") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(kind, str):
            raise MalformedChatMessage(f"A part of message {place} has no type.")
        if kind in ("text", "refusal") and isinstance(item.get(kind), str):
            return [TextPart(item[kind])]
        if kind == "image_url":
            image = item.get(kind)
            url = image.get("url") if isinstance(image, Mapping) else image
            return [FilePart("image/*", "", str(url))]
        self.losses.append(f"content_dropped:{kind}")
        return []


def _calls(data: object, place: int) -> list[Part]:
    if data is None:
        return []
    if not isinstance(data, list | tuple):
        raise MalformedChatMessage(f"The tool_calls of message {place} must be a list.")
    return [_call(item, place) for item in data]


def _call(item: object, place: int) -> ToolCallPart:
    fields = item if isinstance(item, Mapping) else {}
    function = fields.get("function")
    named = function if isinstance(function, Mapping) else {}
    read = (fields.get("id"), named.get("name"), named.get("arguments"))
    call_id, name, arguments = read
    if not (isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, str)):
        raise MalformedChatMessage(
            f"A call of message {place} needs an id, and a function with name and arguments."
        )
    return ToolCallPart(call_id, name, arguments)


def _write_message(wire: WireMessage) -> dict[str, object]:
    if wire.role == "tool":
        return {"role": "tool", "tool_call_id": wire.tool_call_id, "content": wire.content}
    written: dict[str, object] = {"role": wire.role, "content": wire.content}
    if wire.tool_calls:
        kind: Literal["function"] = "function"
        written["content"] = wire.content or None
        written["tool_calls"] = [
            {
                "id": call.call_id,
                "type": kind,
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in wire.tool_calls
        ]
    return written
