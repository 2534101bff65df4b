"""Adds a /v1 client's own system text, tools and parameters to a prompt.

They are in `Turn.client`: {"system": [text, …], "tools": [{name, description, parameters, strict,
hosted}, …], "parameters": {…}, "max_output": tokens, "after": seq, "prefill": {"text": …, "style":
…}}. The field is cleared when the turn ends.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chats.providers.base import ProviderRequest
from contextpolicy.engine.compose.assembly import AssembledContext, ComposeInput
from contextpolicy.engine.compose.system_text import order_system_parts
from contextpolicy.engine.messages.messages import ToolSpec

# Label of a client's own tools in receipts. Their text is stored for its chat only.
TOOLS = "client"
# Beginning of the note in receipts that names a tool which the provider runs.
HOSTED = "hosted_tool:"


def get_client_start(client: Mapping[str, Any] | None) -> int:
    """Return the `seq` after which the client's messages start; 0 if it sent all messages."""
    return int((client or {}).get("after") or 0)


def apply_client_input(given: ComposeInput, *, client: Mapping[str, Any] | None) -> ComposeInput:
    """Add the client's system text and prefill to the input, and replace the tools.

    The system text counts as the chat's own, so the policy's rule `chat_system` applies to it.
    """
    if client is None:
        return given
    own = [("chat", text) for text in client.get("system") or ()]
    tools = tuple(ToolSpec(**tool) for tool in client.get("tools") or ())
    hosted = dict.fromkeys(f"{HOSTED}{tool.name}" for tool in tools if tool.hosted)
    return replace(
        given,
        system=order_system_parts((*given.system, *own)) if own else given.system,
        tools=tools,
        notes=(*given.notes, *hosted),
        prefill=(client.get("prefill") or {}).get("text", ""),
    )


def label_client_tools(
    assembled: AssembledContext, *, client: Mapping[str, Any] | None
) -> AssembledContext:
    """Mark the tools of the prompt as the client's tools."""
    if client is None:
        return assembled
    segments = (
        segment._replace(message_id=TOOLS) if segment.origin == "tools" else segment
        for segment in assembled.segments
    )
    return replace(assembled, segments=tuple(segments))


def apply_client_parameters(
    request: ProviderRequest, *, client: Mapping[str, Any]
) -> ProviderRequest:
    """Return the request with the client's parameters, which can only lower the output limit."""
    known = [request.max_output_tokens, client.get("max_output")]
    return replace(
        request,
        parameters=dict(client.get("parameters") or {}),
        max_output_tokens=min((size for size in known if size is not None), default=None),
        prefill=(client.get("prefill") or {}).get("style", ""),
    )
