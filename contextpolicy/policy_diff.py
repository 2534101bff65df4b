"""Compares the values of two policy versions for the ledger."""

import hashlib
from collections.abc import Mapping
from typing import Any

from contextpolicy.engine.policy.policy import TEXT_FIELDS


def diff_policy_values(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the differences as {field: {from, to}}. Texts are represented by hashes.

    If one side does not set the field, its key is omitted.
    """
    differing = [
        name
        for name in sorted({*before, *after})
        if name not in before or name not in after or before[name] != after[name]
    ]
    return {
        name: {
            side: _hash_text(name, values[name])
            for side, values in (("from", before), ("to", after))
            if name in values
        }
        for name in differing
    }


def _hash_text(name: str, value: Any) -> Any:
    if name not in TEXT_FIELDS:
        return value
    return {"sha256": hashlib.sha256(value.encode()).hexdigest(), "characters": len(value)}
