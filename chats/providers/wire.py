"""The body of a request to a server that speaks OpenAI's chat completions, without the package."""

from collections.abc import Mapping
from typing import Any

from chats.providers.base import ProviderRequest
from contextpolicy.engine.messages import FilePart, ToolSpec, WireMessage, image_text

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


def body_of(
    request: ProviderRequest, *, limit_name: str = "max_tokens", takes_usage_option: bool = True
) -> dict[str, Any]:
    """Return the body of a call; its two options are what a server turned out to accept."""
    body: dict[str, Any] = {k: v for k, v in request.parameters.items() if k not in _OWN_FIELDS}
    body["model"] = request.model
    body["messages"] = [_message(message, images=request.images) for message in request.messages]
    body["stream"] = request.stream
    if request.max_output_tokens is not None:
        body[limit_name] = request.max_output_tokens
    if request.stream and takes_usage_option:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    return body


def _message(message: WireMessage, *, images: Mapping[str, str]) -> Any:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        wire["content"] = [_piece(piece, images=images) for piece in message.pieces()]
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def _piece(piece: str | FilePart, *, images: Mapping[str, str]) -> dict[str, Any]:
    """Return a text or an image; of an image whose bytes are not at hand the line that names it."""
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    image = piece.image
    url = (image.url or images.get(image.sha256, "")) if image else ""
    if image is None or not url:
        return {"type": "text", "text": image_text(piece)}
    detail = {"detail": image.detail} if image.detail else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _tool(spec: ToolSpec) -> Mapping[str, Any]:
    function: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
    }
    if spec.strict is not None:
        function["strict"] = spec.strict
    return {"type": "function", "function": function}
