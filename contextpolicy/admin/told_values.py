"""Writes stored values, and the differences of versions, as texts for people."""

import json
from typing import Any

from contextpolicy.admin.stored_values import YES_OR_NO
from contextpolicy.admin.written import BUILT_IN, rules_text, schema_text
from contextpolicy.models import PolicyVersion

# Lists of what may be used: without one, anything may.
ANY_WITHOUT_A_LIST = frozenset({"allowed_models", "memory_providers"})


def differences(older: PolicyVersion | None, newer: PolicyVersion) -> list[dict[str, Any]]:
    """List what a version changed: the field with its value before and after, locks included."""
    before = told_values(older) if older else {}
    after = told_values(newer)
    return [
        {"field": name, "before": before.get(name), "after": after.get(name)}
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def told_values(version: PolicyVersion) -> dict[str, str]:
    """Return the values of a version as texts, a lock in words."""
    return {
        name: f"{told_value(name, value)}{', locked' if name in version.locks else ''}"
        for name, value in version.values.items()
    }


def told_value(name: str, value: Any) -> str:
    """Write a stored value as a text; structured ones as the form writes them."""
    if name == "tool_output_rules":
        return rules_text(value)
    if name == "state_schema":
        return schema_text(value)
    if name == "summary_sections":
        return ", ".join(value) or BUILT_IN
    if value is None and name in ANY_WITHOUT_A_LIST:
        return "any"
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return YES_OR_NO[value]
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
