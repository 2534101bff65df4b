"""The demo model's extraction of a state, by one simple rule.

It sets a field from `name: value` (or `name = value`, `name is value`), for names and titles in the
schema, if the value is valid. All other fields stay unchanged.
"""

import json
import re
from collections.abc import Callable, Mapping

from chats.providers.base import StateTask
from contextpolicy.engine.text.schema import find_schema_violations

LONGEST_VALUE = 200
_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_READ: Mapping[str, Callable[[str], object]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": lambda said: _WORDS[said.casefold()],
}


def build_demo_state(task: StateTask) -> str:
    """Return the new state as JSON. A pure function of the request."""
    values = dict(task.values)
    properties = task.schema.get("properties")
    for name, schema in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(schema, Mapping):
            found = [value for text in task.texts for value in _find_values(text, name, schema)]
            if found:
                values[name] = found[-1]
    return json.dumps(values, ensure_ascii=False)


def _find_values(text: str, name: str, schema: Mapping[str, object]) -> list[object]:
    """Return the valid values for a field in the text, in order."""
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
        if not find_schema_violations(schema, value):
            found.append(value)
    return found
