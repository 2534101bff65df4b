"""Compares versions of a policy field by field, with their stored values."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from contextpolicy.models import PolicyVersion

# A value with its lock; None if the field is not set.
Side = dict[str, Any] | None


def diff_version_fields(before: PolicyVersion | None, after: PolicyVersion) -> list[dict[str, Any]]:
    """Return the fields that differ between two versions, each with both values."""
    names = _names(before.values if before else (), after.values)
    sides = [(name, _of(before, name), _of(after, name)) for name in names]
    return [
        {"field": name, "before": one, "after": other} for name, one, other in sides if one != other
    ]


def list_concurrent_changes(
    *,
    base: PolicyVersion,
    theirs: PolicyVersion,
    values: Mapping[str, Any],
    locks: Collection[str],
) -> list[dict[str, Any]]:
    """Return the fields changed since `base`, and those that `values` and `locks` would change.

    A field is a `clash` if both changed it, to different values.
    """
    found = []
    for name in _names(base.values, theirs.values, values):
        before, now, mine = _of(base, name), _of(theirs, name), _side(name, values, locks)
        if before == now == mine:
            continue
        is_clash = now not in (before, mine) and mine != before
        sides = {"before": before, "theirs": now, "mine": mine}
        found.append({"field": name, **sides, "clash": is_clash})
    return found


def _names(*values: Iterable[str]) -> list[str]:
    return sorted({name for each in values for name in each})


def _of(version: PolicyVersion | None, name: str) -> Side:
    return _side(name, version.values, version.locks) if version else None


def _side(name: str, values: Mapping[str, Any], locks: Collection[str]) -> Side:
    return {"value": values[name], "locked": name in locks} if name in values else None
