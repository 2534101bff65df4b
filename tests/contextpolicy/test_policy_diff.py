"""The differences of two versions for the ledger, which holds no text."""

from typing import Any

import pytest

from contextpolicy.policy_diff import diff_policy_values


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"window_size": 12}, {"window_size": 20}, {"window_size": {"from": 12, "to": 20}}),
        ({"archive": True}, {}, {"archive": {"from": True}}),
        ({}, {"archive": True}, {"archive": {"to": True}}),
        ({"archive": True}, {"archive": True}, {}),
    ],
    ids=["changed", "unset", "set", "same"],
)
def test_a_difference_names_both_sides(
    before: dict[str, Any], after: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert diff_policy_values(before, after) == changes


def test_a_text_is_replaced_by_its_hash_and_length() -> None:
    changes = diff_policy_values({"system_text": "Be kind."}, {"system_text": "Be short."})
    sides = changes["system_text"]
    assert [side["characters"] for side in sides.values()] == [8, 9]
    assert sides["from"]["sha256"] != sides["to"]["sha256"]
    assert "Be" not in str(changes)
