"""Conversion of request messages to system texts and items.

Tool calls and their results become parts of the reply that made them. The role `tool` exists only
in requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chats.exchange.thoughts import extract_reasoning_parts
from chats.gateway.errors import InvalidRequest
from chats.gateway.files import GivenFile, parse_file_part
from chats.gateway.images import parse_image_part
from chats.record.images import Bytes
from contextpolicy.engine.messages.extras import (
    ORIGIN_MARK,
    THOUGHTS,
    CallExtras,
    read_extras,
    select_unknown_call_fields,
    select_unknown_message_fields,
)
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

MOST_MESSAGES = 20_000
SYSTEM = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Item:
    """A message of a user or a model. A reply's parts include the results of its calls."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def results(self) -> tuple[ToolResultPart, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResultPart))


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a request, and its distinct system texts.

    `images`: the image data in the request, and `files`: its documents and uploads, by SHA-256.
    """

    system: tuple[str, ...]
    items: tuple[Item, ...]
    images: Mapping[str, Bytes] = field(default_factory=dict)
    files: Mapping[str, GivenFile] = field(default_factory=dict)


def parse_messages(messages: Any) -> Conversation:
    """Parse the messages of a request. Raises `InvalidRequest`, naming the field."""
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest(
            "messages must be a list with at least one message.",
            param="messages",
            code="missing_field",
        )
    if len(messages) > MOST_MESSAGES:
        raise InvalidRequest(f"messages has more than {MOST_MESSAGES:,} entries.", param="messages")
    reader = RequestReader()
    for place, message in enumerate(messages):
        reader.take(message, param=f"messages[{place}]")
    reader.end_calls(param=f"messages[{len(messages)}]")
    return check_conversation(reader.conversation, field="messages")


def check_conversation(said: Conversation, *, field: str) -> Conversation:
    """Return the conversation if a reply can follow it. Raises `InvalidRequest`."""
    items = said.items
    if not any(item.role == "user" for item in items):
        raise InvalidRequest(f"{field} needs a user message.", param=field)
    if items[-1].role == "assistant" and not items[-1].results:
        problem = (
            "The last message must be a user message or a tool result, so that a reply can follow."
        )
        raise InvalidRequest(problem, param=field, code="unsupported_content")
    return said


class RequestReader:
    """Parses the messages of a request one at a time, and attaches tool results to their calls."""

    def __init__(self) -> None:
        self.system: list[str] = []
        self.items: list[Item] = []
        self.images: dict[str, Bytes] = {}
        self.files: dict[str, GivenFile] = {}
        # Open calls of the latest reply: names by call id.
        self.open: dict[str, str] = {}

    @property
    def conversation(self) -> Conversation:
        system = tuple(dict.fromkeys(self.system))
        return Conversation(system, tuple(self.items), self.images, self.files)

    def take(self, message: Any, *, param: str) -> None:
        """Parse a message. Raises `InvalidRequest`."""
        if not isinstance(message, dict):
            raise InvalidRequest(f"{param} must be an object.", param=param)
        role = message.get("role")
        if role == "tool":
            self.take_result(message, param=param)
            return
        if role in SYSTEM:
            self.system += [
                part.text for part in parse_text_parts(message, param=param) if part.text
            ]
            return
        self.end_calls(param=param)
        if role == "user":
            self.items.append(Item("user", self.seen_and_said(message, param=param)))
        elif role == "assistant":
            self.take_reply(message, param=param)
        else:
            problem = f"{param}.role must be system, developer, user, assistant or tool."
            raise InvalidRequest(problem, param=f"{param}.role")

    def seen_and_said(
        self, message: Mapping[str, Any], *, param: str
    ) -> tuple[TextPart | FilePart, ...]:
        """Return the texts, images and files of a user message. Raises `InvalidRequest`."""
        said = message.get("content")
        if not isinstance(said, list):
            return parse_text_parts(message, param=param)
        return tuple(
            self.parse_user_part(part, param=f"{param}.content[{n}]") for n, part in enumerate(said)
        )

    def parse_user_part(self, part: Any, *, param: str) -> TextPart | FilePart:
        """Return a part of a user message. Raises `InvalidRequest`."""
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "image_url":
            return parse_image_part(part, param=param, found=self.images)
        if kind == "file":
            return parse_file_part(part, param=param, images=self.images, files=self.files)
        return TextPart(parse_part_text(part, param=param))

    def take_reply(self, message: Mapping[str, Any], *, param: str) -> None:
        """Parse a reply with its calls. Raises `InvalidRequest`."""
        content = message.get("content")
        texts = parse_text_parts(message, param=param) if content is not None else ()
        calls = parse_tool_calls(message, param=param)
        thoughts = extract_reasoning(message) if calls else ""
        self.add_reply(texts, calls, param=f"{param}.tool_calls", thoughts=thoughts)

    def add_reply(
        self,
        texts: Sequence[TextPart],
        calls: Sequence[ToolCallPart],
        *,
        param: str,
        thoughts: str = "",
    ) -> None:
        """Add a reply, whose calls then wait for results. Thoughts in its text become reasoning.

        Raises `InvalidRequest`.
        """
        self.open = {call.call_id: call.name for call in calls}
        if len(self.open) < len(calls):
            raise InvalidRequest(f"{param} has a duplicate id.", param=param)
        before = (ReasoningPart(thoughts),) if thoughts else ()
        parts = extract_reasoning_parts([part for part in texts if part.text])
        self.items.append(Item("assistant", (*before, *parts, *calls)))

    def take_result(self, message: Mapping[str, Any], *, param: str) -> None:
        """Add a tool result to its call. Raises `InvalidRequest`."""
        content = "".join(part.text for part in parse_text_parts(message, param=param))
        self.add_result(message.get("tool_call_id"), content, param=f"{param}.tool_call_id")

    def add_result(self, call_id: Any, content: str, *, param: str) -> None:
        """Add a tool result to its call. Raises `InvalidRequest` for `param`, its id field."""
        if not isinstance(call_id, str) or call_id not in self.open:
            problem = f"{param} does not match an open call of the previous reply."
            raise InvalidRequest(problem, param=param)
        result = ToolResultPart(call_id, self.open.pop(call_id), content)
        last = self.items[-1]
        self.items[-1] = Item(last.role, (*last.parts, result))

    def end_calls(self, *, param: str) -> None:
        """Raise `InvalidRequest` if a call of the last reply has no result."""
        if self.open:
            problem = f"The call {next(iter(self.open))[:80]!r} before {param} has no result."
            raise InvalidRequest(problem, param=param)


def extract_reasoning(message: Mapping[str, Any]) -> str:
    """Return the reasoning that a client sends back with a reply's calls."""
    texts = (message.get(name) for name in THOUGHTS)
    return next((text for text in texts if isinstance(text, str) and text), "")


