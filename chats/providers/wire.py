"""Builds the request body for OpenAI's chat completions API, without the package."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from chats.ground.texts import UNSTORABLE, sanitise_value
from chats.providers.base import ProviderRequest, find_image_url
from chats.providers.call_ids import IdForm, format_call_id
from chats.providers.refused_fields import remove_fields
from chats.providers.required_fields import Fill, fill_messages
from contextpolicy.engine.messages.extras import CallExtras, hash_origin, read_extras
from contextpolicy.engine.messages.messages import (
    JOINT,
    FilePart,
    ToolCallPart,
    ToolSpec,
    WireMessage,
    format_image_text,
)
from contextpolicy.engine.strict_json import iter_json_strings, load_strict_json

# Replaces a missing tool name: servers reject an empty one.
NAMELESS = "tool"
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
# Texts for servers that accept the images of tool results only in a user message: one is in the
# tool result, the other precedes the images.
IMAGE_BELOW = "[Image: see the next message]"
RESULT_IMAGES = "[The images of the tool results above]"
# The detail of an image that only newer models know.
ORIGINAL = "original"
_OWN_FIELDS = frozenset(
    {
        "model",
        "messages",
        "tools",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
    }
)


def build_openai_body(
    request: ProviderRequest,
    *,
    limit_name: str = "max_tokens",
    takes_usage_option: bool = True,
    takes_result_images: bool = True,
    cleans_names: bool = True,
    id_form: IdForm = "stored",
    fills: Collection[Fill] = (),
    without: Collection[str] = (),
    takes_original_images: bool = True,
) -> dict[str, Any]:
    """Return the body of a call. The options depend on what the server accepts.

    `without`: names of fields that the server refuses, see `refused_fields`. Servers that do not
    know the detail `original` (`takes_original_images`) choose the detail of these images.
    Versions up to 0.9.0 did not clean the names of called tools.
    """
    body: dict[str, Any] = {k: v for k, v in request.parameters.items() if k not in _OWN_FIELDS}
    body["model"] = request.model
    is_open = open_loop(request.messages)
    body["messages"] = [
        _message(
            message,
            request,
            by=request.origin if place >= is_open else None,
            cleans_names=cleans_names,
            id_form=id_form,
        )
        for place, message in enumerate(request.messages)
    ]
    if not takes_original_images:
        remove_original_details(body)
    if not takes_result_images:
        body["messages"] = list(move_result_images(body["messages"]))
    body["messages"] = fill_messages(body["messages"], fills=fills)
    _mark_prefill(body, request)
    body["stream"] = request.stream
    if request.max_output_tokens is not None:
        body[limit_name] = request.max_output_tokens
    if request.stream and takes_usage_option:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    return remove_fields(body, names=without)


def _mark_prefill(body: dict[str, Any], request: ProviderRequest) -> None:
    """Mark the last message as the beginning of the reply, if the request has one."""
    if request.prefill == "marked":
        body["messages"][-1]["prefix"] = True
    if request.prefill and body.get("continue_final_message") is True:
        # vLLM and SGLang reject the combination with a generation prompt, which is their default.
        body.setdefault("add_generation_prompt", False)


def has_original_images(body: Mapping[str, Any]) -> bool:
    """Return True if an image in the request body has the detail `original`."""
    return any(_list_original_images(body))


def remove_original_details(body: Mapping[str, Any]) -> None:
    """Remove the detail `original` from the images of a request body."""
    for piece in _list_original_images(body):
        del piece["image_url"]["detail"]


def _list_original_images(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    lists = (each["content"] for each in body["messages"] if isinstance(each["content"], list))
    images = (piece for pieces in lists for piece in pieces if piece["type"] == "image_url")
    return [piece for piece in images if piece["image_url"].get("detail") == ORIGINAL]


def has_result_images(body: Mapping[str, Any]) -> bool:
    """Return True if a tool result in the request body has an image."""
    return any(
        message["role"] == "tool" and isinstance(message["content"], list)
        for message in body["messages"]
    )


def move_result_images(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages, with images of tool results moved to a user message after the results.

    Some servers, such as OpenAI's, accept images only in user messages.
    """
    moved: list[dict[str, Any]] = []
    for message in (*messages, None):
        if moved and (message is None or message["role"] != "tool"):
            yield {"role": "user", "content": [{"type": "text", "text": RESULT_IMAGES}, *moved]}
            moved = []
        if message is None:
            return
        pieces = message["content"]
        if message["role"] == "tool" and isinstance(pieces, list):
            moved += [piece for piece in pieces if piece["type"] == "image_url"]
            texts = [piece.get("text", IMAGE_BELOW) for piece in pieces]
            yield {**message, "content": JOINT.join(texts)}
        else:
            yield message


