"""Rounds of a team: agents reply one after another to a person's message.

`engine.team.rounds` decides which agent is next. This module stores the decision, in the
transaction that accepts a message or ends a turn. A branch has at most one queued turn that has not
started: the next agent's turn. It also answers messages that arrive before it starts.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.models import Agent, Branch, Chat, Message, Round, Turn
from chats.models.turns import UNFINISHED
from chats.prompt import model_choice, statements
from chats.record import messages
from chats.turns import lanes
from chats.turns.events import record_turn_started
from chats.turns.reply_calls import sum_reply_tokens
from chats.turns.roster import Roster, TeamGone, load_current_roster, load_roster
from contextpolicy import ledger
from contextpolicy.engine.policy.costs import MOST_TOKENS
from contextpolicy.engine.team import rounds as engine
from contextpolicy.engine.team import team_view
from contextpolicy.engine.team.called_names import split_called_names
from contextpolicy.engine.team.markers import strip_markers
from contextpolicy.models import ModelSpec

WORKER = "worker"
_ENDINGS = {
    "settled": (Round.Status.SETTLED, ""),
    "hops": (Round.Status.LIMIT, "hops"),
    "tokens": (Round.Status.LIMIT, "tokens"),
    "time": (Round.Status.LIMIT, "time"),
    "pair": (Round.Status.PAIR, ""),
    "waiting": (Round.Status.WAITING, ""),
    "failed": (Round.Status.FAILED, ""),
}
# Reason of a round in which a single agent replies again.
ONLY_THIS = "only_this"


def start_parallel_turns(
    turn: Turn, *, roster: Roster, chat: Chat, actor: str, now: datetime
) -> None:
    """Start the other agents of an independent team in parallel with the first one.

    Each agent of the new round gets a lane, up to the hop limit and up to the first human member.
    The caller has locked `chat` and saves it.
    """
    made = turn.round
    if made is None or not roster.version.independent or turn.lane or made.hops or turn.hop != 1:
        return
    agents = [roster.agent(role) for role in made.queue]
    others = list(takewhile(lambda agent: agent and agent.type == Agent.Type.AI, agents))
    others = others[: roster.version.hop_limit - 1]
    if not others:
        return
    turn.lane = 1
    turn.save(update_fields=["lane"])
    made.queue = made.queue[len(others) :]
    made.save(update_fields=["queue"])
    for lane, agent in enumerate(others, start=2):
        beside = Turn(
            branch=turn.branch,
            accepted=messages.increment_accepted_count(chat=chat),
            trigger_id=made.opening_id,
            api_key_id=turn.api_key_id,
            queued_at=now,
            lane=lane,
        )
        assign_turn(beside, made=made, agent=agent, hop=lane)
        beside.save(force_insert=True)
        record_turn_started(beside, actor=actor, chat=chat, now=now, message=None)
        queue.enqueue(queue.RUN_TURN, turn_id=beside.pk)


def list_opening_roles(
    roster: Roster, *, branch: Branch, addressees: Sequence[str]
) -> tuple[str, ...]:
    """Return the role ids of the agents that speak in a new round, without human members."""
    queue_ = engine.build_opening_queue(
        roster.members, roster.rules, addressees=addressees, last=find_last_speaker(branch)
    )
    return tuple(role for role in queue_ if (a := roster.agent(role)) and a.type == Agent.Type.AI)


def find_last_speaker(branch: Branch) -> str:
    """Return the role of the agent that replied last on a branch; empty before the first reply."""
    last = Round.objects.filter(branch=branch, hops__gt=0).order_by("-started_at").first()
    return str(last.speakers[-1]) if last and last.speakers else ""


def start_round(
    turn: Turn,
    *,
    roster: Roster,
    opening: Message | None,
    addressees: Sequence[str],
    actor: str,
    now: datetime,
) -> None:
    """Open a round for an unsaved or waiting turn and assign the turn to its first agent.

    `opening` is the message that starts the round. Replaces a running or waiting round of the
    branch. The caller saves the turn. Raises `TeamGone` if no agent can reply.
    """
    branch = turn.branch
    roles = list_opening_roles(roster, branch=branch, addressees=addressees)
    if not roles:
        raise TeamGone
    ended = Round.objects.filter(
        branch=branch, status__in=[Round.Status.RUNNING, Round.Status.WAITING]
    )
    ended.update(status=Round.Status.REPLACED, finished_at=now)
    made = Round.objects.create(
        branch=branch,
        version=roster.version,
        opening=opening,
        queue=list(roles[1:]),
        started_at=now,
    )
    assign_turn(turn, made=made, agent=roster.agent(roles[0]), hop=1)
    record_round_event("round.started", made, actor=actor, now=now, speakers=roster.names(roles))


def assign_turn(turn: Turn, *, made: Round, agent: Agent | None, hop: int) -> None:
    """Assign a turn to an agent of a round. The caller saves the turn. Raises `TeamGone`.

    If the agent may not use its model, the turn is created anyway and fails with the reason.
    Raising here would fail the previous reply, whose final transaction creates this turn.
    """
    if agent is None:
        raise TeamGone
    turn.round, turn.agent, turn.hop = made, agent, hop
    chat = turn.branch.chat
    model: ModelSpec | None
    try:
        model = model_choice.choose_chat_model(chat=chat, agent=agent).model
    except Refusal:
        model = agent.model or chat.model or statements.DEFAULT_MODEL.first()
    turn.model, turn.model_name = model, model.name if model else ""


def build_speaker_fields(turn: Turn, parts: Sequence[Any]) -> dict[str, Any]:
    """Return the `speaker` and `addressees` of an agent's message; empty without an agent."""
    agent = turn.agent
    if agent is None:
        return {}
    speaker = {"roleId": agent.role_id, "roleName": agent.name, "type": "ai"}
    text = "\n\n".join(part["text"] for part in parts if part["type"] == "text")
    roster = load_roster(agent.version)
    owner = turn.branch.chat.owner.get_username()
    names = find_mentioned_names(text, agent=agent, roster=roster, owner=owner)
    roles, _ = engine.resolve_member_names(names, members=roster.members, speaker=agent.role_id)
    return {"speaker": speaker, "addressees": roster.names(roles)}


