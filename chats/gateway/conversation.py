"""Cuts the messages of a request: the head, later system texts, and what was said.

Calls and their results become parts of the reply that made them, as everywhere here; the role
`tool` exists on the wire only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chats.gateway.images import from_chat_part
from chats.gateway.refused import InvalidRequest
from chats.record.images import Bytes
from contextpolicy.engine.extras import (
    THOUGHTS,
    CallExtras,
    read_extras,
    unknown_of_call,
    unknown_of_message,
)
from contextpolicy.engine.messages import (
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
    """One message of a person or a model; `parts` of a reply include the results of its calls."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The visible words."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def results(self) -> tuple[ToolResultPart, ...]:
        """The results of its calls."""
        return tuple(part for part in self.parts if isinstance(part, ToolResultPart))


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a request: `system` is the head, then later system texts, each once.

    `images`: the bytes of those that it brought, by their hash.
    """

    system: tuple[str, ...]
    items: tuple[Item, ...]
    images: Mapping[str, Bytes] = field(default_factory=dict)


def read(messages: Any) -> Conversation:
    """Read the messages of a request. Raises `InvalidRequest`, naming the place."""
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
    return checked(reader.conversation, field="messages")


def checked(said: Conversation, *, field: str) -> Conversation:
    """Return the conversation if a reply can follow it. Raises `InvalidRequest`."""
    items = said.items
    if not any(item.role == "user" for item in items):
        raise InvalidRequest(f"{field} needs a message of the user.", param=field)
    if items[-1].role == "assistant" and not items[-1].results:
        problem = "The last message must be the user's or a tool's: a reply follows it."
        raise InvalidRequest(problem, param=field, code="unsupported_content")
    return said


class RequestReader:
    """Reads one message after the other."""

    def __init__(self) -> None:
        self.system: list[str] = []
        self.items: list[Item] = []
        self.images: dict[str, Bytes] = {}
        # The calls of the newest reply that wait for their results: name by id.
        self.open: dict[str, str] = {}

    @property
    def conversation(self) -> Conversation:
        """What was read."""
        return Conversation(tuple(dict.fromkeys(self.system)), tuple(self.items), self.images)

    def take(self, message: Any, *, param: str) -> None:
        """Read a message; raises `InvalidRequest`."""
        if not isinstance(message, dict):
            raise InvalidRequest(f"{param} must be an object.", param=param)
        role = message.get("role")
        if role == "tool":
            self.take_result(message, param=param)
            return
        if role in SYSTEM:
            self.system += [part.text for part in contents(message, param=param) if part.text]
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
        """Return the texts and images of a user's message. Raises `InvalidRequest`."""
        said = message.get("content")
        if not isinstance(said, list):
            return contents(message, param=param)
        return tuple(
            from_chat_part(part, param=f"{param}.content[{n}]", found=self.images)
            if isinstance(part, dict) and part.get("type") == "image_url"
            else TextPart(text_of(part, param=f"{param}.content[{n}]"))
            for n, part in enumerate(said)
        )

    def take_reply(self, message: Mapping[str, Any], *, param: str) -> None:
        """Read a reply with its calls; raises `InvalidRequest`."""
        said = message.get("content")
        texts = contents(message, param=param) if said is not None else ()
        calls = calls_of(message, param=param)
        thoughts = thoughts_of(message) if calls else ""
        self.add_reply(texts, calls, param=f"{param}.tool_calls", thoughts=thoughts)

    def add_reply(
        self,
        texts: Sequence[TextPart],
        calls: Sequence[ToolCallPart],
        *,
        param: str,
        thoughts: str = "",
    ) -> None:
        """Add a reply, whose calls wait for their results. Raises `InvalidRequest`."""
        self.open = {call.call_id: call.name for call in calls}
        if len(self.open) < len(calls):
            raise InvalidRequest(f"{param} has an id twice.", param=param)
        before = (ReasoningPart(thoughts),) if thoughts else ()
        said = (part for part in texts if part.text)
        self.items.append(Item("assistant", (*before, *said, *calls)))

    def take_result(self, message: Mapping[str, Any], *, param: str) -> None:
        """Put a result behind its call; raises `InvalidRequest`."""
        content = "".join(part.text for part in contents(message, param=param))
        self.add_result(message.get("tool_call_id"), content, param=f"{param}.tool_call_id")

    def add_result(self, call_id: Any, content: str, *, param: str) -> None:
        """Put a result behind its call. Raises `InvalidRequest`; `param` is where its id stands."""
        if not isinstance(call_id, str) or call_id not in self.open:
            problem = f"{param} names no call of the reply before it without a result."
            raise InvalidRequest(problem, param=param)
        result = ToolResultPart(call_id, self.open.pop(call_id), content)
        last = self.items[-1]
        self.items[-1] = Item(last.role, (*last.parts, result))

    def end_calls(self, *, param: str) -> None:
        """Raise `InvalidRequest` if a call still waits for its result."""
        if self.open:
            problem = f"The call {next(iter(self.open))[:80]!r} before {param} has no result."
            raise InvalidRequest(problem, param=param)


