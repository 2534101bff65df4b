"""Converts the messages of a request to system texts and items.

Tool calls and their results become parts of the reply that made them. The role `tool` exists only
in requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chats.exchange.thoughts import extract_reasoning_parts
from chats.gateway import custom_tools
from chats.gateway.errors import InvalidRequest
from chats.gateway.files import GivenFile, parse_file_part
from chats.gateway.images import parse_image_part
from chats.models import FileChunk, StoredFile
from chats.providers.chunks import extract_delta_reasoning
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
    find_result_images,
    name_result_image,
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
    def is_no_question(self) -> bool:
        """True if the item replaces the user message that a request lacks (`NO_QUESTION`)."""
        return self.role == "user" and not self.parts

    @property
    def results(self) -> tuple[ToolResultPart, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResultPart))

    @property
    def result_images(self) -> tuple[FilePart, ...]:
        found = find_result_images(self.parts).values()
        return tuple(part for images in found for _, part in images)


# Represents the user message that a request with only a system text lacks. It is not sent to the
# model.
NO_QUESTION = Item("user", ())


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a request, and its distinct system texts.

    `images` and `files`: the image data, and the documents and uploads, both by SHA-256. `prefill`:
    the beginning of the reply, if the client wrote it as the last message. `is_marked`: the client
    marked that message with `prefix`, as DeepSeek and Mistral require. `unsaved`: the documents
    that were read without storing them, with their texts as chunks.
    """

    system: tuple[str, ...]
    items: tuple[Item, ...]
    images: Mapping[str, Bytes] = field(default_factory=dict)
    files: Mapping[str, GivenFile] = field(default_factory=dict)
    prefill: str = ""
    is_marked: bool = False
    unsaved: tuple[tuple[StoredFile, Sequence[FileChunk]], ...] = ()
    # Types of items of *Responses* that are not sent.
    left_out: tuple[str, ...] = ()


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
    said = split_prefill(reader.conversation, last=messages[-1])
    return check_conversation(said, field="messages")


def split_prefill(said: Conversation, *, last: Any) -> Conversation:
    """Return a conversation with its last message moved to `prefill`.

    The conversation is unchanged if the last message is not a reply or contains more than
    text. An empty reply is removed: some clients add the message that they expect.
    """
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return said
    item = said.items[-1]
    is_text = all(isinstance(part, TextPart) for part in item.parts)
    if not is_text:
        return said
    if not item.text.strip():
        return replace(said, items=said.items[:-1])
    is_marked = last.get("prefix") is True
    return replace(said, items=said.items[:-1], prefill=item.text, is_marked=is_marked)


