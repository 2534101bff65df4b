"""Reads the tools of a request to /v1/responses, and writes their calls in the form they came in.

A provider of chat completions knows functions alone. A function in a namespace goes there under
one name, a custom tool as a function with one text; what OpenAI runs itself and a model need not
use is left out, because programs offer it by themselves.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chats.gateway import body
from chats.gateway.refused import InvalidRequest

# Between a namespace and the name of a function in it.
MARK = "__"
# Others that are run at OpenAI's, such as a search in files that lie there, are refused by name.
LEFT_OUT = frozenset({"image_generation", "web_search", "web_search_preview"})
INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Offered:
    """The functions for the provider, how calls of some are written, and what was left out."""

    tools: tuple[dict[str, Any], ...]
    forms: Mapping[str, Mapping[str, str]]
    left_out: tuple[str, ...]


def read(sent: Mapping[str, Any]) -> Offered:
    """Return the tools of a request in its order. Raises `InvalidRequest`, naming the place."""
    tools: list[dict[str, Any]] = []
    forms: dict[str, Mapping[str, str]] = {}
    left_out: list[str] = []
    for place, item in enumerate(body.listed_tools(sent)):
        at = f"tools[{place}]"
        kind = item.get("type") if isinstance(item, dict) else ""
        if kind in LEFT_OUT:
            left_out.append(kind)
        elif kind == "namespace":
            for tool, form in in_namespace(item, param=at):
                tools.append(tool)
                forms[tool["name"]] = form
        elif kind == "custom":
            made = custom(item, param=at)
            tools.append(made)
            forms[made["name"]] = {"type": "custom_tool_call", "name": made["name"]}
        else:
            tools.append(body.tool(nested(item), param=at))
    if len(tools) > body.MOST_TOOLS:
        raise InvalidRequest(f"tools has more than {body.MOST_TOOLS} functions.", param="tools")
    if len({tool["name"] for tool in tools}) < len(tools) and forms:
        raise InvalidRequest("tools has two with one name.", param="tools")
    return Offered(tuple(tools), forms, tuple(dict.fromkeys(left_out)))


def in_namespace(
    item: Mapping[str, Any], *, param: str
) -> list[tuple[dict[str, Any], Mapping[str, str]]]:
    """Return the functions of a namespace, each with how its calls are written.

    Raises `InvalidRequest`.
    """
    space, inner = item.get("name"), item.get("tools")
    if not isinstance(space, str) or not space or not isinstance(inner, list):
        raise InvalidRequest(f"{param} needs a name and tools.", param=param)
    found: list[tuple[dict[str, Any], Mapping[str, str]]] = []
    for place, entry in enumerate(inner):
        tool = body.tool(nested(entry), param=f"{param}.tools[{place}]")
        form = {"type": "function_call", "namespace": space, "name": tool["name"]}
        found.append(({**tool, "name": joined(space, tool["name"])}, form))
    return found


def custom(item: Mapping[str, Any], *, param: str) -> dict[str, Any]:
    """Return a tool that takes a free text as a function. Raises `InvalidRequest`."""
    form = item.get("format")
    grammar = form.get("definition") if isinstance(form, dict) else None
    told = item.get("description")
    if isinstance(told, str) and isinstance(grammar, str):
        told = f"{told}\n\nThe input follows this grammar:\n{grammar}"
    function = {"name": item.get("name"), "description": told, "parameters": INPUT}
    return body.tool({"type": "function", "function": function}, param=param)


def nested(tool: Any) -> Any:
    """Return a function as chat completions write it; another kind of tool as it is."""
    if isinstance(tool, dict) and tool.get("type") == "function":
        return {"type": "function", "function": tool}
    # Without a field `function`, so that a form of chat completions is no tool here.
    return {"type": tool.get("type")} if isinstance(tool, dict) else tool


def joined(space: Any, name: Any) -> Any:
    """Return the name under which the provider knows a function; what is no text as it is."""
    return f"{space}{MARK}{name}" if space and isinstance(name, str) else name


def arguments(said: Any) -> Any:
    """Return the text of a custom tool's call as the arguments of a function."""
    return json.dumps({"input": said}, ensure_ascii=False) if isinstance(said, str) else None


def written(call: Mapping[str, str], *, forms: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return a call as an item, in the form in which its tool was offered."""
    form = forms.get(call["name"], {"type": "function_call", "name": call["name"]})
    item: dict[str, Any] = {**form, "call_id": call["call_id"]}
    if form["type"] == "custom_tool_call":
        return {**item, "input": text_in(call["arguments"])}
    return {**item, "arguments": call["arguments"]}


def text_in(said: str) -> str:
    """Return the text in the arguments of a custom tool; a model may have written it bare."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return said
    text = found.get("input") if isinstance(found, dict) else None
    return text if isinstance(text, str) else said
