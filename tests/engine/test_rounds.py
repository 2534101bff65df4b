"""Who of a team replies next, and when a round ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.team.rounds import (
    PAIR_TURNS,
    Ending,
    Member,
    Next,
    Routing,
    Rules,
    Standing,
    build_opening_queue,
    decide_next_speaker,
    resolve_member_names,
)

MAX = Member("max", "Max")
CRITIC = Member("critic", "Critic")
BILLING = Member("billing", "Billing Agent")
ANN = Member("ann", "Ann", is_human=True)
SLEEPER = Member("sleeper", "Sleeper", rests=True)
TEAM = (MAX, CRITIC, BILLING, ANN, SLEEPER)
ALL, IN_TURN, PERSON = Rules(), Rules(routing="round_robin"), Rules(routing="person")


def standing(*queue: str, spoke: Sequence[str] = ("max",), **facts: object) -> Standing:
    """A round with the agents that replied and the agents still to reply."""
    made = Standing(
        queue=queue, speakers=tuple(spoke), hops=len(spoke), tokens=0, seconds=0, passes=0
    )
    return replace(made, **facts)  # type: ignore[arg-type]  # facts of a test


def after(
    state: Standing,
    *called: str,
    rules: Rules = ALL,
    members: Sequence[Member] = TEAM,
    failed: bool = False,
) -> Next:
    """The decision after the reply of the round's last speaker."""
    speaker = state.speakers[-1]
    return decide_next_speaker(state, members, rules, speaker=speaker, called=called, failed=failed)


# First speaker.


@pytest.mark.requirement("S3.11")
def test_the_addressees_speak_in_the_order_in_which_they_are_named() -> None:
    for rules in (ALL, IN_TURN, PERSON):
        made = build_opening_queue(TEAM, rules, addressees=["billing-agent", "MAX", "Max"], last="")
        assert made == ("billing", "max")


@pytest.mark.requirement("S3.11")
def test_all_are_the_agents_that_are_awake_and_no_person() -> None:
    assert build_opening_queue(TEAM, PERSON, addressees=["all"], last="") == (
        "max",
        "critic",
        "billing",
    )
    assert build_opening_queue(TEAM, ALL, addressees=[], last="") == ("max", "critic", "billing")


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(19)
def test_a_resting_agent_speaks_neither_by_rule_nor_by_name() -> None:
    assert build_opening_queue(TEAM, ALL, addressees=["Sleeper"], last="") == ()
    assert resolve_member_names(["Sleeper"], members=TEAM, speaker="") == ((), ("Sleeper",))
    asleep = (SLEEPER, replace(MAX, rests=True))
    assert all(
        not build_opening_queue(asleep, rules, addressees=[], last="") for rules in (ALL, IN_TURN)
    )


@pytest.mark.requirement("S3.11")
@pytest.mark.parametrize(
    ("last", "first"),
    [("", "max"), ("max", "critic"), ("billing", "max"), ("sleeper", "max"), ("gone", "max")],
)
def test_round_robin_goes_on_behind_the_one_that_spoke_last(last: str, first: str) -> None:
    assert build_opening_queue(TEAM, IN_TURN, addressees=[], last=last) == (first,)


@pytest.mark.requirement("S3.11")
def test_where_the_person_names_nobody_the_first_agent_awake_answers_alone() -> None:
    team = (SLEEPER, ANN, CRITIC, MAX)
    assert build_opening_queue(team, PERSON, addressees=[], last="critic") == ("critic",)
    assert build_opening_queue((SLEEPER, ANN), PERSON, addressees=[], last="") == ()
    assert after(standing(spoke=["critic"]), rules=PERSON, members=team) == Next("", (), "settled")


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(19)
@pytest.mark.parametrize("rules", [ALL, IN_TURN, PERSON], ids=lambda rules: rules.routing)
def test_a_team_with_one_agent_awake_works(rules: Rules) -> None:
    team = (SLEEPER, MAX, ANN)
    assert build_opening_queue(team, rules, addressees=[], last="max") == ("max",)
    assert after(standing(), members=team, rules=rules) == Next("", (), "settled")


# Mentioned names.


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(2)
def test_names_are_found_once_each_and_never_the_speaker() -> None:
    names = ["Ghost", "billing_agent", "Max", "Critic", "Billing Agent", "Ghost", "Ann"]
    assert resolve_member_names(names, members=TEAM, speaker="max") == (
        ("billing", "critic", "ann"),
        ("Ghost",),
    )
    assert resolve_member_names(["all"], members=TEAM, speaker="max") == (("critic", "billing"), ())
    assert resolve_member_names(["user", "USER"], members=TEAM, speaker="max") == ((), ())