def open_loop(messages: Sequence[WireMessage]) -> int:
    """Return the index after the newest user message; 0 if there is none.

    Only from there on can a tool loop be open.
    """
    users = (place for place, message in enumerate(messages) if message.role == "user")
    return max(users, default=-1) + 1


def has_unclean_names(request: ProviderRequest) -> bool:
    """Return True if the name of a called tool is changed when it is sent."""
    calls = (call for message in request.messages for call in message.tool_calls)
    return any(clean_tool_name(call.name, request) != (call.name or NAMELESS) for call in calls)


def _message(
    message: WireMessage,
    request: ProviderRequest,
    *,
    by: str | None = None,
    cleans_names: bool = True,
    id_form: IdForm = "stored",
) -> Any:
    """Return a message with the extra fields of its model, if that is the model `by`.

    Without `by`, no extra fields are sent.
    """
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        pieces = [_piece(piece, request) for piece in message.pieces()]
        is_text = message.role == "tool" and all(piece["type"] == "text" for piece in pieces)
        # Many servers accept only a text as a tool result.
        wire["content"] = message.shown(by_hash=True) if is_text else pieces
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = []
        for call in message.tool_calls:
            extras = select_call_extras(call, by=by)
            name = clean_tool_name(call.name, request) if cleans_names else call.name or NAMELESS
            sent_call = replace(call, name=name, call_id=format_call_id(call.call_id, form=id_form))
            wire["tool_calls"].append(_call(sent_call, extras))
            own = _of_message(message, extras)
            wire |= {name: value for name, value in own.items() if name not in wire}
    if message.tool_call_id:
        wire["tool_call_id"] = format_call_id(message.tool_call_id, form=id_form)
    return wire


def select_call_extras(call: ToolCallPart, *, by: str | None) -> CallExtras:
    """Return the extra fields of a call that are sent back to the model `by`.

    Empty if another model produced them, or if `by` is None.
    """
    extras = read_extras(call.extra) if by is not None else CallExtras()
    return extras if extras.by in ("", by, hash_origin(by or "")) else CallExtras()


def collect_sent_fields(message: WireMessage, *, by: str | None) -> dict[str, Any]:
    """Return the fields of a message that only the server of the model `by` understands.

    They contain the fields of its calls by call id. Empty if `by` is None.
    """
    found: dict[str, Any] = {}
    for call in message.tool_calls:
        extras = select_call_extras(call, by=by)
        found |= _of_message(message, extras)
        if extras.call:
            found[call.call_id] = extras.call
    return found


def _of_message(message: WireMessage, extras: CallExtras) -> dict[str, Any]:
    own = {**extras.message}
    if extras.thoughts and message.thoughts:
        own[extras.thoughts] = message.thoughts
    return own


def clean_tool_name(name: str, request: ProviderRequest) -> str:
    """Return the name of a called tool as servers accept it.

    OpenAI rejects other characters, which names of imported calls can have, such as
    `browser.search`. It would then reject all later prompts of the chat. The name of an offered
    tool is unchanged.
    """
    if _TOOL_NAME.fullmatch(name) or any(spec.name == name for spec in request.tools):
        return name
    return _NOT_IN_NAMES.sub("_", name)[:64] or NAMELESS


def _call(call: ToolCallPart, extras: CallExtras) -> dict[str, Any]:
    function = {
        **_fields(extras.call.get("function")),
        "name": call.name,
        "arguments": clean_call_arguments(call.arguments),
    }
    own = {**extras.call, "id": call.call_id, "type": "function", "function": function}
    # Id, type and function first, as usual.
    first = ("id", "type", "function")
    return {name: own[name] for name in first} | own


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def clean_call_arguments(arguments: str) -> str:
    """Return the arguments of a call as servers accept them: unchanged, sanitised, or `{}`.

    Strict servers reject a prompt with arguments that are not a JSON object, such as those cut by
    the reply limit. They would then reject all later prompts of the chat. Characters that cannot be
    stored are replaced.
    """
    try:
        found = load_strict_json(arguments, floats=float)
        if not isinstance(found, dict):
            return "{}"
        if "\\u" in arguments and any(map(UNSTORABLE.search, iter_json_strings(found))):
            return json.dumps(sanitise_value(found), ensure_ascii=False)
    except (ValueError, RecursionError):
        # Also objects that are nested too deep to replace their characters.
        return "{}"
    return arguments


def _piece(piece: str | FilePart, request: ProviderRequest) -> dict[str, Any]:
    """Return a text or an image part. An image without bytes becomes a line with its name."""
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    image, url = piece.image, find_image_url(piece, request)
    if image is None or not url:
        return {"type": "text", "text": format_image_text(piece)}
    detail = {"detail": image.detail} if image.detail else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _tool(spec: ToolSpec) -> Mapping[str, Any]:
    if spec.hosted:
        return dict(spec.parameters)
    function: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
    }
    if spec.strict is not None:
        function["strict"] = spec.strict
    return {"type": "function", "function": function}
