"""Converts the items of a request to /v1/responses to messages.

In the Responses API, a reply and its calls are separate items. Here they form one message.
Reasoning items are dropped: only the model that wrote them can read them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from chats.gateway import custom_tools
from chats.gateway.errors import InvalidRequest, ItemNotFound
from chats.gateway.matching.conversation import (
    MOST_MESSAGES,
    SYSTEM,
    Conversation,
    Item,
    RequestReader,
    attach_provider_fields,
    extract_reasoning,
    parse_text_parts,
)
from chats.gateway.responses import tools
from chats.gateway.responses.item_order import CALLS, HOSTED, OUTPUTS, order_outputs
from chats.gateway.responses.response_form import decode_provider_fields
from contextpolicy.engine.messages.extras import CallExtras
from contextpolicy.engine.messages.messages import TextPart, ToolCallPart

# As the last item, requests a compaction instead of a reply.
TRIGGER = "compaction_trigger"
# Refers to an item that the server stores.
REFERENCE = "item_reference"
# Types of text parts.
TEXTS = ("input_text", "output_text", "text")
# Fields of a call item that are parsed. Others are kept as extra fields.
OWN = frozenset({"arguments", "call_id", "id", "input", "name", "namespace", "status", "type"})

Unseal = Callable[[str], Conversation]
# Items by id.
Known = Mapping[str, Mapping[str, Any]]


def parse_input_items(
    said: Any,
    *,
    earlier: tuple[Item, ...] = (),
    known: Known | None = None,
    unseal: Unseal,
    is_optional: bool = False,
    leaves_out: bool = True,
    field: str = "input",
) -> Conversation:
    """Parse `input` and append it to the messages of a previous response, if any (`earlier`).

    `known`: the stored items that an item reference may name. `is_optional`: `input` may be
    missing or empty. `leaves_out`: calls of hosted tools are left out. `field`: the name of the
    field. Raises `InvalidRequest`, naming the field, `ItemNotFound`, and the errors of `unseal` for
    a compaction item.
    """
    items = [{"role": "user", "content": said}] if isinstance(said, str) else said
    if is_optional and items in (None, []):
        items = []
    elif not isinstance(items, list) or not items:
        problem = f"{field} must be a text, or a list with at least one item."
        raise InvalidRequest(problem, param=field, code="missing_field")
    if len(items) > MOST_MESSAGES:
        raise InvalidRequest(f"{field} has more than {MOST_MESSAGES:,} entries.", param=field)
    reader = _Items(earlier, unseal, known or {}, leaves_out=leaves_out)
    whole = [reader.resolved(item, param=f"{field}[{place}]") for place, item in enumerate(items)]
    for place, item in order_outputs(whole, waiting=reader.messages.open):
        reader.take(item, param=f"{field}[{place}]")
    reader.end_reply()
    reader.messages.end_calls(param=f"{field}[{len(items)}]")
    return replace(reader.messages.conversation, left_out=tuple(reader.left_out))


def is_item_reference(item: Any) -> bool:
    """Return True if an item refers to a stored one. Such an item may omit its type."""
    if not isinstance(item, dict) or item.get("type") not in (None, REFERENCE):
        return False
    return item.get("type") == REFERENCE or ("id" in item and not {*item} - {"id", "type"})


class _Items:
    def __init__(
        self, earlier: tuple[Item, ...], unseal: Unseal, known: Known, *, leaves_out: bool
    ) -> None:
        self.leaves_out = leaves_out
        self.messages = RequestReader()
        self.unseal = unseal
        self.known = known
        self.follow(earlier)
        # The reply whose calls are being parsed, and the field where it starts.
        self.texts: tuple[TextPart, ...] = ()
        self.calls: list[ToolCallPart] = []
        self.reply_at = ""
        # Fields that the provider expects back with the calls of the reply.
        self.own: dict[str, Any] = {}
        # The types of items that are left out.
        self.left_out: dict[str, None] = {}

    def follow(self, items: tuple[Item, ...]) -> None:
        """Add known messages. The calls of the last one may still wait for results."""
        self.messages.items += items
        if items and not items[-1].results:
            calls = [part for part in items[-1].parts if isinstance(part, ToolCallPart)]
            self.messages.open = {call.call_id: call.name for call in calls}

    def end_reply(self) -> None:
        """Add the parsed reply with its calls. Raises `InvalidRequest`."""
        if self.reply_at:
            self.messages.end_calls(param=self.reply_at)
            calls = attach_provider_fields(self.calls, self.own)
            thoughts = extract_reasoning(self.own) if calls else ""
            self.messages.add_reply(self.texts, calls, param=self.reply_at, thoughts=thoughts)
            self.own = {}
        self.texts, self.calls, self.reply_at = (), [], ""

    def take(self, item: Mapping[str, Any], *, param: str) -> None:
        """Parse an item. Raises `InvalidRequest`."""
        kind = item.get("type") or ("message" if "role" in item else None)
        if kind == "reasoning":
            self.own = decode_provider_fields(item.get("encrypted_content")) or self.own
            return
        if self.leaves_out and kind in HOSTED:
            self.left_out[kind] = None
            return
        if kind in CALLS:
            self.reply_at = self.reply_at or param
            self.calls.append(parse_call_item(item, param=param))
            return
        self.end_reply()
        if kind == "message":
            self.take_message(item, param=param)
        elif kind in OUTPUTS:
            self.take_output(item, param=param)
        elif kind == "compaction":
            self.take_compacted(item, param=param)
        else:
            raise build_item_error(kind, param=param)

    def take_output(self, item: Mapping[str, Any], *, param: str) -> None:
        """Parse the output of a call: texts and images. Raises `InvalidRequest`."""
        value = item.get("output")
        if not isinstance(value, str | list):
            at = f"{param}.output"
            raise InvalidRequest(f"{at} must be a text or a list.", param=at)
        content = [convert_item_part(part) for part in value] if isinstance(value, list) else value
        said = self.messages.parse_result_parts({"content": content}, param=param)
        self.messages.add_result(item.get("call_id"), said, param=f"{param}.call_id")

    def resolved(self, item: Any, *, param: str) -> Mapping[str, Any]:
        """Return an item. If it is a reference, return the stored item with its id.

        Raises `InvalidRequest` and `ItemNotFound`.
        """
        if not isinstance(item, dict):
            raise InvalidRequest(f"{param} must be an object.", param=param)
        if not is_item_reference(item):
            return item
        named = str(item.get("id"))
        found = self.known.get(named)
        if found is None:
            raise ItemNotFound(named[:80], param=f"{param}.id")
        return found

    def take_message(self, item: Mapping[str, Any], *, param: str) -> None:
        """Parse a message. Raises `InvalidRequest`."""
        role = item.get("role")
        if role == "assistant":
            self.texts, self.reply_at = parse_text_field(item, "content", param=param), param
        elif role == "user" or role in SYSTEM:
            content = item.get("content")
            parts = (
                [convert_item_part(part) for part in content]
                if isinstance(content, list)
                else content
            )
            self.messages.take({"role": role, "content": parts}, param=param)
        else:
            problem = f"{param}.role must be system, developer, user or assistant."
            raise InvalidRequest(problem, param=f"{param}.role")

    def take_compacted(self, item: Mapping[str, Any], *, param: str) -> None:
        """Replace a compaction item with its messages.

        Raises `InvalidRequest`, and the errors of `unseal`.
        """
        sealed = item.get("encrypted_content")
        if not isinstance(sealed, str):
            at = f"{param}.encrypted_content"
            raise InvalidRequest(f"{at} must be a text.", param=at)
        self.messages.end_calls(param=param)
        conversation = self.unseal(sealed)
        self.messages.system += conversation.system
        self.messages.images |= conversation.images
        self.messages.files |= conversation.files
        self.follow(conversation.items)


def build_item_error(kind: Any, *, param: str) -> InvalidRequest:
    at = f"{param}.type"
    if kind == TRIGGER:
        problem = f"{at}: compaction_trigger must be the last item."
    else:
        problem = f"{at}: only message, function_call, custom_tool_call, their outputs, "
        problem += "reasoning and compaction are supported."
    return InvalidRequest(problem, param=at, code="unsupported_content")


def parse_text_field(item: Mapping[str, Any], name: str, *, param: str) -> tuple[TextPart, ...]:
    """Return the text parts of a field. Raises `InvalidRequest`."""
    value = item.get(name)
    if not isinstance(value, (str, list)):
        at = f"{param}.{name}"
        raise InvalidRequest(f"{at} must be a text or a list.", param=at)
    if isinstance(value, list):
        value = [convert_item_part(part) for part in value]
    return parse_text_parts({"content": value}, param=param)


def convert_item_part(part: Any) -> Any:
    """Convert a text, image or file part to the chat completions format."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in TEXTS:
        return {"type": "text", "text": part.get("text")}
    if kind == "input_image" and part.get("file_id") is not None and not part.get("image_url"):
        return {"type": "file", "file": {"file_id": part["file_id"]}}
    if kind == "input_image":
        url = {"url": part.get("image_url"), "detail": part.get("detail")}
        return {"type": "image_url", "image_url": url}
    if kind == "input_file":
        return {"type": "file", "file": part}
    return part


def parse_call_item(item: Mapping[str, Any], *, param: str) -> ToolCallPart:
    """Return a tool call with its id, name and JSON arguments. Raises `InvalidRequest`."""
    call_id, name = (
        item.get("call_id"),
        tools.join_function_name(item.get("namespace"), item.get("name")),
    )
    arguments = item.get("arguments")
    if item.get("type") == "custom_tool_call":
        arguments = custom_tools.build_custom_arguments(item.get("input"))
    if not (isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, str)):
        raise InvalidRequest(f"{param} needs a call_id, a name and arguments.", param=param)
    own = {field: value for field, value in item.items() if field not in OWN and value}
    return ToolCallPart(call_id, name, arguments, CallExtras(call=own).written())