def test_a_longer_name_is_another_member() -> None:
    team = (MAX, Member("senior", "Max Senior"))
    assert resolve_member_names(["max-senior"], members=team, speaker="") == (("senior",), ())
    assert resolve_member_names(["Max"], members=team, speaker="") == (("max",), ())


# Next speaker.


@pytest.mark.requirement("S3.11")
def test_those_who_wait_speak_before_whom_a_reply_calls() -> None:
    made = after(standing("billing"), "Critic", "Billing Agent")
    assert made == Next("billing", ("critic",))


@pytest.mark.requirement("S3.11")
def test_a_reply_that_names_itself_or_nobody_known_calls_nobody() -> None:
    assert after(standing(), "Max") == Next("", (), "settled")
    assert after(standing(), "Ghost") == Next("", (), "settled", ("Ghost",))
    assert after(standing("critic"), "Ghost") == Next("critic", (), "", ("Ghost",))


@pytest.mark.requirement("S3.11")
def test_everybody_once_is_settled_when_all_have_spoken() -> None:
    spoke = ["max", "critic", "billing"]
    assert after(standing("critic", "billing")) == Next("critic", ("billing",))
    assert after(standing(spoke=spoke)) == Next("", (), "settled")


@pytest.mark.requirement("S3.11")
def test_round_robin_goes_on_until_nobody_has_anything_to_add() -> None:
    assert after(standing(), rules=IN_TURN) == Next("critic", ())
    assert after(standing(spoke=["billing"], passes=2), rules=IN_TURN) == Next("max", ())
    assert after(standing(spoke=["billing"], passes=3), rules=IN_TURN) == Next("", (), "settled")


def test_round_robin_heeds_a_call_and_an_unknown_name_leaves_it_the_turn() -> None:
    assert after(standing(), "Billing Agent", rules=IN_TURN) == Next("billing", ())
    assert after(standing(), "Ghost", rules=IN_TURN) == Next("critic", (), "", ("Ghost",))


def test_round_robin_stops_where_a_reply_gives_the_turn_to_the_person() -> None:
    assert after(standing(), "User", rules=IN_TURN) == Next("", (), "settled")
    assert after(standing(), "user", "Critic", rules=IN_TURN) == Next("critic", ())


@pytest.mark.parametrize("rules", [ALL, IN_TURN, PERSON], ids=lambda rules: rules.routing)
def test_a_reply_that_gives_the_turn_to_the_person_lets_the_queue_reply_first(rules: Rules) -> None:
    made = after(standing("critic", "billing"), "user", rules=rules)
    assert made == Next("critic", ("billing",))
    assert after(standing(), "user", rules=rules) == Next("", (), "settled")


# End of a round (cases 1, 3, 15).


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(3)
@pytest.mark.parametrize(
    ("facts", "ending"),
    [
        ({"hops": 8}, "hops"),
        ({"tokens": 100_000}, "tokens"),
        ({"seconds": 600.0}, "time"),
        ({"hops": 9, "tokens": 100_001, "seconds": 601.0}, "hops"),
        ({"hops": 7, "tokens": 99_999, "seconds": 599.9}, ""),
    ],
    ids=str,
)
def test_at_a_limit_the_round_names_who_was_called(facts: dict[str, float], ending: str) -> None:
    state = replace(standing("billing"), **facts)  # type: ignore[arg-type]  # facts of a test
    made = after(state, "Critic", "Ghost")
    if ending:
        assert made == Next("", ("billing", "critic"), ending, ("Ghost",))  # type: ignore[arg-type]  # an ending
    else:
        assert made == Next("billing", ("critic",), "", ("Ghost",))


@pytest.mark.requirement("S3.11")
def test_the_last_reply_that_is_allowed_settles_a_round_if_it_calls_nobody() -> None:
    assert after(standing(hops=8, tokens=200_000, seconds=900)) == Next("", (), "settled")


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(1)
def test_two_agents_who_only_thank_each_other_are_stopped_before_the_hop_limit() -> None:
    state, spoke = standing(), ["max"]
    while True:
        made = after(state, "Critic" if spoke[-1] == "max" else "Max")
        if made.ending:
            break
        spoke.append(made.role_id)
        state = standing(*made.queue, spoke=spoke)
    assert made == Next("", ("max",), "pair")
    assert spoke == ["max", "critic"] * PAIR_TURNS
    assert len(spoke) < ALL.hop_limit


@pytest.mark.parametrize(
    ("spoke", "calls"),
    [
        (["max", "critic"] * 2 + ["max"], "Critic"),
        (["max", "critic"] * 3, "Billing Agent"),
        (["max", "critic", "billing"] * 2, "Max"),
        (["max", "max", "critic", "critic", "max", "critic"], "Max"),
        (["max", "critic", "billing", "critic", "max", "critic"], "Max"),
    ],
    ids=["too_few", "a_third_follows", "three", "not_in_turn", "a_third_between"],
)
def test_a_talk_that_is_not_between_two_alone_goes_on(spoke: list[str], calls: str) -> None:
    made = after(standing(spoke=spoke, hops=0), calls)
    assert (made.ending, bool(made.role_id)) == ("", True)


