"""Reads a state for the demo model: by one simple rule, without guessing.

It takes over `name: value` (or `name = value`, `name is value`) for the names and titles that the
schema declares, where the value fits. Anything else it leaves as it was.
"""

import json
import re
from collections.abc import Callable, Mapping

from chats.providers.base import StateTask
from contextpolicy.engine.schema import violations

LONGEST_VALUE = 200
_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_READ: Mapping[str, Callable[[str], object]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": lambda said: _WORDS[said.casefold()],
}


def demo_state(task: StateTask) -> str:
    """Return the new state as JSON; a pure function of the request."""
    values = dict(task.values)
    properties = task.schema.get("properties")
    for name, schema in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(schema, Mapping):
            found = [value for text in task.texts for value in _said(text, name, schema)]
            if found:
                values[name] = found[-1]
    return json.dumps(values, ensure_ascii=False)


def _said(text: str, name: str, schema: Mapping[str, object]) -> list[object]:
    """Return the values of a field that a text names and that fit, in the order of the text."""
    read = _READ.get(str(schema.get("type")))
    if read is None:
        return []
    names = "|".join(re.escape(str(word)) for word in (name, schema.get("title", name)))
    pattern = rf"(?<!\w)(?:{names})\s*(?:[:=：]|\bis\b)\s*([^\n,;，；]{{1,{LONGEST_VALUE}}})"
    found = []
    for said in re.findall(pattern, text, re.IGNORECASE):
        try:
            value = read(said.strip().removesuffix("."))
        except (KeyError, ValueError, OverflowError):
            continue
        if not violations(schema, value):
            found.append(value)
    return found
