"""Accepts a person's message to a team: selects the turn that replies, and starts a round."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Agent, ApiKey, Branch, Chat, Message, Round, Turn
from chats.models.turns import UNFINISHED
from chats.prompt import model_choice
from chats.prompt.tokenizer import O200kCounter
from chats.record import messages
from chats.record.locking import lock_branch
from chats.turns import lanes
from chats.turns.roster import Roster, TeamGone, load_current_roster, load_roster
from chats.turns.rounds import (
    assign_turn,
    end_decided_round,
    list_opening_roles,
    start_parallel_turns,
    start_round,
)
from contextpolicy.engine.team import rounds as engine
from contextpolicy.engine.team import team_view


class NoSuchSeat(Refusal):
    """The team has no human member with the role in `as_role`."""

    code = "no_such_seat"
    status = 422
    sentence = gettext_noop(
        "The team has no person with the role “{role}”. Answer as yourself, or as a person in the "
        "team."
    )
    param = "as_role"


def find_addressees(text: str, *, roster: Roster) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the active and of the inactive AI agents that a message mentions.

    `@all` stands for the active ones.
    """
    agents = [agent for agent in roster.agents if agent.type == Agent.Type.AI]
    active = [agent.name for agent in agents if not agent.rests]
    found = team_view.find_mentioned_members(
        text, names=[agent.name for agent in agents], all_names=active
    )
    called = tuple(name for name in found if name in active)
    return called, tuple(name for name in found if name not in active)


def note_inactive_addressees(turn: Turn, names: Sequence[str], *, roster: Roster) -> None:
    """Store a message's inactive addressees in the round that answers the message.

    `roster`: the current one, which contains the names. A running round keeps its version of the
    team, so an agent that was deactivated since the round started may still reply, and is not
    stored.
    """
    if not names or turn.round_id is None:
        return
    made = Round.objects.select_for_update(of=("self",), no_key=True).get(pk=turn.round_id)
    active = made.version.agents.filter(rests=False).values_list("role_id", flat=True)
    roles = {agent.role_id for agent in roster.agents if agent.name in names} - {*active}
    made.note_uncalled(roster.names([a.role_id for a in roster.agents if a.role_id in roles]))
    made.save(update_fields=["unknown"])


def choose_team_model(chat: Chat, *, branch: Branch, text: str) -> model_choice.ChosenModel:
    """Return the model and policy of the first agent that may answer a message and can be used.

    The model of the chat matters only for agents without their own. Raises `TeamGone`, and the
    refusal of the first agent if no agent can use its model.
    """
    roster = load_current_roster(chat)
    refusals: list[Refusal] = []
    for agent in list_answering_agents(text, branch=branch, roster=roster):
        try:
            choice = model_choice.choose_chat_model(chat=chat, agent=agent)
            model_choice.get_available_account(choice.model)
        except Refusal as refusal:
            refusals.append(refusal)
        else:
            return choice
    raise refusals[0] if refusals else TeamGone


def list_answering_agents(text: str, *, branch: Branch, roster: Roster) -> list[Agent]:
    """Return the agents that may answer a person's message: those that it mentions, or by rule.

    An open round may continue with any active agent.
    """
    called, _ = find_addressees(text, roster=roster)
    open_rounds = Round.objects.filter(
        branch=branch, status__in=[Round.Status.RUNNING, Round.Status.WAITING]
    )
    if not called and open_rounds.exists():
        return [a for a in roster.agents if a.type == Agent.Type.AI and not a.rests]
    roles = list_opening_roles(roster, branch=branch, addressees=called)
    return [agent for role in roles if (agent := roster.agent(role)) is not None]


def accept_team_message(
    *,
    chat: Chat,
    branch: Branch,
    text: str,
    now: datetime,
    actor: str,
    api_key: ApiKey | None,
    as_role: str = "",
    metadata: Mapping[str, Any] | None = None,
    files: Sequence[messages.AttachedFile] = (),
) -> tuple[Message, Turn]:
    """Store a person's message to a team. Return it with the turn that will answer it.

    During a round, the next agent answers it. A message that mentions agents replaces the agents
    still queued. `as_role` is the human member in whose name it is written; a round that waits for
    that member continues. If no agent follows yet, `is_unanswered` is true of the turn. The round
    stores inactive agents that the message mentions. The caller has locked the chat. Raises
    `TeamGone` and `NoSuchSeat`.
    """
    roster = load_current_roster(chat)
    seat = find_seat(roster, as_role) if as_role else None
    addressees, inactive = find_addressees(text, roster=roster)
    # Starting a turn locks its branch. The lock keeps `attempt` accurate until the commit.
    lock_branch(branch.pk)
    message = messages.store_waiting_message(
        chat=chat,
        branch=branch,
        text=text,
        now=now,
        addressees=addressees,
        speaker=build_seat_speaker(seat) if seat else None,
        metadata=metadata,
        files=files,
    )
    running = Round.objects.filter(branch=branch, status=Round.Status.RUNNING).first()
    waits, is_busy = find_pending_turn(branch, running=running)
    # These lanes would answer the previous question.
    late = (
        lanes.lock_unstarted_lanes(running, but=waits) if running is not None and addressees else []
    )
    turn = waits or Turn(branch=branch, trigger=message, api_key=api_key, queued_at=now)
    if waits is not None and not addressees:
        take_up_too(waits)
    elif waits is None and not addressees and is_busy and running is not None:
        # The agent is chosen when the current reply ends.
        turn.round, turn.model_name = running, ""
    elif (
        waits is None
        and seat
        and resume_waiting_round(turn, seat, message=message, called=addressees, now=now)
    ):
        pass
    else:
        turn.seen_to, turn.lane = None, 0
        start_round(
            turn, roster=roster, opening=message, addressees=addressees, actor=actor, now=now
        )
    if waits is None:
        turn.accepted = messages.increment_accepted_count(chat=chat)
    turn.save()
    messages.end_absorbed(late, by=turn, chat_id=chat.pk, now=now)
    start_parallel_turns(turn, roster=roster, chat=chat, actor=actor, now=now)
    note_inactive_addressees(turn, inactive, roster=roster)
    return message, turn