def check_conversation(
    said: Conversation, *, field: str, has_stored_start: bool = False
) -> Conversation:
    """Return the conversation if a reply can follow it. Raises `InvalidRequest`.

    If the request has only system texts, an empty user message is added. This is not possible if
    the first messages are stored (`has_stored_start`), because it would come before them.
    """
    if not any(item.role == "user" for item in said.items):
        if has_stored_start:
            raise InvalidRequest(f"{field} needs a user message.", param=field)
        if not any(said.system):
            raise InvalidRequest(f"{field} needs a user message or a system text.", param=field)
        said = replace(said, items=(NO_QUESTION, *said.items))
    items = said.items
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
        """Return the text, images and files in a user message. Raises `InvalidRequest`."""
        said = message.get("content")
        if not isinstance(said, list):
            return parse_text_parts(message, param=param)
        parts = tuple(
            self.parse_user_part(part, param=f"{param}.content[{n}]") for n, part in enumerate(said)
        )
        # Only a message that stands for a system text has no parts.
        return parts or (TextPart(""),)

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
        content, thoughts = split_thinking_parts(message.get("content"))
        if content is None and isinstance(message.get("refusal"), str):
            content = message["refusal"]
        said = {"content": content}
        texts = parse_text_parts(said, param=param) if content is not None else ()
        calls = parse_tool_calls(message, param=param)
        thoughts = (extract_reasoning(message) if calls else "") or thoughts
        self.add_reply(texts, calls, param=f"{param}.tool_calls", thoughts=thoughts)

    def add_reply(
        self,
        texts: Sequence[TextPart],
        calls: Sequence[ToolCallPart],
        *,
        param: str,
        thoughts: str = "",
    ) -> None:
        """Add a reply, whose calls then wait for results. Thinking in tags becomes reasoning.

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
        parts = self.parse_result_parts(message, param=param)
        self.add_result(message.get("tool_call_id"), parts, param=f"{param}.tool_call_id")

    def parse_result_parts(
        self, message: Mapping[str, Any], *, param: str
    ) -> tuple[TextPart | FilePart, ...]:
        """Return the text and images in a tool result. Raises `InvalidRequest`."""
        said = message.get("content")
        if not isinstance(said, list):
            return parse_text_parts(message, param=param)
        found: list[TextPart | FilePart] = []
        for n, part in enumerate(said):
            at = f"{param}.content[{n}]"
            is_image = isinstance(part, dict) and part.get("type") == "image_url"
            found.append(
                parse_image_part(part, param=at, found=self.images)
                if is_image
                else TextPart(parse_part_text(part, param=at))
            )
        return tuple(found)

    def add_result(self, call_id: Any, said: Sequence[TextPart | FilePart], *, param: str) -> None:
        """Add a tool result to its call.

        Raises `InvalidRequest` if no open call has this id. The error names `param`, the id's
        field.
        """
        if not isinstance(call_id, str) or call_id not in self.open:
            problem = f"{param} does not match an open call of the previous reply."
            raise InvalidRequest(problem, param=param)
        content, images = "", []
        for part in said:
            if isinstance(part, FilePart):
                images.append(name_result_image(part, call_id=call_id, offset=len(content)))
            else:
                content += part.text
        result = ToolResultPart(call_id, self.open.pop(call_id), content)
        last = self.items[-1]
        self.items[-1] = Item(last.role, (*last.parts, *images, result))

    def end_calls(self, *, param: str) -> None:
        """Raise `InvalidRequest` if a call of the last reply has no result."""
        if self.open:
            problem = f"The call {next(iter(self.open))[:80]!r} before {param} has no result."
            raise InvalidRequest(problem, param=param)


def extract_reasoning(message: Mapping[str, Any]) -> str:
    """Return the reasoning that a client sends back with a reply's calls."""
    texts = (message.get(name) for name in THOUGHTS)
    return next((text for text in texts if isinstance(text, str) and text), "")


def split_thinking_parts(content: Any) -> tuple[Any, str]:
    """Return the content of a reply with empty texts for its thinking, and that thinking.

    Mistral's models reply in parts of text and thinking.
    """
    if not isinstance(content, list):
        return content, ""
    thoughts = [part for part in content if is_thinking_part(part)]
    empty = {"type": "text", "text": ""}
    texts = [empty if is_thinking_part(part) else part for part in content]
    return texts, extract_delta_reasoning({"content": thoughts})


def is_thinking_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "thinking"


def parse_text_parts(message: Mapping[str, Any], *, param: str) -> tuple[TextPart, ...]:
    """Return the text parts of a message. Raises `InvalidRequest`."""
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
        problem = (
            f"{param} is not a text. Only user messages and tool results can have images, only "
        )
        problem += "user messages files. Audio is not supported."
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
    """Attach the extra fields that the provider expects back to the calls.

    The message's fields go to the first call. Each call gets the mark of the model that made it.
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


def is_custom_call(fields: Mapping[str, Any]) -> bool:
    """Return True if a call is to a custom tool."""
    return fields.get("type") == custom_tools.CUSTOM


def parse_tool_call(item: Any, *, param: str) -> ToolCallPart:
    """Return a tool call with its id, name and JSON arguments. Raises `InvalidRequest`."""
    fields = item if isinstance(item, dict) else {}
    function = fields.get(custom_tools.CUSTOM if is_custom_call(fields) else "function")
    named = function if isinstance(function, dict) else {}
    call_id, name, arguments = fields.get("id"), named.get("name"), named.get("arguments")
    if is_custom_call(fields):
        arguments = custom_tools.build_custom_arguments(named.get("input"))
    if not (isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, str)):
        raise InvalidRequest(
            f"{param} needs an id, and a function with a name and arguments, or a custom tool with "
            "a name and input.",
            param=param,
        )
    fields = {key: value for key, value in fields.items() if key != custom_tools.CUSTOM}
    extras = CallExtras(call=select_unknown_call_fields(fields))
    return ToolCallPart(call_id, name, arguments, extras.written())
