"""State of a team's round, shown at the end of the thread."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext, ngettext

from chats.models import Chat, Round
from chats.teams import play
from chats.turns import lanes, round_again
from chats.turns.roster import Roster, load_roster, split_uncalled_names
from chats.web.words import format_number, format_token_count
from contextpolicy.wording import join_items, join_sentences


@dataclass(frozen=True, slots=True)
class RoundState:
    """A round for display. `can_go_on`: the user can continue it."""

    status: str
    # Number of finished replies.
    hops: int
    title: str
    body: str
    is_running: bool
    can_go_on: bool


def round_state(chat: Chat) -> RoundState | None:
    """Return the state of a chat's newest round.

    None if the chat has no team or no round, or if a newer message replaced the round.
    """
    if chat.team_id is None:
        return None
    made = play.find_newest_chat_round(chat)
    if made is None or made.status == Round.Status.REPLACED:
        return None
    roster = load_roster(made.version)
    is_running = made.status == Round.Status.RUNNING
    title, body = describe_round(made, following=roster.names(made.queue))
    body = join_sentences(body, *describe_uncalled_names(made, roster=roster))
    can_go_on = round_again.is_resumable(made, chat=chat)
    return RoundState(made.status, made.hops, title, body, is_running, can_go_on)


def describe_uncalled_names(made: Round, *, roster: Roster) -> list[str]:
    """Return sentences about names without an agent, inactive agents and inactive people."""
    found = split_uncalled_names(made, roster=roster)
    said = []
    if found.unknown:
        text = gettext("This chat has no agent named {names}.")
        said.append(text.format(names=join_items(found.unknown)))
    if found.inactive_agents:
        text = ngettext(
            "The agent {names} is inactive and does not reply. To call it, make it active in the "
            "team.",
            "The agents {names} are inactive and do not reply. To call them, make them active in "
            "the team.",
            len(found.inactive_agents),
        )
        said.append(text.format(names=join_items(found.inactive_agents)))
    if found.inactive_people:
        text = ngettext(
            "{names} is inactive, so the round does not wait for an answer. To include this "
            "person, make them active in the team.",
            "{names} are inactive, so the round does not wait for their answers. To include "
            "these people, make them active in the team.",
            len(found.inactive_people),
        )
        said.append(text.format(names=join_items(found.inactive_people)))
    return said


def describe_round(made: Round, *, following: Sequence[str]) -> tuple[str, str]:
    """Return the title and the body of a round's notice."""
    limit = made.version.hop_limit
    taken = gettext("{replies}, {tokens}.")
    taken = taken.format(
        replies=format_reply_count(made.hops), tokens=format_token_count(made.tokens)
    )
    if made.status == Round.Status.RUNNING:
        return describe_running_round(made, following=following)
    if made.status == Round.Status.WAITING:
        answer = gettext("Answer as {name} in the message box, or continue without an answer.")
        return (
            gettext("Waiting for {name}").format(name=following[0]),
            join_sentences(answer.format(name=following[0]), taken),
        )
    endings = {
        "hops": gettext("Limit of {replies} reached").format(replies=format_reply_count(limit)),
        "tokens": gettext("Limit of {tokens} tokens reached").format(
            tokens=format_number(made.version.token_limit)
        ),
        "time": gettext("Time limit reached"),
    }
    titles = {
        Round.Status.SETTLED: gettext("Finished"),
        Round.Status.LIMIT: endings.get(made.reason) or gettext("Limit reached"),
        Round.Status.PAIR: gettext("Two agents replied only to each other"),
        Round.Status.STOPPED: gettext("Stopped"),
        Round.Status.FAILED: gettext("A reply failed"),
    }
    return titles[Round.Status(made.status)], join_sentences(
        describe_pending_agents(following), taken
    )


def describe_running_round(made: Round, *, following: Sequence[str]) -> tuple[str, str]:
    behind = gettext("Next: {names}.").format(names=join_items(following)) if following else ""
    together = lanes.select_unfinished_lanes(made).count() if made.version.independent else 1
    number, limit = made.hops + 1, made.version.hop_limit
    if together > 1:
        title = gettext("Replies {first} to {last} of up to {limit}, written at the same time")
        return title.format(first=number, last=made.hops + together, limit=limit), behind
    title = gettext("Reply {number} of up to {limit}")
    return title.format(number=number, limit=limit), behind


def describe_pending_agents(following: Sequence[str]) -> str:
    """Return a sentence about the agents that would have replied; empty if there are none."""
    if not following:
        return ""
    if len(following) == 1:
        return gettext("The next agent was {name}.").format(name=following[0])
    return gettext("The next agents were {names}.").format(names=join_items(following))


def format_reply_count(number: int) -> str:
    return ngettext("{n:,} reply", "{n:,} replies", number).format(n=number)
