"""The parts of a UI message as its client or its file gave them.

A stored message has the parts that the product can use. All other data, such as data parts, sources
and the objects in results of tools, is kept in its metadata and returned unchanged.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from contextpolicy.engine.messages.messages import Part, TextPart
from contextpolicy.engine.messages.ui_messages import UIMessage, serialize_ui_message

# The key of the record among the data of a message's source.
KEPT = "kept"
# Fields of a file that the stored part replaces: its address, and the text of a document.
_OF_FILES = frozenset({"url", "text"})
# The number of stored parts of a type that are compared with a given part.
_COMPARED = 4


def write_stored_parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return stored parts as parts of a UI message: one empty text part if there are none."""
    written: Any = serialize_ui_message(UIMessage("", "assistant", parts or (TextPart(""),)))
    return list(written["parts"])


def build_kept_parts(given: Sequence[Any], parts: Sequence[Part]) -> dict[str, Any]:
    """Return a record that restores the given parts from the stored ones, as JSON data.

    Its `parts` has an entry for each given part: the index of a stored part, a list of such an
    index and the JSON text of additional fields, or the JSON text of the whole part. `of` is the
    number of stored parts. Empty if the stored parts are equal to the given ones, or if none are
    given.
    """
    written = write_stored_parts(parts)
    free: dict[Any, list[int]] = defaultdict(list)
    for place, part in enumerate(written):
        free[_find_group(part)].append(place)
    kept = [_keep_part(item, written, free) for item in given]
    if not kept or kept == [*range(len(written))]:
        return {}
    return {"of": len(parts), "parts": kept}


def restore_given_parts(
    written: Sequence[Mapping[str, Any]], kept: object, *, count: int
) -> list[dict[str, Any]] | None:
    """Return the given parts of a UI message. None if nothing was kept.

    `written`: the stored parts as parts of a UI message. `count`: the number of stored parts. Also
    returns None if that number has changed since.
    """
    if not isinstance(kept, Mapping) or kept.get("of") != count:
        return None
    found: list[dict[str, Any]] = []
    for entry in kept["parts"]:
        if isinstance(entry, str):
            found.append(json.loads(entry))
            continue
        place, more = entry if isinstance(entry, list) else (entry, "{}")
        if place >= len(written):
            return None
        found.append({**written[place], **json.loads(more)})
    return found


def _find_group(part: Any) -> Any:
    """Return the key of the group of stored parts that may match a given part."""
    if not isinstance(part, Mapping):
        return None
    call_id = part.get("toolCallId")
    return part.get("type"), call_id if isinstance(call_id, str) else ""


def _keep_part(
    item: Any, written: Sequence[Mapping[str, Any]], free: dict[Any, list[int]]
) -> int | list[Any] | str:
    """Return the entry for a given part, and remove the matching stored part from `free`."""
    places = free[_find_group(item)]
    is_file = isinstance(item, Mapping) and item.get("type") == "file"
    ignored = _OF_FILES if is_file else frozenset()
    for place in places[: 1 if is_file else _COMPARED]:
        part = written[place]
        if not is_file and not all(name in item and item[name] == part[name] for name in part):
            continue
        places.remove(place)
        more = {
            name: value
            for name, value in item.items()
            if name not in ignored and (name not in part or part[name] != value)
        }
        return [place, _write_json(more)] if more else place
    return _write_json(item)


def _write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
