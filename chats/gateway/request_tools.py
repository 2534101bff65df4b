"""Parses the tools in a request to /v1, and the tool choice."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from chats.gateway import custom_tools
from chats.gateway.errors import InvalidRequest

MOST_TOOLS = 512


# Other types are tools that a provider runs itself.
OWN_TYPES = frozenset({"function", custom_tools.CUSTOM})
# Turns on the web search of some of OpenAI's models, without a tool. Types of such tools may have a
# version.
SEARCH_FIELD = "web_search_options"
SEARCH_TYPES = "web_search"


# Returns the types of tools that the server of the named model runs itself.
FindHostedTypes = Callable[[str], Collection[str]]


def find_no_types(model: str) -> Collection[str]:
    """Return an empty collection. Used by endpoints that support no hosted tools."""
    del model
    return ()


def parse_tools(body: Mapping[str, Any], *, hosted: Collection[str]) -> tuple[dict[str, Any], ...]:
    """Return the client's tools, in order: custom ones as functions, `hosted` types unchanged.

    Raises `InvalidRequest`.
    """
    tools = tuple(
        build_hosted_tool(item)
        if get_tool_type(item) in hosted
        else validate_tool(convert_chat_tool(item), param=f"tools[{place}]")
        for place, item in enumerate(parse_tool_entries(body))
    )
    names = [tool["name"] for tool in tools]
    if any(names.count(name) > 1 for name in list_custom_names(body)):
        raise InvalidRequest("tools has two tools with the same name.", param="tools")
    return tools


def find_requested_types(
    body: Mapping[str, Any], model: str, *, find_hosted: FindHostedTypes
) -> Collection[str]:
    """Return the hosted tool types that the model supports.

    Empty if the request has only types that every model supports, such as functions.
    """
    entries = parse_tool_entries(body)
    is_own = all(get_tool_type(item) in OWN_TYPES for item in entries)
    if is_own and not body.get(SEARCH_FIELD):
        return ()
    return frozenset(find_hosted(model)) - OWN_TYPES


def list_forbidden_fields(body: Mapping[str, Any], *, hosted: Collection[str]) -> tuple[str, ...]:
    """Return the fields that turn on a hosted tool whose type is not allowed for the model."""
    allows_search = any(kind.startswith(SEARCH_TYPES) for kind in hosted)
    return (SEARCH_FIELD,) if SEARCH_FIELD in body and not allows_search else ()


def get_tool_type(item: Any) -> str:
    """Return the type of a tool; empty if it has none."""
    kind = item.get("type") if isinstance(item, dict) else None
    return kind if isinstance(kind, str) else ""


def build_hosted_tool(item: dict[str, Any]) -> dict[str, Any]:
    """Return a provider-run tool in the format of the other tools."""
    return {
        "name": item["type"],
        "description": "",
        "parameters": item,
        "strict": None,
        "hosted": True,
    }


def is_custom_tool(item: Any) -> bool:
    """Return True if a value is a tool or tool choice of type `custom` with its definition."""
    is_custom = isinstance(item, dict) and item.get("type") == custom_tools.CUSTOM
    return is_custom and isinstance(item.get(custom_tools.CUSTOM), dict)


def convert_chat_tool(item: Any) -> Any:
    """Convert a custom tool to a function. Other tools are returned unchanged."""
    if not is_custom_tool(item):
        return item
    return custom_tools.convert_custom_tool(item[custom_tools.CUSTOM])


def list_custom_names(body: Mapping[str, Any]) -> list[str]:
    """Return the names of the custom tools in a valid request."""
    entries = body.get("tools")
    return [
        item[custom_tools.CUSTOM]["name"]
        for item in (entries if isinstance(entries, list) else ())
        if is_custom_tool(item)
    ]


def convert_tool_choice(said: Any) -> Any:
    """Convert the choice of a custom tool to its function. Other choices are returned unchanged."""
    if not is_custom_tool(said):
        return said
    name = said[custom_tools.CUSTOM].get("name")
    return {"type": "function", "function": {"name": name}}


def parse_tool_entries(body: Mapping[str, Any]) -> list[Any]:
    """Return the entries of `tools`. Raises `InvalidRequest`."""
    entries = body.get("tools")
    if entries is None:
        return []
    if not isinstance(entries, list) or len(entries) > MOST_TOOLS:
        raise InvalidRequest(f"tools must be a list of at most {MOST_TOOLS} tools.", param="tools")
    return entries


def validate_tool(item: Any, *, param: str) -> dict[str, Any]:
    """Return a function tool of the request if its name and schema are valid.

    Raises `InvalidRequest`.
    """
    function = item.get("function") if isinstance(item, dict) else None
    if not isinstance(function, dict) or item.get("type") != "function":
        problem = (
            f"{param} must be of type function or custom, or of a type that an administrator "
            "allows for this model (Hosted tools)."
        )
        raise InvalidRequest(problem, param=param, code="unsupported_content")
    name, strict = function.get("name"), function.get("strict")
    description, schema = function.get("description"), function.get("parameters")
    sound = isinstance(name, str) and 0 < len(name) <= 200
    sound = sound and (description is None or isinstance(description, str))
    sound = sound and (schema is None or isinstance(schema, dict))
    if not sound or not (strict is None or isinstance(strict, bool)):
        raise InvalidRequest(
            f"{param} needs a name. description, parameters and strict are optional.", param=param
        )
    return {
        "name": name,
        "description": description or "",
        "parameters": schema or {"type": "object", "properties": {}},
        "strict": strict,
    }
