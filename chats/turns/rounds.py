"""Rounds of a team: agents reply one after another to what a person wrote.

`engine.rounds` decides who follows; here that becomes rows, in the transaction that accepts a
message or ends a turn. At most one turn of a branch that nobody has begun waits in its queue: the
next agent's, which takes up what the person wrote meanwhile.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.models import Agent, ApiKey, Branch, Chat, Message, Round, Turn
from chats.models.turns import UNFINISHED
from chats.prompt import model_choice, statements
from chats.record import messages
from chats.record.locking import locked_branch
from chats.turns.events import started_event
from chats.turns.roster import Roster, TeamGone, roster_for, roster_of
from contextpolicy import ledger
from contextpolicy.engine import rounds as engine
from contextpolicy.engine import team_view
from contextpolicy.engine.markers import strip_markers
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
# Where one button lets the round go on.
RESUMABLE = (
    Round.Status.LIMIT,
    Round.Status.PAIR,
    Round.Status.STOPPED,
    Round.Status.FAILED,
    Round.Status.WAITING,
)


class NoSuchSeat(Refusal):
    """The team has no person in whose name the owner could answer so."""

    code = "no_such_seat"
    status = 422
    sentence = "The team has no person with the role “{role}”. Answer as yourself, or as one of it."
    param = "as_role"


class RoundGoesOn(Refusal):
    """There is no round that could go on: none has ended early, or another has begun."""

    code = "round_not_resumable"
    status = 409
    sentence = "There is no round to go on with. Send a message instead."


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
    unfinished = list(
        Turn.objects.filter(branch=branch, status__in=UNFINISHED).order_by("accepted")
    )
    waits = next((t for t in unfinished if t.status == Turn.Status.QUEUED and not t.attempt), None)
    if waits is not None:
        # It takes the message up, and so sees what is there by then, in an independent team too.
        waits.seen_to = None
        if addressees:
            begin(
                waits,
                roster=roster,
                opening=message,
                addressees=addressees,
                actor=actor,
                now=now,
            )
        elif waits.agent_id is not None and waits.round_id is not None:
            # The person has spoken: who only answered each other begin to count anew.
            Round.objects.filter(pk=waits.round_id).update(speakers=[], passes=0)
        waits.save()
        return message, waits
    turn = Turn(branch=branch, trigger=message, api_key=api_key, queued_at=now)
    running = Round.objects.filter(branch=branch, status=Round.Status.RUNNING).first()
    if unfinished and running is not None and not addressees:
        # Its agent is known when the reply that is being written ends.
        turn.round = running
        turn.model_name = ""
    elif seat is not None and answered(turn, seat=seat, text=text, addressees=addressees, now=now):
        pass
    else:
        begin(turn, roster=roster, opening=message, addressees=addressees, actor=actor, now=now)
    turn.accepted = messages.next_accepted(chat=chat)
    turn.save(force_insert=True)
    return message, turn


def seat_of(roster: Roster, role_id: str) -> Agent:
    """Return the person of a team whom its owner plays. Raises `NoSuchSeat`."""
    agent = roster.agent(role_id)
    if agent is None or agent.type != Agent.Type.HUMAN:
        raise NoSuchSeat(role=role_id[:80])
    return agent


def spoken_as(seat: Agent) -> dict[str, str]:
    """Return the speaker of a message that is said in the name of a person of the team."""
    return {"roleId": seat.role_id, "roleName": seat.name, "type": "human"}


def answered(
    turn: Turn, *, seat: Agent, text: str, addressees: Sequence[str], now: datetime
) -> bool:
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
        called=(*addressees, *team_view.called(text)),
    )
    if following.ending:
        return False
    made.status, made.started_at, made.finished_at = Round.Status.RUNNING, started_at, None
    made.queue, made.speakers, made.passes = list(following.queue), [], 0
    made.save()
    give(turn, made=made, agent=roster.agent(following.role_id), hop=made.hops + 1)
    return True


def opening_roles(roster: Roster, *, branch: Branch, addressees: Sequence[str]) -> tuple[str, ...]:
    """Return the role ids that speak in a new round on a branch; persons of the team come later."""
    queue_ = engine.opening_queue(
        roster.members, roster.rules, addressees=addressees, last=last_speaker(branch)
    )
    return tuple(role for role in queue_ if (a := roster.agent(role)) and a.type == Agent.Type.AI)


def last_speaker(branch: Branch) -> str:
    """Return the role of the agent that replied last on a branch; empty before the first."""
    last = Round.objects.filter(branch=branch, hops__gt=0).order_by("-started_at").first()
    return str(last.speakers[-1]) if last and last.speakers else ""


def begin(
    turn: Turn,
    *,
    roster: Roster,
    opening: Message | None,
    addressees: Sequence[str],
    actor: str,
    now: datetime,
) -> None:
    """Open a round with a message for an unsaved or waiting turn, which becomes its first agent's.

    Raises `TeamGone`.
    """
    branch = turn.branch
    roles = opening_roles(roster, branch=branch, addressees=addressees)
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
    give(turn, made=made, agent=roster.agent(roles[0]), hop=1)
    tell("round.started", made, actor=actor, now=now, speakers=roster.names(roles))


def give(turn: Turn, *, made: Round, agent: Agent | None, hop: int) -> None:
    """Make a turn an agent's in a round; the caller saves it.

    Where the agent may not use its model, the turn begins all the same: it fails with the reason,
    and never the reply before it, in whose last transaction it is made. Raises `TeamGone`.
    """
    if agent is None:
        raise TeamGone
    turn.round, turn.agent, turn.hop = made, agent, hop
    chat = turn.branch.chat
    model: ModelSpec | None
    try:
        model = model_choice.choose(chat=chat, agent=agent).model
    except Refusal:
        model = agent.model or chat.model or statements.DEFAULT_MODEL.first()
    turn.model, turn.model_name = model, model.name if model else ""


def spoken_by(turn: Turn, parts: Sequence[Any]) -> dict[str, Any]:
    """Return speaker and addressees of a message that an agent's turn stores; else nothing."""
    agent = turn.agent
    if agent is None:
        return {}
    speaker = {"roleId": agent.role_id, "roleName": agent.name, "type": "ai"}
    text = "\n\n".join(part["text"] for part in parts if part["type"] == "text")
    roster = roster_of(agent.version)
    owner = turn.branch.chat.owner.get_username()
    names = calls_in(text, agent=agent, roster=roster, owner=owner)
    roles, _ = engine.found(names, members=roster.members, speaker=agent.role_id)
    return {"speaker": speaker, "addressees": roster.names(roles)}