def thoughts_of(message: Mapping[str, Any]) -> str:
    """Return the thoughts that a program sends back with a reply's calls."""
    texts = (message.get(name) for name in THOUGHTS)
    return next((text for text in texts if isinstance(text, str) and text), "")


def contents(message: Mapping[str, Any], *, param: str) -> tuple[TextPart, ...]:
    """Return the texts of a message, one for each part. Raises `InvalidRequest`."""
    said = message.get("content")
    if isinstance(said, str):
        return (TextPart(said),)
    if not isinstance(said, list):
        raise InvalidRequest(f"{param}.content must be a text or a list.", param=f"{param}.content")
    found = [text_of(part, param=f"{param}.content[{n}]") for n, part in enumerate(said)]
    return tuple(TextPart(text) for text in found)


def text_of(part: Any, *, param: str) -> str:
    """Return the text of a part. Raises `InvalidRequest` for a part that is none."""
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(kind) if kind in ("text", "refusal") else None
    if not isinstance(text, str):
        problem = f"{param} is no text, and only a user's message has images. Sound and files are "
        problem += "not taken here."
        raise InvalidRequest(problem, param=param, code="unsupported_content")
    return text


def calls_of(message: Mapping[str, Any], *, param: str) -> list[ToolCallPart]:
    """Return the calls of a reply. Raises `InvalidRequest`."""
    said = message.get("tool_calls")
    if said is None:
        return []
    if not isinstance(said, list):
        raise InvalidRequest(f"{param}.tool_calls must be a list.", param=f"{param}.tool_calls")
    found = [call_of(item, param=f"{param}.tool_calls[{n}]") for n, item in enumerate(said)]
    return with_fields(found, message)


def with_fields(calls: list[ToolCallPart], message: Mapping[str, Any]) -> list[ToolCallPart]:
    """Return calls whose first has what the model's server wants back of their message."""
    if not calls:
        return []
    thoughts = next((name for name in THOUGHTS if isinstance(message.get(name), str)), "")
    extras = read_extras(calls[0].extra)
    extras = replace(extras, message=unknown_of_message(message), thoughts=thoughts)
    return [replace(calls[0], extra=extras.written()), *calls[1:]]


def call_of(item: Any, *, param: str) -> ToolCallPart:
    """Return one call. Raises `InvalidRequest`."""
    fields = item if isinstance(item, dict) else {}
    function = fields.get("function")
    named = function if isinstance(function, dict) else {}
    call_id, name, arguments = fields.get("id"), named.get("name"), named.get("arguments")
    if not (isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, str)):
        raise InvalidRequest(
            f"{param} needs an id, and a function with name and arguments.", param=param
        )
    extras = CallExtras(call=unknown_of_call(fields))
    return ToolCallPart(call_id, name, arguments, extras.written())
