"""The differences between two versions of a policy, field by field."""

import pytest

from contextpolicy.comparison import diff_version_fields, list_concurrent_changes
from contextpolicy.models import PolicyVersion


def version(*locks: str, **values: object) -> PolicyVersion:
    """An unsaved version."""
    return PolicyVersion(values=values, locks=list(locks))


def side(value: object, *, locked: bool = False) -> dict[str, object]:
    """A value as the comparison displays it."""
    return {"value": value, "locked": locked}


def test_a_change_tells_both_sides_and_nothing_of_what_stayed() -> None:
    before = version("budget", budget=1000, reserve=10, window=3)
    after = version(budget=1000, reserve=20, compact_at=50)
    assert diff_version_fields(before, after) == [
        {"field": "budget", "before": side(1000, locked=True), "after": side(1000)},
        {"field": "compact_at", "before": None, "after": side(50)},
        {"field": "reserve", "before": side(10), "after": side(20)},
        {"field": "window", "before": side(3), "after": None},
    ]


def test_the_first_version_sets_all_its_fields_anew() -> None:
    assert diff_version_fields(None, version(budget=1)) == [
        {"field": "budget", "before": None, "after": side(1)}
    ]


@pytest.mark.parametrize(
    ("theirs", "mine", "clash"),
    [
        ({"budget": 2}, {"budget": 1}, False),
        ({"budget": 1}, {"budget": 2}, False),
        ({"budget": 2}, {"budget": 2}, False),
        ({"budget": 2}, {"budget": 3}, True),
        ({}, {"budget": 3}, True),
        ({"budget": 2}, {}, True),
    ],
)
def test_a_clash_is_a_field_that_both_changed_and_not_to_the_same(
    theirs: dict[str, int], mine: dict[str, int], clash: bool
) -> None:
    base = version(budget=1, reserve=5)
    saved = version(**theirs, reserve=5)
    (found,) = list_concurrent_changes(
        base=base, theirs=saved, values={**mine, "reserve": 5}, locks=()
    )
    assert (found["field"], found["clash"]) == ("budget", clash)


def test_a_lock_is_a_change_of_its_own() -> None:
    base = version(budget=1)
    (found,) = list_concurrent_changes(
        base=base, theirs=version(budget=1), values={"budget": 1}, locks=["budget"]
    )
    assert found == {
        "field": "budget",
        "before": side(1),
        "theirs": side(1),
        "mine": side(1, locked=True),
        "clash": False,
    }