def find_mentioned_names(text: str, *, agent: Agent, roster: Roster, owner: str) -> tuple[str, ...]:
    """Return the names that a reply mentions, with the owner's name as `team_view.PERSON`.

    If a member has the owner's name, that name means the member.
    """
    called = team_view.parse_called_names(team_view.split_reply_speakers(text, name=agent.name).own)
    members = [member.name for member in roster.members]
    names = split_called_names(called, names=[*members, owner])
    known = {team_view.fold_member_name(member.name) for member in roster.agents}
    person = team_view.fold_member_name(owner)
    if person in known:
        return names
    return tuple(
        team_view.PERSON if team_view.fold_member_name(name) == person else name for name in names
    )


def advance_round(turn: Turn, *, status: str, reply: Message | None, now: datetime) -> None:
    """Continue or end the round of an ended turn, in the transaction that ends the turn.

    The receipts of the turn's calls are complete.
    The next agent answers messages that arrived during the turn. If no agent follows, these
    messages open a new round.
    """
    if turn.round_id is None:
        return
    made = Round.objects.select_for_update(of=("self",), no_key=True).get(pk=turn.round_id)
    waiting = Turn.objects.filter(
        branch=turn.branch_id, status=Turn.Status.QUEUED, attempt=0, round__isnull=False
    )
    waiting = waiting.exclude(round=made, lane__gt=0)
    behind = waiting.exclude(pk=turn.pk).order_by("accepted").first()
    roster = load_roster(made.version)
    if turn.agent is not None:
        count_reply(made, turn=turn, agent=turn.agent, reply=reply)
    elif has_unfinished_agents(made):
        # A message that waited for its agent was stopped. The round continues without it.
        return
    others = list(lanes.select_unfinished_lanes(made).exclude(pk=turn.pk).select_related("agent"))
    if made.status == Round.Status.RUNNING and (behind is None or behind.agent_id is None):
        if others:
            note_calls(made, turn=turn, status=status, reply=reply, roster=roster, others=others)
        else:
            schedule_next_agent(
                made, turn=turn, status=status, reply=reply, roster=roster, behind=behind, now=now
            )
    is_cut_off = turn.lane and status == Turn.Status.STOPPED and reply is None
    if is_cut_off and made.status == Round.Status.STOPPED and turn.agent is not None:
        # The agent was stopped before it wrote any text, so it speaks when the round resumes.
        made.queue = list(dict.fromkeys([*made.queue, turn.agent.role_id]))
    made.save()
    if behind is not None and behind.agent_id is None and not others:
        # No agent of the ended round follows.
        chat = Chat.objects.select_for_update(no_key=True).get(pk=turn.branch.chat_id)
        known = load_current_roster(chat) if chat.team_id else roster
        start_round(
            behind,
            roster=known,
            opening=behind.trigger,
            addressees=(),
            actor=WORKER,
            now=now,
        )
        behind.save()
        start_parallel_turns(behind, roster=known, chat=chat, actor=WORKER, now=now)
        chat.save(update_fields=["accepted_count"])
        # The turn's first task ran before the turn had an agent, and did nothing.
        queue.enqueue(queue.RUN_TURN, turn_id=behind.pk)


