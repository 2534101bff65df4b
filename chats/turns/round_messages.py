"""Accepts what a person writes to a team: which turn takes it up, and which round begins."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from chats.ground.refusals import Refusal
from chats.models import Agent, ApiKey, Branch, Chat, Message, Round, Turn
from chats.models.turns import UNFINISHED
from chats.record import messages
from chats.record.locking import locked_branch
from chats.turns import lanes
from chats.turns.roster import Roster, roster_for, roster_of
from chats.turns.rounds import begin, begin_beside, give
from contextpolicy.engine import rounds as engine
from contextpolicy.engine import team_view


class NoSuchSeat(Refusal):
    """The team has no person in whose name the owner could answer so."""

    code = "no_such_seat"
    status = 422
    sentence = "The team has no person with the role “{role}”. Answer as yourself, or as one of it."
    param = "as_role"


def addressees_in(text: str, *, roster: Roster) -> tuple[str, ...]:
    """Return the names of the agents whom a person's message names; persons answer themselves."""
    names = [a.name for a in roster.agents if a.type == Agent.Type.AI and not a.rests]
    return team_view.mentions(text, names=names)


def accept(
    *,
    chat: Chat,
    branch: Branch,
    text: str,
    now: datetime,
    actor: str,
    api_key: ApiKey | None,
    as_role: str = "",
) -> tuple[Message, Turn]:
    """Store a person's message to a team with the turn that will take it up.

    During a round the next agent takes it up; a message that names somebody replaces those who were
    to follow. `as_role`: the person of the team in whose name it is said; a round that waits for
    that person goes on. The caller locked the chat. Raises `TeamGone` and `NoSuchSeat`.
    """
    roster = roster_for(chat)
    seat = seat_of(roster, as_role) if as_role else None
    addressees = addressees_in(text, roster=roster)
    # Who begins a turn locks its branch: whether it has begun is known until the commit.
    locked_branch(branch.pk)
    message = messages.accept(
        chat=chat,
        branch=branch,
        text=text,
        now=now,
        addressees=addressees,
        speaker=spoken_as(seat) if seat else None,
    )
    running = Round.objects.filter(branch=branch, status=Round.Status.RUNNING).first()
    waits, is_busy = next_up(branch, running=running)
    # They would answer what was asked before.
    late = lanes.late(running, but=waits) if running is not None and addressees else []
    turn = waits or Turn(branch=branch, trigger=message, api_key=api_key, queued_at=now)
    if waits is not None and not addressees:
        take_up_too(waits)
    elif waits is None and not addressees and is_busy and running is not None:
        # Its agent is known when the reply that is being written ends.
        turn.round, turn.model_name = running, ""
    elif waits is None and seat and answered(turn, seat, text=text, called=addressees, now=now):
        pass
    else:
        turn.seen_to, turn.lane = None, 0
        begin(turn, roster=roster, opening=message, addressees=addressees, actor=actor, now=now)
    if waits is None:
        turn.accepted = messages.next_accepted(chat=chat)
    turn.save()
    messages.end_absorbed(late, by=turn, chat_id=chat.pk, now=now)
    begin_beside(turn, roster=roster, chat=chat, actor=actor, now=now)
    return message, turn


def next_up(branch: Branch, *, running: Round | None) -> tuple[Turn | None, bool]:
    """Return the turn that waits and has not begun, and whether a turn of the branch is not over.

    Of lanes that nobody has begun it is the first; where one has begun, what they see is fixed.
    """
    unfinished = list(
        Turn.objects.filter(branch=branch, status__in=UNFINISHED).order_by("accepted")
    )
    beside = lanes.unbegun(running) if running is not None else []
    queued = (t for t in unfinished if t.status == Turn.Status.QUEUED and not t.attempt)
    waits = next((t for t in queued if not t.lane), beside[0] if beside else None)
    return waits, bool(unfinished)


def take_up_too(waits: Turn) -> None:
    """Let a turn that waits take up one more message of the person."""
    # It sees what is there by then, in an independent team too.
    waits.seen_to = None
    if waits.agent_id is not None and waits.round_id is not None:
        # The person has spoken: who only answered each other begin to count anew.
        Round.objects.filter(pk=waits.round_id).update(speakers=[], passes=0)


def seat_of(roster: Roster, role_id: str) -> Agent:
    """Return the person of a team whom its owner plays. Raises `NoSuchSeat`."""
    agent = roster.agent(role_id)
    if agent is None or agent.type != Agent.Type.HUMAN:
        raise NoSuchSeat(role=role_id[:80])
    return agent


def spoken_as(seat: Agent) -> dict[str, str]:
    """Return the speaker of a message that is said in the name of a person of the team."""
    return {"roleId": seat.role_id, "roleName": seat.name, "type": "human"}


def answered(turn: Turn, seat: Agent, *, text: str, called: Sequence[str], now: datetime) -> bool:
    """Let the round that waits for a person go on with that person's answer; tell whether it does.

    The time of the wait does not count. The unsaved turn becomes the next agent's.
    """
    waiting = Round.objects.filter(branch=turn.branch, status=Round.Status.WAITING)
    made = waiting.select_related("version").order_by("-started_at").first()
    if made is None or made.queue[:1] != [seat.role_id] or made.finished_at is None:
        return False
    roster = roster_of(made.version)
    started_at = made.started_at + (now - made.finished_at)
    following = engine.after_reply(
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
        called=(*called, *team_view.called(text)),
    )
    if following.ending:
        return False
    made.status, made.started_at, made.finished_at = Round.Status.RUNNING, started_at, None
    made.queue, made.speakers, made.passes = list(following.queue), [], 0
    made.save()
    give(turn, made=made, agent=roster.agent(following.role_id), hop=made.hops + 1)
    return True
