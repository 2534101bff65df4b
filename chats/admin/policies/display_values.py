"""Formats stored values, and the differences between versions, as text."""

import json
from typing import Any

from django.utils.translation import gettext

from chats.admin.policies.line_formats import BUILT_IN, format_schema_lines, format_tool_rules
from contextpolicy.engine.policy.fields import FIELDS
from contextpolicy.models import PolicyVersion
from contextpolicy.wording import join_items

# Allow-lists: if unset, everything is allowed.
ANY_WITHOUT_A_LIST = frozenset(
    name for name, declared in FIELDS.items() if declared.kind == "names" and declared.is_optional
)


def list_version_changes(older: PolicyVersion | None, newer: PolicyVersion) -> list[dict[str, Any]]:
    """Return the changes of a version: field, old value and new value, including locks."""
    before = format_version_values(older) if older else {}
    after = format_version_values(newer)
    return [
        {"field": name, "before": before.get(name), "after": after.get(name)}
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def format_version_values(version: PolicyVersion) -> dict[str, str]:
    """Return the values of a version as text, with locks in words."""
    return {
        name: append_lock_text(format_stored_value(name, value), is_locked=name in version.locks)
        for name, value in version.values.items()
    }


def append_lock_text(value: str, *, is_locked: bool) -> str:
    return gettext("{value}, locked").format(value=value) if is_locked else value


def format_stored_value(name: str, value: Any) -> str:
    """Format a stored value as text. Structured values look as in the form."""
    if name == "tool_output_rules":
        return format_tool_rules(value)
    if name == "state_schema":
        return format_schema_lines(value)
    if name == "summary_sections":
        return join_items(value) or BUILT_IN
    if value is None and name in ANY_WITHOUT_A_LIST:
        return gettext("any")
    if value is None or value == []:
        return gettext("none")
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if isinstance(value, list):
        return join_items(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
