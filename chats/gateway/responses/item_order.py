"""Moves the outputs of tool calls directly after their calls, as providers require."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
# Calls of tools that other servers run or define, which resumed sessions contain. Left out.
HOSTED = (
    *("apply_patch_call", "apply_patch_call_output", "code_interpreter_call", "computer_call"),
    *("computer_call_output", "file_search_call", "image_generation_call", "local_shell_call"),
    *("local_shell_call_output", "mcp_approval_request", "mcp_approval_response", "mcp_call"),
    *("mcp_list_tools", "shell_call", "shell_call_output", "tool_search_call"),
    *("tool_search_output", "web_search_call"),
)
# Items that belong to no message, so a reply continues after them.
PASSED_OVER = ("reasoning", *HOSTED)

Item = Mapping[str, Any]
# The calls of a reply, the items that are passed over between them, the assistant's messages that
# came before their outputs, and these outputs; or any other item alone. Each with its place.
Group = list[tuple[int, Item]]


def order_outputs(items: Sequence[Item], *, waiting: Collection[str]) -> Iterator[tuple[int, Item]]:
    """Yield the items with their places, each output directly after its calls.

    Clients put messages between a call and its output, for example if a user writes while a tool
    runs. Messages of the assistant then precede the call. `waiting`: the ids of earlier calls
    without an output.
    """
    groups: list[Group] = [[]]
    # The groups of the calls without an output, by the id of the call. The first is for `waiting`.
    places = dict.fromkeys(waiting, 0)
    for place, item in enumerate(items):
        kind, call_id = item.get("type"), item.get("call_id")
        call_id = call_id if isinstance(call_id, str) else ""
        if kind in OUTPUTS and call_id in places:
            groups[places.pop(call_id)].append((place, item))
        elif item.get("role") == "assistant" and any(places.values()):
            _insert_before_calls(groups[max(places.values())], (place, item))
        elif kind in (*CALLS, *PASSED_OVER) and _ends_with_call(groups[-1]):
            groups[-1].append((place, item))
        else:
            groups.append([(place, item)])
        if kind in CALLS and call_id:
            places[call_id] = len(groups) - 1
    return chain.from_iterable(groups)


def _ends_with_call(group: Group) -> bool:
    """Return True if the last item of a group is a call, apart from items that are passed over."""
    kinds = (item.get("type") for _, item in reversed(group))
    return next((kind for kind in kinds if kind not in PASSED_OVER), None) in CALLS


def _insert_before_calls(group: Group, entry: tuple[int, Item]) -> None:
    first = next(n for n, (_, item) in enumerate(group) if item.get("type") in CALLS)
    group.insert(first, entry)
