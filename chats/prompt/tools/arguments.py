"""Parses the arguments of a tool call as the model wrote them."""

import json
from typing import Any

from contextpolicy.engine.messages.messages import ToolSpec
from contextpolicy.engine.text.schema import find_schema_violations


class ArgumentsInvalid(ValueError):
    """The arguments are not JSON, or do not match the schema of the tool."""


def parse_tool_arguments(arguments: str, *, spec: ToolSpec) -> Any:
    """Parse the arguments of a call. Raises `ArgumentsInvalid` with a reason for the model."""
    try:
        given = json.loads(arguments)
        json.dumps(given, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ArgumentsInvalid("they are not valid JSON") from None
    wrong = find_schema_violations(spec.parameters, given)
    if wrong:
        raise ArgumentsInvalid(wrong[0][:200])
    return given
