"""Fields of a reply that only the model's own server understands, kept with its tool calls.

Some servers want thoughts or signatures back while their tool calls are answered: DeepSeek
`reasoning_content`, Gemini `extra_content`, OpenRouter `reasoning_details`. A call keeps them as
JSON text: `call` are the fields of the call, `message` those of its message, `thoughts` the name
under which the thoughts go back, `by` the model that made them (empty: a program brought them).
Only that model gets them back, and only while the tool loop is open: behind the newest message of
the user.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The fields that have a place of their own, and those that are nothing to send back.
OF_A_MESSAGE = frozenset(
    {
        "annotations",
        "audio",
        "cache_control",
        "content",
        "function_call",
        "id",
        "index",
        "name",
        "parsed",
        "reasoning",
        "reasoning_content",
        "refusal",
        "role",
        "status",
        "tool_call_id",
        "tool_calls",
    }
)
OF_A_CALL = frozenset({"cache_control", "function", "id", "index", "status", "type"})
OF_A_FUNCTION = frozenset({"arguments", "name", "parsed_arguments"})
THOUGHTS = ("reasoning_content", "reasoning")
# More is kept of no call, in characters of JSON.
MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class CallExtras:
    """The fields that a tool call keeps for its server."""

    by: str = ""
    call: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] = field(default_factory=dict)
    thoughts: str = ""

    def written(self) -> str:
        """Return them as text; empty if there is nothing to keep, or too much."""
        if not (self.call or self.message or self.thoughts):
            return ""
        kept = {"by": self.by, "call": self.call, "message": self.message}
        text = json.dumps(kept | {"thoughts": self.thoughts}, ensure_ascii=False)
        return text if len(text) <= MOST else ""


def read_extras(text: str) -> CallExtras:
    """Read the extras of a call; what is not of their form counts as none."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = {}
    if not isinstance(found, dict):
        return CallExtras()
    by, thoughts = found.get("by"), found.get("thoughts")
    return CallExtras(
        by=by if isinstance(by, str) else "",
        call=_object(found.get("call")),
        message=_object(found.get("message")),
        thoughts=thoughts if thoughts in THOUGHTS else "",
    )


def unknown_of_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message that have no place here."""
    return {name: value for name, value in message.items() if name not in OF_A_MESSAGE and value}


def unknown_of_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a tool call that have no place here, those of its function too."""
    found = {name: value for name, value in call.items() if name not in OF_A_CALL and value}
    function = _object(call.get("function"))
    inner = {name: value for name, value in function.items() if name not in OF_A_FUNCTION and value}
    return found | ({"function": inner} if inner else {})


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
