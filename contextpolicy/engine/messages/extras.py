"""Provider-specific fields of a reply, stored with its tool calls.

Some servers require that thoughts or signatures are sent back with tool results:
DeepSeek `reasoning_content`, Gemini `extra_content`, OpenRouter `reasoning_details`. A
call stores them as JSON text: `call` contains the fields of the call, `message` those
of its message, `thoughts` the field name under which the thoughts are returned, and
`by` the model that wrote them. They are returned only to that model, and only while the
tool loop is open: after the newest user message.

Clients of the gateway get the fields with a mark that identifies the model, and send both back.
Fields without a mark (`by` is empty) may be sent to any model, because the client chose the model
itself.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Fields that are stored elsewhere, and fields that are never sent back.
OF_A_MESSAGE = frozenset(
    {
        "annotations",
        "audio",
        "cache_control",
        "channel",
        "content",
        "context_origin",
        "executed_tools",
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
        "token_id",
        "tool_call_id",
        "tool_calls",
    }
)
# The field of a message that names the model whose fields it has.
ORIGIN_MARK = "context_origin"
OF_A_CALL = frozenset({"cache_control", "function", "id", "index", "status", "type"})
OF_A_FUNCTION = frozenset({"arguments", "name", "parsed_arguments"})
THOUGHTS = ("reasoning_content", "reasoning")
# Maximum characters of JSON per call.
MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class CallExtras:
    """The provider-specific fields of a tool call."""

    by: str = ""
    call: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] = field(default_factory=dict)
    thoughts: str = ""

    def written(self) -> str:
        """Return the fields as JSON text; empty if there are none or if they are too large."""
        if not (self.call or self.message or self.thoughts):
            return ""
        kept = {"by": self.by, "call": self.call, "message": self.message}
        text = json.dumps(kept | {"thoughts": self.thoughts}, ensure_ascii=False)
        return text if len(text) <= MOST else ""


def hash_origin(origin: str) -> str:
    """Return the hash that identifies a model to clients without naming its provider.

    `origin` is "provider/model", or already such a hash.
    """
    return hashlib.sha256(origin.encode()).hexdigest()[:16] if "/" in origin else origin


def read_extras(text: str) -> CallExtras:
    """Parse the extras of a call. Malformed text counts as no extras."""
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


def select_unknown_message_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the non-empty fields of a message that are not stored elsewhere."""
    return {name: value for name, value in message.items() if name not in OF_A_MESSAGE and value}


def select_unknown_call_fields(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the non-empty fields of a tool call that are not stored elsewhere.

    Unknown fields of the call's function are under `function`.
    """
    found = {name: value for name, value in call.items() if name not in OF_A_CALL and value}
    function = _object(call.get("function"))
    inner = {name: value for name, value in function.items() if name not in OF_A_FUNCTION and value}
    return found | ({"function": inner} if inner else {})


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
