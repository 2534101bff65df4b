"""The choice among the tools of a request to /v1/responses."""

from collections.abc import Mapping, Sequence
from typing import Any

from chats.gateway import request_tools
from chats.gateway.errors import InvalidRequest
from chats.gateway.responses import tools
from chats.gateway.responses.tools import Offered

Tools = tuple[dict[str, Any], ...]


def choose_tools(sent: Mapping[str, Any], *, given: Offered) -> tuple[Tools, dict[str, Any]]:
    """Return the tools to offer, and the tool choice in the provider's form.

    A choice of tools that are all left out is left out, too. Raises `InvalidRequest`.
    """
    choice = sent.get("tool_choice")
    if choice is None or not sent.get("tools") or (choice == "auto" and not given.tools):
        # Tools and their choice are left out together.
        return given.tools, {}
    kind = request_tools.get_tool_type(choice)
    if kind == "allowed_tools":
        return choose_allowed_tools(choice, given=given)
    if choice == "required" and not given.tools:
        raise build_required_error()
    if choice in ("none", "auto", "required"):
        return given.tools, {"tool_choice": choice}
    if kind in ("function", "custom"):
        name = tools.join_function_name(choice.get("namespace"), choice.get("name"))
        return given.tools, {"tool_choice": {"type": "function", "function": {"name": name}}}
    if kind and any(tool.get("hosted") and is_of_type(tool, kind) for tool in given.tools):
        return given.tools, {"tool_choice": choice}
    if given.left_out and tools.is_left_out(kind):
        return given.tools, {}
    problem = "tool_choice must be none, auto, required, allowed_tools or a tool of the request."
    raise build_choice_error(problem)


def choose_allowed_tools(
    choice: Mapping[str, Any], *, given: Offered
) -> tuple[Tools, dict[str, Any]]:
    """Return only the allowed tools, with the mode of the choice. Most servers know only modes.

    If none of them is offered, the model may call no tool. Raises `InvalidRequest`.
    """
    mode, entries = choice.get("mode") or "auto", choice.get("tools")
    if mode not in ("auto", "required") or not isinstance(entries, list):
        problem = "tool_choice of type allowed_tools needs a mode (auto or required) and tools."
        raise build_choice_error(problem)
    allowed = tuple(tool for tool in given.tools if is_tool_allowed(tool, entries))
    if allowed:
        return allowed, {"tool_choice": mode}
    if mode == "required":
        raise build_required_error()
    return given.tools, {"tool_choice": "none"}


def is_tool_allowed(tool: Mapping[str, Any], entries: Sequence[Any]) -> bool:
    """Return True if an entry of a choice names the tool, or the type of a hosted tool."""
    for entry in entries:
        kind = request_tools.get_tool_type(entry)
        if kind in ("function", "custom"):
            name = tools.join_function_name(entry.get("namespace"), entry.get("name"))
            if not tool.get("hosted") and tool["name"] == name:
                return True
        elif kind and tool.get("hosted") and is_of_type(tool, kind):
            return True
    return False


def is_of_type(tool: Mapping[str, Any], kind: str) -> bool:
    """Return True if a hosted tool has this type, or a dated version of it."""
    return tool["name"] == kind or str(tool["name"]).startswith(f"{kind}_")


def build_required_error() -> InvalidRequest:
    return build_choice_error("tool_choice is required, but the request has no supported tool.")


def build_choice_error(problem: str) -> InvalidRequest:
    return InvalidRequest(problem, param="tool_choice", code="unsupported_parameter")
