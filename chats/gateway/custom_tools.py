"""Converts custom tools, whose input is plain text, to functions with one string argument.

Few servers support custom tools, so providers always get functions.
"""

import json
from collections.abc import Mapping
from typing import Any

CUSTOM = "custom"
INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def convert_custom_tool(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the fields of a custom tool to a function. Does not validate the function.

    A grammar is appended to the description. The Responses API has the grammar in `format`,
    chat completions in `format.grammar`.
    """
    form = fields.get("format")
    inner = form.get("grammar") if isinstance(form, dict) else None
    form = inner if isinstance(inner, dict) else form
    grammar = form.get("definition") if isinstance(form, dict) else None
    description = fields.get("description")
    if isinstance(description, str | None) and isinstance(grammar, str):
        description = f"{description or ''}\n\nThe input follows this grammar:\n{grammar}".strip()
    function = {"name": fields.get("name"), "description": description, "parameters": INPUT}
    return {"type": "function", "function": function}


def build_custom_arguments(said: Any) -> Any:
    """Return the input of a custom tool call as JSON arguments of a function."""
    return json.dumps({"input": said}, ensure_ascii=False) if isinstance(said, str) else None


def parse_custom_input(said: str) -> str:
    """Return the input text of a custom tool call.

    Some models write plain text instead of JSON arguments. It is returned unchanged.
    """
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return said
    text = found.get("input") if isinstance(found, dict) else None
    return text if isinstance(text, str) else said
