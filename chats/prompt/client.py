"""Puts into a prompt what the program behind /v1 asked for beside its messages.

`Turn.client` has it: {"system": [text, …], "tools": [{name, description, parameters, strict}, …],
"parameters": {…}, "max_output": tokens, "after": seq}. Empty once the turn is over.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chats.providers.base import ProviderRequest
from contextpolicy.engine.assembly import AssembledContext, ComposeInput
from contextpolicy.engine.messages import ToolSpec
from contextpolicy.engine.systemtext import system_parts

# The label of a program's own tools in receipts; their text is kept for its chat alone.
TOOLS = "client"


def begins_after(client: Mapping[str, Any] | None) -> int:
    """Return the seq after which the program's messages begin; it left out those before itself."""
    return int((client or {}).get("after") or 0)


def as_asked(given: ComposeInput, *, client: Mapping[str, Any] | None) -> ComposeInput:
    """Return the facts with the program's system text and tools; ours are not offered beside them.

    The system text counts as the chat's own: the policy's rule for that holds.
    """
    if client is None:
        return given
    own = [("chat", text) for text in client.get("system") or ()]
    return replace(
        given,
        system=system_parts((*given.system, *own)) if own else given.system,
        tools=tuple(ToolSpec(**tool) for tool in client.get("tools") or ()),
    )


def labelled(assembled: AssembledContext, *, client: Mapping[str, Any] | None) -> AssembledContext:
    """Mark the tools in the account of a prompt as the program's own."""
    if client is None:
        return assembled
    segments = (
        segment._replace(message_id=TOOLS) if segment.origin == "tools" else segment
        for segment in assembled.segments
    )
    return replace(assembled, segments=tuple(segments))


def request_for(request: ProviderRequest, *, client: Mapping[str, Any]) -> ProviderRequest:
    """Return the request with the program's parameters; its reply may be shorter, never longer."""
    known = [request.max_output_tokens, client.get("max_output")]
    return replace(
        request,
        parameters=dict(client.get("parameters") or {}),
        max_output_tokens=min((size for size in known if size is not None), default=None),
    )
