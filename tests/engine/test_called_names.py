"""Names in markers are read as models write them, and never guessed."""

import time

import pytest

from contextpolicy.engine.team.called_names import split_called_names
from contextpolicy.engine.team.markers import parse_next_names
from contextpolicy.engine.team.rounds import Member, resolve_member_names

NAMES = ["Bob", "Carol", "Research and Design", "Design", "小和", "Ann-Marie"]
TEAM = tuple(Member(name.casefold(), name) for name in NAMES)


@pytest.mark.parametrize(
    ("marker", "found"),
    [
        ("Bob", ["bob"]),
        ("@Bob", ["bob"]),
        ("Bob.", ["bob"]),
        ("“Bob”!", ["bob"]),
        ("**Bob**", ["bob"]),
        ("_bob_", ["bob"]),
        ("Bob and Carol", ["bob", "carol"]),
        ("Bob, Carol & Design", ["bob", "carol", "design"]),
        ("@Bob und @Carol", ["bob", "carol"]),
        ("Bob/Carol; ann marie", ["bob", "carol", "ann-marie"]),
        ("Bob和Carol", ["bob", "carol"]),
        ("小和", ["小和"]),
        ("小和与Bob", ["小和", "bob"]),
        ("Research and Design", ["research and design"]),
        ("Research and Design and Bob", ["research and design", "bob"]),
        ("*Research and Design*", ["research and design"]),
        ("Bob, please", ["bob"]),
        ("Bob, bitte!", ["bob"]),
        ("Bob (reviewer)", ["bob"]),
        ("Bob（审阅）", ["bob"]),
        ("Bob &", ["bob"]),
        ("everyone", [name.casefold() for name in NAMES]),
        ("Alle!", [name.casefold() for name in NAMES]),
        ("所有人", [name.casefold() for name in NAMES]),
        ("@user", []),
        ("please", []),
    ],
)
def test_a_marker_calls_the_members_it_means(marker: str, found: list[str]) -> None:
    called = parse_next_names(f"Well. [NEXT:{marker}]")
    assert resolve_member_names(called, members=TEAM, speaker="") == (tuple(found), ())


@pytest.mark.parametrize(
    ("marker", "unknown"),
    [
        ("Bobby", ("Bobby",)),
        ("Bo", ("Bo",)),
        ("Bob from sales", ("Bob from sales",)),
        ("Research", ("Research",)),
        ("Bob and the others", ("the others",)),
        ("Dave (Bob)", ("Dave (Bob)",)),
    ],
)
def test_a_part_of_a_name_calls_nobody(marker: str, unknown: tuple[str, ...]) -> None:
    assert resolve_member_names([marker], members=TEAM, speaker="")[1] == unknown


def test_a_word_for_everybody_may_be_the_name_of_a_member() -> None:
    team = (*TEAM, Member("alle", "Alle"))
    assert resolve_member_names(["@alle"], members=team, speaker="") == (("alle",), ())


@pytest.mark.parametrize("text", ["a" + " " * 40_000 + "b", "/ & " * 10_000, "(" * 40_000])
def test_a_long_marker_is_read_at_once(text: str) -> None:
    begun = time.process_time()
    split_called_names([text], names=NAMES)
    assert time.process_time() - begun < 2
