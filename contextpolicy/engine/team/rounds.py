"""Decides which team member speaks next and when a round ends.

The functions are pure: the caller stores the rows. A round begins with a user's message. Its
recipients speak first, then the members that a reply calls with `[NEXT:name]`; otherwise the team's
rule applies. No model is asked to choose. The possible endings are: no member is left in the queue
(`settled`), a limit is reached (`hops`, `tokens`, `time`), two agents only answer each other
(`pair`), it is a human member's turn (`waiting`), or a reply failed (`failed`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from contextpolicy.engine.team.called_names import split_called_names
from contextpolicy.engine.team.team_view import EVERYBODY, PERSON, fold_member_name

Routing = Literal["all", "round_robin", "person"]
Ending = Literal["", "settled", "hops", "tokens", "time", "pair", "waiting", "failed"]
MOST_MEMBERS = 8
HOP_LIMIT, TOKEN_LIMIT, SECONDS_LIMIT = 8, 100_000, 600
# Consecutive replies by each of two agents alone before the user is asked.
PAIR_TURNS = 3


@dataclass(frozen=True, slots=True)
class Member:
    """A team member for routing. `rests`: the member is inactive and never called."""

    role_id: str
    name: str
    is_human: bool = False
    rests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a team's rounds.

    A round ends after `hop_limit` replies, `token_limit` tokens or `seconds_limit` seconds.
    `goes_on_after_failure`: a failed reply does not end the round.
    """

    routing: Routing = "all"
    hop_limit: int = HOP_LIMIT
    token_limit: int = TOKEN_LIMIT
    seconds_limit: int = SECONDS_LIMIT
    goes_on_after_failure: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a round after a reply.

    `queue`: the role ids of the next speakers. `speakers`: the role ids of the replies since the
    user's last message, oldest first. `hops`, `tokens` and `seconds`: replies and usage so far.
    `passes`: the number of consecutive empty replies so far.
    """

    queue: tuple[str, ...]
    speakers: tuple[str, ...]
    hops: int
    tokens: int
    seconds: float
    passes: int = 0


@dataclass(frozen=True, slots=True)
class Next:
    """The next speaker and the remaining queue, or the end of the round.

    After a limit, a `pair` or a failure, `queue` contains the agents that did not reply; the user
    can continue with them. `unknown`: names in `[NEXT:…]` that match no member.
    """

    role_id: str
    queue: tuple[str, ...]
    ending: Ending = ""
    unknown: tuple[str, ...] = ()


def build_opening_queue(
    members: Sequence[Member], rules: Rules, *, addressees: Sequence[str], last: str
) -> tuple[str, ...]:
    """Return the speakers of a new round: the recipients, or those named by the team's rule.

    `last`: the role id of the agent that spoke last in this chat; round robin continues after it.
    If the rule leaves the choice to the user and the user names no agent, the first agent answers.
    """
    if addressees:
        return resolve_member_names(addressees, members=members, speaker="")[0]
    awake = _awake(members)
    if rules.routing == "all":
        return awake
    if rules.routing == "round_robin":
        return _rotate_agents(awake, last)[:1]
    return awake[:1]


def resolve_member_names(
    names: Sequence[str], *, members: Sequence[Member], speaker: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the role ids of the names, distinct and without the speaker, and the unknown names.

    `all` stands for all active agents, and `user` is skipped. The names of inactive members are
    unknown. Names are read as in `called_names`.
    """
    known = {fold_member_name(member.name): member for member in members if not member.rests}
    meant: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name in split_called_names(names, names=[member.name for member in members]):
        if fold_member_name(name) == EVERYBODY:
            meant.update(dict.fromkeys(_awake(members)))
        elif fold_member_name(name) == PERSON:
            continue
        elif member := known.get(fold_member_name(name)):
            meant[member.role_id] = None
        else:
            unknown[name] = None
    meant.pop(speaker, None)
    return tuple(meant), tuple(unknown)


def decide_next_speaker(
    standing: Standing,
    members: Sequence[Member],
    rules: Rules,
    *,
    speaker: str,
    called: Sequence[str],
    failed: bool = False,
) -> Next:
    """Return the next speaker, or the end of the round, after a reply of `speaker` (a role id).

    `called`: the names that the reply mentions as next speakers. `user` ends a round robin; the
    members in the queue reply first. `failed`: the reply failed.
    """
    if failed and not rules.goes_on_after_failure:
        return Next("", standing.queue, "failed")
    named, unknown = resolve_member_names(called, members=members, speaker=speaker)
    queue = (*standing.queue, *(role for role in named if role not in standing.queue))
    if not queue and rules.routing == "round_robin" and not _calls_person(called, members):
        awake = _awake(members)
        others = [role for role in _rotate_agents(awake, speaker) if role != speaker]
        queue = tuple(others[:1]) if standing.passes < len(awake) else ()
    if not queue:
        return Next("", (), "settled", unknown)
    head, rest = queue[0], queue[1:]
    # A human member costs nothing, so no limit applies before their turn.
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
    """Return True if two agents replied only to each other, `PAIR_TURNS` times each.

    `following`, the next speaker, must be one of the two.
    """
    last = speakers[-2 * PAIR_TURNS :]
    if len(last) < 2 * PAIR_TURNS or len(set(last)) != 2 or following not in last:
        return False
    return all(one != other for one, other in pairwise(last))


def _awake(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(m.role_id for m in members if not m.is_human and not m.rests)


def _rotate_agents(awake: tuple[str, ...], last: str) -> tuple[str, ...]:
    """Return the agents in order, starting after `last`, the agent that replied last."""
    place = awake.index(last) + 1 if last in awake else 0
    return (*awake[place:], *awake[:place])


def _calls_person(called: Sequence[str], members: Sequence[Member]) -> bool:
    names = split_called_names(called, names=[member.name for member in members])
    return any(fold_member_name(name) == PERSON for name in names)
