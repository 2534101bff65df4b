"""Decides who of a team speaks next, and when a round is over. Pure: rows are the caller's.

A round begins with a person's message. The person's addressees speak first, then whom a reply calls
by `[NEXT:name]`, else the team's rule holds; no model is asked to choose. What ends a round is told
apart: everybody has spoken (`settled`), a limit, two agents who only answer each other (`pair`), a
person of the team whose turn it is (`waiting`), or a failure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from contextpolicy.engine.team_view import EVERYBODY, PERSON, folded

Routing = Literal["all", "round_robin", "person"]
Ending = Literal["", "settled", "hops", "tokens", "time", "pair", "waiting", "failed"]
MOST_MEMBERS = 8
HOP_LIMIT, TOKEN_LIMIT, SECONDS_LIMIT = 8, 100_000, 600
# So many replies each of two agents alone, one after the other, before the person is asked.
PAIR_TURNS = 3


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a team as routing sees it; one that rests is called by nobody."""

    role_id: str
    name: str
    is_human: bool = False
    rests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a team's rounds."""

    routing: Routing = "all"
    hop_limit: int = HOP_LIMIT
    token_limit: int = TOKEN_LIMIT
    seconds_limit: int = SECONDS_LIMIT
    goes_on_after_failure: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A round after a reply: who is still to speak, who spoke, and what it has taken.

    `speakers`: the role ids of its replies, oldest first, since the person last wrote. `passes`:
    replies without a word, in a row, up to now.
    """

    queue: tuple[str, ...]
    speakers: tuple[str, ...]
    hops: int
    tokens: int
    seconds: float
    passes: int = 0


@dataclass(frozen=True, slots=True)
class Next:
    """The speaker who follows and those behind, or the end of the round.

    After an end by a limit, `queue` holds those who would have followed: one button goes on with
    them. `unknown`: names that a reply called and nobody has.
    """

    role_id: str
    queue: tuple[str, ...]
    ending: Ending = ""
    unknown: tuple[str, ...] = ()


def opening_queue(
    members: Sequence[Member], rules: Rules, *, addressees: Sequence[str], last: str
) -> tuple[str, ...]:
    """Return who speaks in a new round: the addressees, else whom the team's rule names.

    `last`: the role id of the agent that spoke last in this chat; round robin goes on behind it.
    Where the person decides and names nobody, the first agent answers.
    """
    if addressees:
        return found(addressees, members=members, speaker="")[0]
    awake = _awake(members)
    if rules.routing == "all":
        return awake
    if rules.routing == "round_robin":
        return _following(awake, last)[:1]
    return awake[:1]


def found(
    names: Sequence[str], *, members: Sequence[Member], speaker: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the role ids that names mean, each once and never the speaker's, and unknown names."""
    known = {folded(member.name): member for member in members if not member.rests}
    meant: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name in names:
        if folded(name) == EVERYBODY:
            meant.update(dict.fromkeys(_awake(members)))
        elif folded(name) == PERSON:
            continue
        elif member := known.get(folded(name)):
            meant[member.role_id] = None
        else:
            unknown[name] = None
    meant.pop(speaker, None)
    return tuple(meant), tuple(unknown)


def after_reply(
    standing: Standing,
    members: Sequence[Member],
    rules: Rules,
    *,
    speaker: str,
    called: Sequence[str],
    failed: bool = False,
) -> Next:
    """Decide what follows the reply of `speaker`, which called those names."""
    if failed and not rules.goes_on_after_failure:
        return Next("", standing.queue, "failed")
    named, unknown = found(called, members=members, speaker=speaker)
    queue = (*standing.queue, *(role for role in named if role not in standing.queue))
    if not queue and rules.routing == "round_robin" and not _calls_person(called):
        awake = _awake(members)
        others = [role for role in _following(awake, speaker) if role != speaker]
        queue = tuple(others[:1]) if standing.passes < len(awake) else ()
    if not queue:
        return Next("", (), "settled", unknown)
    head, rest = queue[0], queue[1:]
    # A person costs nothing, so no limit stands before their turn.
    if any(member.role_id == head and member.is_human for member in members):
        return Next(head, rest, "waiting", unknown)
    if ending := _limit(standing, rules):
        return Next("", queue, ending, unknown)
    if _is_pair(standing.speakers, head):
        return Next("", queue, "pair", unknown)
    return Next(head, rest, "", unknown)


def _limit(standing: Standing, rules: Rules) -> Ending:
    if standing.hops >= rules.hop_limit:
        return "hops"
    if standing.tokens >= rules.token_limit:
        return "tokens"
    return "time" if standing.seconds >= rules.seconds_limit else ""


def _is_pair(speakers: Sequence[str], following: str) -> bool:
    """Tell whether two agents have only answered each other for long enough."""
    last = speakers[-2 * PAIR_TURNS :]
    if len(last) < 2 * PAIR_TURNS or len(set(last)) != 2 or following not in last:
        return False
    return all(one != other for one, other in pairwise(last))


def _awake(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(m.role_id for m in members if not m.is_human and not m.rests)


def _following(awake: tuple[str, ...], last: str) -> tuple[str, ...]:
    """Return the agents in their order, beginning behind the one that spoke last."""
    place = awake.index(last) + 1 if last in awake else 0
    return (*awake[place:], *awake[:place])


def _calls_person(called: Sequence[str]) -> bool:
    return any(folded(name) == PERSON for name in called)
