"""Resumes ended rounds, and regenerates replies of a round."""

from datetime import datetime
from typing import Any

from django.utils.translation import gettext_noop

from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.models import Agent, ApiKey, Branch, Chat, Round, Turn
from chats.models.turns import UNFINISHED
from chats.prompt import turn_question
from chats.record import messages
from chats.record.locking import lock_branch
from chats.turns.events import record_turn_started
from chats.turns.roster import load_current_roster, load_roster
from chats.turns.rounds import (
    ONLY_THIS,
    assign_turn,
    find_newest_branch_round,
    has_unfinished_agents,
    list_opening_roles,
    record_round_event,
    start_parallel_turns,
    start_round,
)

# Statuses of rounds that a person can resume.
RESUMABLE = (
    Round.Status.LIMIT,
    Round.Status.PAIR,
    Round.Status.STOPPED,
    Round.Status.FAILED,
    Round.Status.WAITING,
)


class RoundGoesOn(Refusal):
    """The latest round cannot be resumed: it did not end early, the chat has another team since, or
    a reply is unfinished."""

    code = "round_not_resumable"
    status = 409
    sentence = gettext_noop("The latest round cannot be continued. Send a message instead.")


def is_resumable(made: Round, *, chat: Chat) -> bool:
    """Return True if a person can resume a round: it ended early, and its team is the chat's."""
    return made.status in RESUMABLE and made.version.team_id == chat.team_id


def resume_round(
    *, chat: Chat, branch: Branch, actor: str, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Resume a round that ended early, with its limits reset.

    The caller has locked the chat. A round that waits for a person continues without that person.
    Raises `RoundGoesOn`, and `QuestionErased` or `QuestionExcluded` if prompts may not contain the
    message that opened the round.
    """
    lock_branch(branch.pk)
    last = find_newest_branch_round(branch)
    busy = Turn.objects.filter(branch=branch, status__in=UNFINISHED).exists()
    if busy or last is None or not is_resumable(last, chat=chat) or last.opening is None:
        raise RoundGoesOn
    roster = load_roster(last.version)
    ids = [role for role in last.queue if (a := roster.agent(role)) and a.type == Agent.Type.AI]
    ids = ids or list(list_opening_roles(roster, branch=branch, addressees=()))
    if not ids:
        raise RoundGoesOn
    turn_question.choose_question([last.opening])
    if last.status == Round.Status.WAITING:
        last.status = Round.Status.REPLACED
        last.save(update_fields=["status"])
    made = Round.objects.create(
        branch=branch, version=last.version, opening=last.opening, queue=ids[1:], started_at=now
    )
    turn = Turn(branch=branch, trigger=last.opening, api_key=api_key, queued_at=now)
    turn.accepted = messages.increment_accepted_count(chat=chat)
    assign_turn(turn, made=made, agent=roster.agent(ids[0]), hop=1)
    turn.save(force_insert=True)
    record_round_event(
        "round.started", made, actor=actor, now=now, speakers=roster.names(ids), goes_on=True
    )
    record_turn_started(turn, actor=actor, chat=chat, now=now, message=None)
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
    start_parallel_turns(turn, roster=roster, chat=chat, actor=actor, now=now)
    chat.save(update_fields=["accepted_count"])
    return turn


def find_retry_cutoff(turn: Turn) -> int | None:
    """Return the seq of the last message that a new reply for a turn may see.

    None if it may see all messages.
    """
    is_independent = turn.round is not None and turn.round.version.independent
    return turn.seen_to if is_independent else None


def prepare_round_retry(turn: Turn, *, now: datetime) -> dict[str, Any]:
    """Reopen the round of an agent's turn, and return the fields that a retry inherits.

    The turn's reply no longer counts as a hop of the round; its tokens still count. The time since
    the round ended does not count.
    Returns no fields if the turn belongs to no round. Raises `TeamGone`.
    """
    if turn.round is None:
        return {}
    if turn.agent is None:
        return assign_message_again(turn, now=now)
    made = turn.round
    if made.finished_at is not None:
        made.started_at += now - made.finished_at
    made.status, made.finished_at = Round.Status.RUNNING, None
    # A round opened for a single reply stays limited to it. In a round of a former team, no other
    # agent follows.
    is_alone = made.reason == ONLY_THIS or made.version.team_id != turn.branch.chat.team_id
    made.reason = ONLY_THIS if is_alone else ""
    made.hops = max(0, made.hops - 1)
    role = turn.agent.role_id
    made.queue = [each for each in made.queue if each != role]
    if role in made.speakers:
        last = len(made.speakers) - 1 - made.speakers[::-1].index(role)
        made.speakers = [*made.speakers[:last], *made.speakers[last + 1 :]]
    made.save()
    return {"round": made, "agent": turn.agent, "hop": turn.hop, "seen_to": find_retry_cutoff(turn)}


def assign_message_again(turn: Turn, *, now: datetime) -> dict[str, Any]:
    """Return the fields of a retry for a message that was stopped before its agent was chosen.

    While the round runs, the next agent answers it; otherwise it opens a new round. Returns no
    fields if the chat no longer has a team. Raises `TeamGone`.
    """
    chat = turn.branch.chat
    if not chat.team_id:
        return {}
    if turn.round and has_unfinished_agents(turn.round):
        return {"round": turn.round}
    new = Turn(branch=turn.branch, trigger=turn.trigger)
    roster = load_current_roster(chat)
    by = f"user:{chat.owner_id}"
    start_round(new, roster=roster, opening=turn.trigger, addressees=(), actor=by, now=now)
    return {"round": new.round, "agent": new.agent, "hop": new.hop}


def start_opening_turns(turn: Turn, *, chat: Chat, actor: str, now: datetime) -> None:
    """Start the other first agents of the round that `assign_message_again` opened for a retry.

    Nothing happens if the retry belongs to no round or got no agent.
    """
    made = turn.round
    if made is None or turn.agent is None:
        return
    roster = load_roster(made.version)
    start_parallel_turns(turn, roster=roster, chat=chat, actor=actor, now=now)
    made.save(update_fields=["queue"])
    chat.save(update_fields=["accepted_count"])


def open_regeneration_round(
    turn: Turn, *, branch: Branch, play_on: bool, actor: str, now: datetime
) -> dict[str, Any]:
    """Open a round on a branch that starts before an agent's reply; the agent replies again.

    With `play_on`, the agents that followed also reply again. Returns the fields of the new turn,
    or no fields if the turn belongs to no round.
    """
    if turn.round is None or turn.agent is None:
        return {}
    later = turn.round.turns.filter(hop__gt=turn.hop or 0).order_by("hop").select_related("agent")
    roles = dict.fromkeys(t.agent.role_id for t in later if t.agent)
    made = Round.objects.create(
        branch=branch,
        version=turn.round.version,
        opening=turn.round.opening,
        queue=list(roles) if play_on else [],
        reason="" if play_on else ONLY_THIS,
        hops=(turn.hop or 1) - 1,
        started_at=now,
    )
    record_round_event(
        "round.started", made, actor=actor, now=now, speakers=[turn.agent.name], again=True
    )
    return {"round": made, "agent": turn.agent, "hop": turn.hop, "seen_to": find_retry_cutoff(turn)}
