"""Converts the tools of a request to /v1/responses, and their calls.

Chat completions support only functions. A namespaced function is sent under a combined name, a
custom tool as a function with one string argument. Hosted tools that the model's server does not
run are dropped if clients offer them by default.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chats.gateway import custom_tools, request_tools
from chats.gateway.errors import InvalidRequest

# Separates a namespace from a function name.
MARK = "__"
# Dropped without an error, also the versions of their types. Other hosted tools, such as file
# search, are refused. The names are limited, because a header lists the dropped types.
_LEFT_OUT = re.compile(
    rf"(?:image_generation|tool_search|{request_tools.SEARCH_TYPES})(?:_[a-z0-9_]{{1,40}})?"
)


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools for the provider, the original format of special calls, and the dropped types."""

    tools: tuple[dict[str, Any], ...]
    forms: Mapping[str, Mapping[str, str]]
    left_out: tuple[str, ...]


def parse_offered_tools(sent: Mapping[str, Any], *, hosted: Collection[str]) -> Offered:
    """Convert the tools of a request, in order; those of `hosted` types stay unchanged.

    Raises `InvalidRequest`, naming the field.
    """
    tools: list[dict[str, Any]] = []
    forms: dict[str, Mapping[str, str]] = {}
    left_out: list[str] = []
    for place, item in enumerate(request_tools.parse_tool_entries(sent)):
        at = f"tools[{place}]"
        kind = request_tools.get_tool_type(item)
        if kind in hosted:
            tools.append(request_tools.build_hosted_tool(item))
        elif is_left_out(kind):
            left_out.append(kind)
        elif kind == "namespace":
            for tool, form in expand_namespace(item, param=at):
                tools.append(tool)
                forms[tool["name"]] = form
        elif kind == "custom":
            made = request_tools.validate_tool(custom_tools.convert_custom_tool(item), param=at)
            tools.append(made)
            forms[made["name"]] = {"type": "custom_tool_call", "name": made["name"]}
        else:
            tools.append(request_tools.validate_tool(convert_function_tool(item), param=at))
    check_tool_list(tools, forms=forms)
    return Offered(tuple(tools), forms, tuple(dict.fromkeys(left_out)))


def is_left_out(kind: str) -> bool:
    """Return True if tools of this type are dropped, unless the model's server runs them."""
    return bool(_LEFT_OUT.fullmatch(kind))


def check_tool_list(
    tools: Sequence[Mapping[str, Any]], *, forms: Mapping[str, Mapping[str, str]]
) -> None:
    """Raise `InvalidRequest` for too many tools, and for duplicate names if any call is special."""
    if len(tools) > request_tools.MOST_TOOLS:
        raise InvalidRequest(
            f"tools has more than {request_tools.MOST_TOOLS} functions.", param="tools"
        )
    if len({tool["name"] for tool in tools}) < len(tools) and forms:
        raise InvalidRequest("tools has two functions with the same name.", param="tools")


def expand_namespace(
    item: Mapping[str, Any], *, param: str
) -> list[tuple[dict[str, Any], Mapping[str, str]]]:
    """Return the functions of a namespace, each with the format of its calls.

    Raises `InvalidRequest`.
    """
    space, inner = item.get("name"), item.get("tools")
    if not isinstance(space, str) or not space or not isinstance(inner, list):
        raise InvalidRequest(f"{param} needs a name and tools.", param=param)
    found: list[tuple[dict[str, Any], Mapping[str, str]]] = []
    for place, entry in enumerate(inner):
        tool = request_tools.validate_tool(
            convert_function_tool(entry), param=f"{param}.tools[{place}]"
        )
        form = {"type": "function_call", "namespace": space, "name": tool["name"]}
        found.append(({**tool, "name": join_function_name(space, tool["name"])}, form))
    return found


def convert_function_tool(tool: Any) -> Any:
    """Convert a function to the chat completions format. Other tools keep only their type."""
    if isinstance(tool, dict) and tool.get("type") == "function":
        return {"type": "function", "function": tool}
    # Dropping `function` makes the form of chat completions invalid here.
    return {"type": tool.get("type")} if isinstance(tool, dict) else tool


def join_function_name(space: Any, name: Any) -> Any:
    """Return the function name for the provider. Values other than strings stay unchanged."""
    return f"{space}{MARK}{name}" if space and isinstance(name, str) else name


def build_call_item(
    call: Mapping[str, str], *, forms: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    form = forms.get(call["name"], {"type": "function_call", "name": call["name"]})
    item: dict[str, Any] = {**form, "call_id": call["call_id"]}
    if form["type"] == "custom_tool_call":
        return {**item, "input": custom_tools.parse_custom_input(call["arguments"])}
    return {**item, "arguments": call["arguments"]}