def parse_text_parts(message: Mapping[str, Any], *, param: str) -> tuple[TextPart, ...]:
    """Return the texts of a message, one per part. Raises `InvalidRequest`."""
    content = message.get("content")
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list):
        raise InvalidRequest(f"{param}.content must be a text or a list.", param=f"{param}.content")
    found = [parse_part_text(part, param=f"{param}.content[{n}]") for n, part in enumerate(content)]
    return tuple(TextPart(text) for text in found)


def parse_part_text(part: Any, *, param: str) -> str:
    """Return the text of a part. Raises `InvalidRequest` for other parts."""
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(kind) if kind in ("text", "refusal") else None
    if not isinstance(text, str):
        problem = f"{param} is not a text. Only user messages can have images and files. Audio is "
        problem += "not supported."
        raise InvalidRequest(problem, param=param, code="unsupported_content")
    return text


def parse_tool_calls(message: Mapping[str, Any], *, param: str) -> list[ToolCallPart]:
    """Return the calls of a reply. Raises `InvalidRequest`."""
    calls = message.get("tool_calls")
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise InvalidRequest(f"{param}.tool_calls must be a list.", param=f"{param}.tool_calls")
    found = [
        parse_tool_call(item, param=f"{param}.tool_calls[{n}]") for n, item in enumerate(calls)
    ]
    return attach_provider_fields(found, message)


def attach_provider_fields(
    calls: list[ToolCallPart], message: Mapping[str, Any]
) -> list[ToolCallPart]:
    """Attach the fields that the provider expects back: those of the message to the first call.

    Each call gets the mark of the model that made it.
    """
    thoughts = next((name for name in THOUGHTS if isinstance(message.get(name), str)), "")
    mark = message.get(ORIGIN_MARK)
    found = [
        replace(read_extras(call.extra), by=mark if isinstance(mark, str) else "") for call in calls
    ]
    if found:
        found[0] = replace(
            found[0], message=select_unknown_message_fields(message), thoughts=thoughts
        )
    return [
        replace(call, extra=extras.written()) for call, extras in zip(calls, found, strict=True)
    ]


def parse_tool_call(item: Any, *, param: str) -> ToolCallPart:
    """Return a tool call with its id, name and JSON arguments. Raises `InvalidRequest`."""
    fields = item if isinstance(item, dict) else {}
    function = fields.get("function")
    named = function if isinstance(function, dict) else {}
    call_id, name, arguments = fields.get("id"), named.get("name"), named.get("arguments")
    if not (isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, str)):
        raise InvalidRequest(
            f"{param} needs an id, and a function with a name and arguments.", param=param
        )
    extras = CallExtras(call=select_unknown_call_fields(fields))
    return ToolCallPart(call_id, name, arguments, extras.written())