def has_unfinished_agents(made: Round) -> bool:
    """Return True if an agent's turn of the round is queued or running."""
    return made.turns.filter(status__in=UNFINISHED, agent__isnull=False).exists()


def note_calls(
    made: Round,
    *,
    turn: Turn,
    status: str,
    reply: Message | None,
    roster: Roster,
    others: Sequence[Turn],
) -> None:
    """Queue the agents that a finished reply mentions.

    Used while parallel replies of the same round are still running. The queued agents reply after
    all of them. An agent that is already replying is not queued again.
    """
    if turn.agent is None or reply is None or status != Turn.Status.COMPLETED:
        return
    owner = turn.branch.chat.owner.get_username()
    called = find_mentioned_names(reply.text, agent=turn.agent, roster=roster, owner=owner)
    roles, unknown = engine.resolve_member_names(
        called, members=roster.members, speaker=turn.agent.role_id
    )
    busy = {other.agent.role_id for other in others if other.agent is not None}
    made.queue = list(dict.fromkeys([*made.queue, *(role for role in roles if role not in busy)]))
    made.note_uncalled(unknown)


def count_reply(made: Round, *, turn: Turn, agent: Agent, reply: Message | None) -> None:
    """Add a finished reply to the round's counts of replies and tokens."""
    made.hops += 1
    # A faulty server can report more than the column holds.
    made.tokens = min(made.tokens + sum_reply_tokens(turn), MOST_TOKENS)
    made.speakers = [*made.speakers, agent.role_id]
    is_pass = reply is not None and is_passed(reply)
    made.passes = made.passes + 1 if is_pass else 0


def is_passed(message: Message) -> bool:
    """Return True if an agent passes, that is, if its reply contains only markers."""
    return bool(message.speaker) and bool(message.text) and not strip_markers(message.text)