def test_a_pair_counts_its_last_replies_only() -> None:
    spoke = ["billing", *["max", "critic"] * PAIR_TURNS]
    assert after(standing(spoke=spoke), "Max").ending == "pair"


@pytest.mark.requirement("S3.11")
def test_the_round_waits_for_a_person_whose_turn_it_is() -> None:
    assert after(standing(), "Ann", "Critic") == Next("ann", ("critic",), "waiting")
    assert after(standing("critic"), "Ann") == Next("critic", ("ann",))


def test_a_person_is_waited_for_at_a_limit_too() -> None:
    assert after(standing(hops=8, tokens=100_000, seconds=600), "Ann") == Next("ann", (), "waiting")


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(15)
def test_after_a_failure_the_others_go_on_or_the_round_ends() -> None:
    strict = replace(ALL, goes_on_after_failure=False)
    assert after(standing("critic"), failed=True) == Next("critic", ())
    assert after(standing("critic"), failed=True, rules=strict) == Next("", ("critic",), "failed")
    assert after(standing("critic"), rules=strict) == Next("critic", ())


@dataclass(frozen=True)
class Game:
    """A team, its rules, and the mentions of each reply in order."""

    members: tuple[Member, ...]
    rules: Rules
    addressees: tuple[str, ...]
    calls: tuple[tuple[str, ...], ...]


@st.composite
def games(draw: st.DrawFn) -> Game:
    """Teams of some agents, active or not, that mention each other, themselves and strangers."""
    members = tuple(
        Member(f"r{n}", f"Agent {n}", draw(st.integers(0, 5)) == 0, draw(st.integers(0, 5)) == 0)
        for n in range(draw(st.integers(1, 5)))
    )
    names = st.sampled_from([*(m.name.lower() for m in members), "all", "user", "Ghost"])
    some = st.lists(names, max_size=3).map(tuple)
    rules = Rules(
        routing=draw(st.sampled_from(get_args(Routing))),
        hop_limit=draw(st.integers(1, 12)),
        token_limit=draw(st.integers(1, 2_000)),
        goes_on_after_failure=draw(st.booleans()),
    )
    return Game(members, rules, draw(some), tuple(draw(st.lists(some, max_size=15))))


@given(games(), st.lists(st.integers(0, 9), min_size=30, max_size=30))
def test_every_round_ends_within_its_limit_and_nobody_follows_themselves(
    game: Game, luck: list[int]
) -> None:
    awake = {m.role_id for m in game.members if not m.rests}
    people = {m.role_id for m in game.members if m.is_human}
    opening = build_opening_queue(game.members, game.rules, addressees=game.addressees, last="")
    opening = tuple(role for role in opening if role not in people)
    if not opening:
        return
    speaker, queue, spoke, passes = opening[0], opening[1:], list[str](), 0
    for hop in range(1, game.rules.hop_limit + 1):
        assert speaker in awake - people
        spoke.append(speaker)
        called = game.calls[hop % len(game.calls)] if game.calls else ()
        passes = passes + 1 if luck[hop] < 3 else 0
        state = standing(*queue, spoke=spoke, tokens=200 * hop, seconds=hop, passes=passes)
        made = decide_next_speaker(
            state, game.members, game.rules, speaker=speaker, called=called, failed=luck[hop] == 9
        )
        assert len(set(made.queue)) == len(made.queue)
        assert made.role_id != speaker
        assert made.ending in get_args(Ending)
        assert bool(made.role_id) == (made.ending in ("", "waiting"))
        assert (made.role_id in people) == (made.ending == "waiting")
        if made.ending:
            break
        speaker, queue = made.role_id, made.queue
    assert made.ending, "the round went on beyond its hop limit"
    if made.ending in ("hops", "tokens", "time", "pair"):
        assert made.queue, "those who would have followed are kept"
    if made.ending == "settled":
        assert not made.queue


@given(games(), st.integers(0, 20))
def test_no_agent_follows_once_the_hop_limit_is_reached(game: Game, beyond: int) -> None:
    agents = [member.role_id for member in game.members]
    state = standing(*agents[1:], spoke=agents[:1], hops=game.rules.hop_limit + beyond)
    called = [name for names in game.calls for name in names]
    made = decide_next_speaker(state, game.members, game.rules, speaker=agents[0], called=called)
    assert made.ending
    assert made.ending == "waiting" or not made.role_id