def calls_in(text: str, *, agent: Agent, roster: Roster, owner: str) -> tuple[str, ...]:
    """Return the names that a reply calls with its own words; the `owner`'s hands back to them."""
    names = team_view.called(team_view.said(text, name=agent.name).own)
    known = {team_view.folded(member.name) for member in roster.agents}
    person = team_view.folded(owner)
    if person in known:
        return names
    return tuple(team_view.PERSON if team_view.folded(name) == person else name for name in names)


def turn_ended(
    turn: Turn, *, status: str, reply: Message | None, usage: Any, now: datetime
) -> None:
    """Let the round of an ended turn go on, or end; in the transaction that ends the turn.

    What a person wrote meanwhile is taken up by the next agent; where nobody follows, it opens a
    round of its own.
    """
    if turn.round_id is None:
        return
    made = Round.objects.select_for_update(of=("self",), no_key=True).get(pk=turn.round_id)
    waiting = Turn.objects.filter(
        branch=turn.branch_id, status=Turn.Status.QUEUED, attempt=0, round__isnull=False
    )
    behind = waiting.exclude(pk=turn.pk).order_by("accepted").first()
    roster = roster_of(made.version)
    if turn.agent is not None:
        count(made, agent=turn.agent, reply=reply, usage=usage)
    if made.status == Round.Status.RUNNING and (behind is None or behind.agent_id is None):
        go_on(made, turn=turn, status=status, reply=reply, roster=roster, behind=behind, now=now)
    made.save()
    if behind is not None and behind.agent_id is None:
        # Nobody of that round follows.
        chat = turn.branch.chat
        begin(
            behind,
            roster=roster_for(chat) if chat.team_id else roster,
            opening=behind.trigger,
            addressees=(),
            actor=WORKER,
            now=now,
        )
        behind.save()
        # Its first task came too early: it had no agent yet.
        queue.enqueue(queue.RUN_TURN, turn_id=behind.pk)


def count(made: Round, *, agent: Agent, reply: Message | None, usage: Any) -> None:
    """Count an ended reply in its round."""
    made.hops += 1
    made.tokens += sum(int((usage or {}).get(name) or 0) for name in ("input", "output"))
    made.speakers = [*made.speakers, agent.role_id]
    is_pass = reply is not None and is_passed(reply)
    made.passes = made.passes + 1 if is_pass else 0


def is_passed(message: Message) -> bool:
    """Tell whether a reply only passes: there is nothing in it but markers."""
    return bool(message.speaker) and bool(message.text) and not strip_markers(message.text)