def schedule_next_agent(
    made: Round,
    *,
    turn: Turn,
    status: str,
    reply: Message | None,
    roster: Roster,
    behind: Turn | None,
    now: datetime,
) -> None:
    """Decide how a running round continues after a turn.

    If an agent follows, it gets the waiting turn `behind`, or else a new turn.
    """
    if status == Turn.Status.STOPPED and not lanes.has_replied(turn):
        # The stopped agent may speak again when the round resumes: its reply is incomplete.
        end_round(made, Round.Status.STOPPED, now=now)
        return
    if made.reason == ONLY_THIS:
        end_round(made, Round.Status.SETTLED, now=now)
        return
    agent = turn.agent
    text = reply.text if reply is not None and status == Turn.Status.COMPLETED else ""
    owner = turn.branch.chat.owner.get_username()
    following = engine.decide_next_speaker(
        engine.Standing(
            queue=tuple(made.queue),
            speakers=tuple(made.speakers),
            hops=made.hops,
            tokens=made.tokens,
            seconds=(now - made.started_at) / timedelta(seconds=1),
            passes=made.passes,
        ),
        roster.members,
        roster.rules,
        speaker=agent.role_id if agent else "",
        called=find_mentioned_names(text, agent=agent, roster=roster, owner=owner)
        if agent and text
        else (),
        failed=status == Turn.Status.FAILED or lanes.has_failed(turn),
    )
    if following.ending:
        end_decided_round(made, following, now=now)
        return
    made.queue = list(following.queue)
    made.note_uncalled(following.unknown)
    following_turn = behind or build_next_turn(turn, chat=turn.branch.chat, made=made, now=now)
    if behind is not None:
        # A message of the person resets the counters that end exchanges between agents.
        made.speakers, made.passes = [], 0
    assign_turn(following_turn, made=made, agent=roster.agent(following.role_id), hop=made.hops + 1)
    if behind is not None:
        behind.save()
        return
    following_turn.seen_to = turn.seen_to if roster.version.independent else None
    following_turn.save(force_insert=True)
    record_turn_started(following_turn, actor=WORKER, chat=turn.branch.chat, now=now, message=None)


def build_next_turn(turn: Turn, *, chat: Chat, made: Round, now: datetime) -> Turn:
    """Return a new unsaved turn that follows an ended one. Locks the chat and saves its counter."""
    known = Chat.objects.select_for_update(no_key=True).get(pk=chat.pk)
    number = messages.increment_accepted_count(chat=known)
    known.save(update_fields=["accepted_count"])
    chat.accepted_count = number
    return Turn(
        branch=turn.branch,
        accepted=number,
        trigger_id=made.opening_id,
        api_key_id=turn.api_key_id,
        queued_at=now,
    )


def end_decided_round(made: Round, following: engine.Next, *, now: datetime) -> None:
    """End a round as decided, or make it wait for a person. The caller saves the round."""
    made.queue = list(following.queue)
    if following.ending == "waiting":
        made.queue = [following.role_id, *following.queue]
    made.note_uncalled(following.unknown)
    ended, made.reason = _ENDINGS[following.ending]
    end_round(made, ended, now=now)


def end_round(made: Round, status: str, *, now: datetime) -> None:
    """End a round, or make it wait for a person, and enqueue maintenance of the chat.

    The caller saves the round.
    """
    made.status, made.finished_at = status, now
    record_round_event(
        "round.ended", made, actor=WORKER, now=now, status=status, reason=made.reason
    )
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=made.branch.chat_id)


def stop_round(made: Round, *, now: datetime) -> None:
    """End a running round whose turns were asked to stop. Partial replies are kept."""
    made = Round.objects.select_for_update(of=("self",), no_key=True).get(pk=made.pk)
    if made.status == Round.Status.RUNNING:
        end_round(made, Round.Status.STOPPED, now=now)
        made.save()


def record_round_event(event: str, made: Round, *, actor: str, now: datetime, **data: Any) -> None:
    """Record a round event in the ledger: role names and numbers, never text."""
    ledger.record_event(
        event,
        actor=actor,
        now=now,
        chat_id=made.branch.chat_id,
        data={"round": str(made.pk), "version": str(made.version_id), "hops": made.hops, **data},
    )


def find_newest_branch_round(branch: Branch) -> Round | None:
    return (
        Round.objects.filter(branch=branch)
        .select_related("version")
        .order_by("-started_at")
        .first()
    )
