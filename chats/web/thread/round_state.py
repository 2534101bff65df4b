"""The state of a team's round at the end of its thread: who is next, how it ended, the way on."""

from collections.abc import Sequence
from dataclasses import dataclass

from chats.models import Chat, Round
from chats.teams import play
from chats.turns import lanes, round_again
from chats.turns.roster import roster_of
from chats.web.words import counted, grouped


@dataclass(frozen=True, slots=True)
class RoundState:
    """A round in words. `can_go_on`: the person may go on with it by one button."""

    status: str
    # So many replies have ended.
    hops: int
    title: str
    body: str
    is_running: bool
    can_go_on: bool


def round_state(chat: Chat) -> RoundState | None:
    """Return how the newest round of a chat stands; None where no team has replied."""
    if chat.team_id is None:
        return None
    made = play.newest_round(chat)
    if made is None or made.status == Round.Status.REPLACED:
        return None
    roster = roster_of(made.version)
    is_running = made.status == Round.Status.RUNNING
    title, body = words(made, following=roster.names(made.queue))
    if made.unknown:
        nobody = ", ".join(dict.fromkeys(made.unknown))
        body = f"{body} Nobody here is called {nobody}.".strip()
    can_go_on = made.status in round_again.RESUMABLE
    return RoundState(made.status, made.hops, title, body, is_running, can_go_on)


def words(made: Round, *, following: Sequence[str]) -> tuple[str, str]:
    """Say how a round stands, and what it has taken."""
    limit, called = made.version.hop_limit, " and ".join(following[:2])
    taken = f"{replies(made.hops)}, {counted(made.tokens, 'token')}."
    was_called = f"{called} {'was' if len(following) < 2 else 'were'} to reply." if called else ""
    if made.status == Round.Status.RUNNING:
        behind = f"Then {', '.join(following)}." if following else ""
        together = lanes.unfinished(made).count() if made.version.independent else 1
        number = made.hops + 1
        if together > 1:
            numbers = f"Replies {number} to {made.hops + together}"
            return f"{numbers} of at most {limit}, at the same time", behind
        return f"Reply {number} of at most {limit}", behind
    if made.status == Round.Status.WAITING:
        answer = f"Answer as {following[0]} in the box below, or go on without an answer."
        return f"Waiting for {following[0]}", f"{answer} {taken}"
    endings = {
        "hops": f"Limit of {replies(limit)} reached",
        "tokens": f"Limit of {grouped(made.version.token_limit)} tokens reached",
        "time": "Limit of time reached",
    }
    titles = {
        Round.Status.SETTLED: "Settled",
        Round.Status.LIMIT: endings.get(made.reason, "Limit reached"),
        Round.Status.PAIR: "Two agents only answered each other",
        Round.Status.STOPPED: "Stopped",
        Round.Status.FAILED: "A reply failed",
    }
    return titles[Round.Status(made.status)], f"{was_called} {taken}".strip()


def replies(number: int) -> str:
    """Write a number of replies."""
    return f"{number:,} {'reply' if number == 1 else 'replies'}"