def go_on(
    made: Round,
    *,
    turn: Turn,
    status: str,
    reply: Message | None,
    roster: Roster,
    behind: Turn | None,
    now: datetime,
) -> None:
    """Decide what follows a turn of a running round, and create the next agent's turn."""
    if status == Turn.Status.STOPPED:
        # The one who was stopped may go on, too: it said nothing whole.
        end(made, Round.Status.STOPPED, now=now)
        return
    if made.reason == ONLY_THIS:
        end(made, Round.Status.SETTLED, now=now)
        return
    agent = turn.agent
    text = reply.text if reply is not None and status == Turn.Status.COMPLETED else ""
    owner = turn.branch.chat.owner.get_username()
    following = engine.after_reply(
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
        called=calls_in(text, agent=agent, roster=roster, owner=owner) if agent and text else (),
        failed=status == Turn.Status.FAILED,
    )
    made.queue = list(following.queue)
    made.unknown = [*made.unknown, *following.unknown][:20]
    if following.ending == "waiting":
        made.queue = [following.role_id, *following.queue]
    if following.ending:
        ended, reason = _ENDINGS[following.ending]
        made.reason = reason
        end(made, ended, now=now)
        return
    following_turn = behind or next_turn(turn, chat=turn.branch.chat, made=made, now=now)
    if behind is not None:
        # The person has spoken: who only answered each other begin to count anew.
        made.speakers, made.passes = [], 0
    give(following_turn, made=made, agent=roster.agent(following.role_id), hop=made.hops + 1)
    if behind is not None:
        behind.save()
        return
    if roster.version.independent:
        following_turn.seen_to = turn.seen_to
    following_turn.save(force_insert=True)
    started_event(following_turn, actor=WORKER, chat=turn.branch.chat, now=now, message=None)


def next_turn(turn: Turn, *, chat: Chat, made: Round, now: datetime) -> Turn:
    """Return a new turn behind one that ended, unsaved; the caller has locked the chat."""
    known = Chat.objects.select_for_update(no_key=True).get(pk=chat.pk)
    number = messages.next_accepted(chat=known)
    known.save(update_fields=["accepted_count"])
    chat.accepted_count = number
    return Turn(
        branch=turn.branch,
        accepted=number,
        trigger_id=made.opening_id,
        api_key_id=turn.api_key_id,
        queued_at=now,
    )


def end(made: Round, status: str, *, now: datetime) -> None:
    """End a round, or let it wait for a person; what may be folded now is folded in background."""
    made.status, made.finished_at = status, now
    tell("round.ended", made, actor=WORKER, now=now, status=status, reason=made.reason)
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=made.branch.chat_id)


def tell(event: str, made: Round, *, actor: str, now: datetime, **data: Any) -> None:
    """Record in the ledger what became of a round: names of roles and numbers, never words."""
    ledger.record(
        event,
        actor=actor,
        now=now,
        chat_id=made.branch.chat_id,
        data={"round": str(made.pk), "version": str(made.version_id), "hops": made.hops, **data},
    )


# The reason of a round in which one agent alone replies again.
ONLY_THIS = "only_this"


def newest(branch: Branch) -> Round | None:
    """Return the round that began last on a branch."""
    return (
        Round.objects.filter(branch=branch)
        .select_related("version")
        .order_by("-started_at")
        .first()
    )


def resume(
    *, chat: Chat, branch: Branch, actor: str, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Go on with a round that ended early, with the same limits again; the caller locked the chat.

    A round that waits for a person of the team goes on without that person. Raises `RoundGoesOn`.
    """
    locked_branch(branch.pk)
    last = newest(branch)
    busy = Turn.objects.filter(branch=branch, status__in=UNFINISHED).exists()
    if busy or last is None or last.status not in RESUMABLE or last.opening is None:
        raise RoundGoesOn
    roster = roster_of(last.version)
    ids = [role for role in last.queue if (a := roster.agent(role)) and a.type == Agent.Type.AI]
    ids = ids or list(opening_roles(roster, branch=branch, addressees=()))
    if not ids:
        raise RoundGoesOn
    if last.status == Round.Status.WAITING:
        last.status = Round.Status.REPLACED
        last.save(update_fields=["status"])
    made = Round.objects.create(
        branch=branch, version=last.version, opening=last.opening, queue=ids[1:], started_at=now
    )
    turn = Turn(branch=branch, trigger=last.opening, api_key=api_key, queued_at=now)
    turn.accepted = messages.next_accepted(chat=chat)
    chat.save(update_fields=["accepted_count"])
    give(turn, made=made, agent=roster.agent(ids[0]), hop=1)
    turn.save(force_insert=True)
    tell("round.started", made, actor=actor, now=now, speakers=roster.names(ids), goes_on=True)
    started_event(turn, actor=actor, chat=chat, now=now, message=None)
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
    return turn


def cause_of_retry(turn: Turn, *, now: datetime) -> dict[str, Any]:
    """Return what a new try of an agent's turn takes over; its round runs again.

    Nothing for a turn of no round.
    """
    if turn.round is None or turn.agent is None:
        return {}
    made = turn.round
    made.status, made.finished_at, made.reason = Round.Status.RUNNING, None, ""
    made.hops = max(0, made.hops - 1)
    made.speakers = made.speakers[:-1]
    made.save()
    return {"round": made, "agent": turn.agent, "hop": turn.hop}


def again(
    turn: Turn, *, branch: Branch, play_on: bool, actor: str, now: datetime
) -> dict[str, Any]:
    """Open a round on a branch that begins before an agent's reply: it replies again.

    Only this one, or those who followed it then play on. Returns what the new turn takes over.
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
    tell("round.started", made, actor=actor, now=now, speakers=[turn.agent.name], again=True)
    return {"round": made, "agent": turn.agent, "hop": turn.hop}
