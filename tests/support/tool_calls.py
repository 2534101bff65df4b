"""Steps in which a scripted model calls tools, and the tools that it was offered."""

import json
from typing import Any

from chats.models import Message, Turn
from chats.providers.base import Finished, ProviderRequest, TextDelta, ToolCallDelta

ECHO = "files__echo"


def call_echo(*texts: str) -> list[Any]:
    """Return a step in which the model writes some text and calls the tool."""
    calls = [
        ToolCallDelta(index, f"call-{index}", "files__echo", json.dumps({"text": text}))
        for index, text in enumerate(texts)
    ]
    return [TextDelta("Let me see."), *calls, Finished("tool_calls")]


def build_call(name: str = ECHO, *, index: int = 0, **arguments: Any) -> ToolCallDelta:
    """Return a call of a tool."""
    return ToolCallDelta(index, f"call-{index}", name, json.dumps(arguments))


def call_tools(*deltas: ToolCallDelta) -> list[Any]:
    """Return a step in which the model calls tools."""
    return [*deltas, Finished("tool_calls")]


def list_offered_tools(request: ProviderRequest) -> list[str]:
    """Return the tools of servers that a request offers."""
    names = [spec.name for spec in request.tools]
    # Offered with tools of servers.
    assert ("tool_output_read" in names) is any("__" in name for name in names)
    return [name for name in names if name != "tool_output_read"]


def list_tool_results(turn: Turn) -> list[str]:
    """Return the tool results that are stored with a turn."""
    rows = Message.objects.filter(turn=turn, role="assistant").order_by("seq")
    return [p["content"] for row in rows for p in row.parts if p["type"] == "tool_result"]
