"""Compares, field by field, the changes that two administrators made to one policy."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.utils.translation import gettext

from chats.admin.policies.display_values import append_lock_text, format_stored_value
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import PolicyVersion


@dataclass(frozen=True, slots=True)
class Conflict:
    """A changed field: its base value, theirs and mine, as text.

    `is_clash`: both changed it, to different values.
    """

    name: str
    label: str
    before: str
    theirs: str
    mine: str
    is_clash: bool


def find_edit_conflicts(
    *,
    touched: Collection[str],
    values: Mapping[str, object],
    locks: Collection[str],
    labels: Mapping[str, str],
    base: PolicyVersion,
    theirs: PolicyVersion,
) -> list[Conflict]:
    """Return the fields that differ from the version on which both edits are based.

    `values` and `locks` are those that a save would store, including my `touched` fields.
    """
    found = []
    for name in PolicyValues().to_json():
        before, now = format_version_field(base, name), format_version_field(theirs, name)
        is_touched = name in touched or f"lock_{name}" in touched
        mine = format_locked_value(name, values, locks) if is_touched else before
        if before == now and before == mine:
            continue
        is_clash = now not in (before, mine) and mine != before
        found.append(Conflict(name, labels.get(name, name), before, now, mine, is_clash))
    return found


def format_version_field(version: PolicyVersion, name: str) -> str:
    return format_locked_value(name, version.values, version.locks)


def format_locked_value(name: str, values: Mapping[str, object], locks: Collection[str]) -> str:
    if name not in values:
        return gettext("not set")
    return append_lock_text(format_stored_value(name, values[name]), is_locked=name in locks)