def find_pending_turn(branch: Branch, *, running: Round | None) -> tuple[Turn | None, bool]:
    """Return the turn that has not started yet, and whether the branch has an unfinished turn.

    For parallel lanes, this is the first lane, as long as no lane has started. After that, the
    messages that the lanes see are fixed. The turn is None if no such turn waits.
    """
    unfinished = list(
        Turn.objects.filter(branch=branch, status__in=UNFINISHED).order_by("accepted")
    )
    beside = lanes.list_unstarted_lanes(running) if running is not None else []
    queued = (t for t in unfinished if t.status == Turn.Status.QUEUED and not t.attempt)
    waits = next((t for t in queued if not t.lane), beside[0] if beside else None)
    return waits, bool(unfinished)


def take_up_too(waits: Turn) -> None:
    """Let a waiting turn also answer another message of the same person. The caller saves it."""
    # The turn sees all messages present when it starts, even in an independent team.
    waits.seen_to = None
    if waits.agent_id is not None and waits.round_id is not None:
        # A message of the person resets the counters that end exchanges between agents.
        Round.objects.filter(pk=waits.round_id).update(speakers=[], passes=0)


def is_unanswered(turn: Turn) -> bool:
    """Return True if no agent answers the message of a new turn: its round waits or has ended."""
    if turn.agent_id is not None or turn.round is None:
        return False
    return turn.round.status in {Round.Status.WAITING, Round.Status.LIMIT}


def find_seat(roster: Roster, role_id: str) -> Agent:
    """Return the human member with this role id. Raises `NoSuchSeat`."""
    agent = roster.agent(role_id)
    if agent is None or agent.type != Agent.Type.HUMAN:
        raise NoSuchSeat(role=role_id[:80])
    return agent


def build_seat_speaker(seat: Agent) -> dict[str, str]:
    """Return the `speaker` value of a message written in the name of a human member."""
    return {"roleId": seat.role_id, "roleName": seat.name, "type": "human"}


def resume_waiting_round(
    turn: Turn, seat: Agent, *, message: Message, called: Sequence[str], now: datetime
) -> bool:
    """Resume a round that waits for a human member, with that member's message as the answer.

    Returns True if the round takes the message. Waiting time does not count towards the round's
    time limit. The unsaved turn is assigned to the next agent. It gets no agent if another person
    is next or a limit is reached (`is_unanswered`).
    """
    waiting = Round.objects.filter(branch=turn.branch, status=Round.Status.WAITING)
    made = waiting.select_related("version").order_by("-started_at").first()
    if made is None or made.queue[:1] != [seat.role_id] or made.finished_at is None:
        return False
    if made.version.team_id != turn.branch.chat.team_id:
        return False
    roster = load_roster(made.version)
    started_at = made.started_at + (now - made.finished_at)
    following = engine.decide_next_speaker(
        engine.Standing(
            queue=tuple(made.queue[1:]),
            speakers=(),
            hops=made.hops,
            tokens=made.tokens,
            seconds=(now - started_at) / timedelta(seconds=1),
        ),
        roster.members,
        roster.rules,
        speaker=seat.role_id,
        called=(*called, *team_view.parse_called_names(message.text)),
    )
    if following.ending == "settled":
        return False
    made.started_at, made.speakers, made.passes = started_at, [], 0
    if following.ending:
        end_decided_round(made, following, now=now)
        made.save()
        turn.round, turn.model_name = made, ""
        messages.append_unanswered(message, branch=turn.branch, counter=O200kCounter())
        return True
    made.status, made.finished_at, made.queue = Round.Status.RUNNING, None, list(following.queue)
    made.save()
    assign_turn(turn, made=made, agent=roster.agent(following.role_id), hop=made.hops + 1)
    return True
