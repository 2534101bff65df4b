"""Branches off from a message: edit it, ask for another reply, or continue behind it.

Nothing said is ever changed: each of them is a new branch that shares the path up to a message. It
starts with the newest summary whose messages all stand on that path, so that no message left behind
lives on in a summary.
"""

import uuid
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from chats.compaction.coverage import USABLE, chain, is_true, is_visible, settle
from chats.ground.refusals import NotFound, Refusal
from chats.models import ApiKey, Branch, Chat, Compaction, Message, Turn
from chats.record.history import segments
from chats.record.idempotency import IdempotentRequest
from chats.record.locking import chat_to_write_in
from chats.turns import round_again
from chats.turns.start import Accepted, accept_message, caused_turn, recall
from chats.turns.statements import PERSON_LOCK
from contextpolicy import ledger

BRANCHES_PER_CHAT = 200


class TooManyBranches(Refusal):
    """The chat has as many branches as it may."""

    code = "too_many_branches"
    status = 409
    sentence = "This chat has {limit} branches and takes no more. Continue in a new chat."


class StillWaiting(Refusal):
    """The message still waits and has no place to branch from."""

    code = "still_waiting"
    status = 409
    sentence = "This message still waits for its turn. Try again once the reply has begun."


class NotAUserMessage(Refusal):
    """The message was written by a model or a member of a team, so it cannot be edited."""

    code = "not_a_user_message"
    status = 409
    sentence = (
        "Only your own messages can be edited. Ask for another reply, or branch off from this one."
    )


class NotAReply(Refusal):
    """The message is not a model's, so no other reply can be asked for."""

    code = "not_a_reply"
    status = 409
    sentence = "Only a reply can be asked for again. Edit the message instead."


class MessageGone(Refusal):
    """The message was erased."""

    code = "message_erased"
    status = 409
    sentence = "This message was erased; nothing can begin from it."


def edit(
    *,
    user: AbstractBaseUser,
    message: Message,
    text: str,
    now: datetime,
    idempotency_key: str = "",
    api_key: ApiKey | None = None,
) -> Accepted:
    """Say a message in other words: a new branch from the message before it, and its turn.

    Raises `NotAUserMessage`, `StillWaiting`, `MessageGone`, `TooManyBranches`, and what
    `turns.start.start` raises.
    """
    chat_id = message.branch.chat_id
    keyed = IdempotentRequest(user=user, route=f"edit:{message.pk}", key=idempotency_key, body=text)
    with transaction.atomic():
        chat, message = locked(chat_id, message)
        known = keyed.find(now=now)
        if known:
            return recall(known)
        if not is_own(message):
            raise NotAUserMessage
        seq = message.seq or 1
        open_branch(chat, at=message, fork_seq=seq - 1, cause="edit", user=user, now=now)
        made, turn = accept_message(user=user, chat=chat, text=text, now=now, api_key=api_key)
        keyed.remember(result={"message": str(made.pk), "turn": str(turn.pk)}, now=now)
    return Accepted(message=made, turn=turn, repeated=False)


def is_own(message: Message) -> bool:
    """Tell whether the chat's owner said the message; what a team's member said is theirs."""
    return message.role == Message.Role.USER and message.speaker is None


@transaction.atomic
def regenerate(
    *,
    user: AbstractBaseUser,
    message: Message,
    now: datetime,
    idempotency_key: str = "",
    api_key: ApiKey | None = None,
    play_on: bool = False,
) -> Turn:
    """Ask for another reply, on a branch that ends with the question of the first.

    An agent of a team replies again in its place in the round, alone or, with `play_on`, followed
    by those who followed it then. Raises `NotAReply`, `StillWaiting`, `MessageGone`,
    `TooManyBranches`, `InvalidIdempotencyKey`, `IdempotencyKeyReused`, and what
    `turns.start.caused_turn` raises.
    """
    keyed = IdempotentRequest(
        user=user,
        route=f"regenerate:{message.pk}",
        key=idempotency_key,
        body="play on" if play_on else "",
    )
    chat, message = locked(message.branch.chat_id, message)
    known = keyed.find(now=now)
    if known:
        return recall(known).turn
    if message.role != Message.Role.ASSISTANT or message.turn is None:
        raise NotAReply
    question, cause = asked(message, turn=message.turn)
    is_agent = message.turn.agent_id is not None
    # What a turn took up is not of its reply: it stays before the other one.
    own = message.turn.messages.filter(seq__isnull=False).exclude(role=Message.Role.USER)
    first = own.order_by("seq").first() or message
    # An agent's question is the opening of its round, which may stand on a branch before this one.
    at = message if is_agent or question is None else question
    fork_seq = (question.seq if question and not is_agent else None) or (first.seq or 1) - 1
    branch = open_branch(chat, at=at, fork_seq=fork_seq, cause="regenerate", user=user, now=now)
    actor = f"user:{user.pk}"
    taken = round_again.again(message.turn, branch=branch, play_on=play_on, actor=actor, now=now)
    turn = caused_turn(
        user=user, chat=chat, branch_id=branch.pk, cause=cause | taken, now=now, api_key=api_key
    )
    keyed.remember(result={"message": str(message.pk), "turn": str(turn.pk)}, now=now)
    return turn


def asked(message: Message, *, turn: Turn) -> tuple[Message | None, dict[str, Any]]:
    """Return the newest user message of the turn before this reply, and the cause of a new turn.

    A continuation has no message: its cause is the turn whose reply it continues.
    """
    users = Message.objects.filter(turn=turn, role=Message.Role.USER, seq__lt=message.seq or 0)
    question = users.order_by("-seq").first() or turn.trigger
    if question is None:
        return None, {"continues_id": turn.continues_id}
    return question, {"trigger_id": question.pk}


@transaction.atomic
def branch_from(*, user: AbstractBaseUser, message: Message, now: datetime) -> Branch:
    """Continue from a message in a new branch, which becomes the active one.

    Raises `StillWaiting`, `MessageGone` and `TooManyBranches`.
    """
    chat, message = locked(message.branch.chat_id, message)
    return open_branch(
        chat, at=message, fork_seq=message.seq or 0, cause="branch", user=user, now=now
    )


@transaction.atomic
def choose_branch(
    *, user: AbstractBaseUser, chat: Chat, branch_id: uuid.UUID, now: datetime
) -> Branch:
    """Continue in another branch of the chat. Raises `NotFound`."""
    chat = chat_to_write_in(chat.pk)
    branch = Branch.objects.filter(pk=branch_id, chat=chat).first()
    if branch is None:
        raise NotFound
    if chat.active_branch_id != branch.pk:
        chat.active_branch = branch
        chat.save(update_fields=["active_branch"])
        tell("branch.chosen", branch=branch, cause="chosen", actor=f"user:{user.pk}", now=now)
    return branch


def locked(chat_id: uuid.UUID, message: Message) -> tuple[Chat, Message]:
    """Lock the message's chat, and its owner, and return both as they are now.

    A branch is told to the ledger before its message is accepted, which counts the owner's replies:
    the owner is locked before the ledger, as everywhere. Raises `StillWaiting` and `MessageGone`.
    """
    chat = chat_to_write_in(chat_id)
    PERSON_LOCK.hold(owner=chat.owner_id)
    rows = Message.objects.select_related("branch", "turn__trigger", "turn__continues")
    message = rows.get(pk=message.pk)
    if message.seq is None:
        raise StillWaiting
    if message.erased_at is not None:
        raise MessageGone
    return chat, message


def open_branch(
    chat: Chat, *, at: Message, fork_seq: int, cause: str, user: AbstractBaseUser, now: datetime
) -> Branch:
    """Create a branch that shares the path of `at` up to `fork_seq`, and make it the active one.

    The caller has locked the chat. Raises `TooManyBranches`.
    """
    if Branch.objects.filter(chat=chat).count() >= BRANCHES_PER_CHAT:
        raise TooManyBranches(limit=BRANCHES_PER_CHAT)
    parent = parent_of(at.branch, fork_seq=fork_seq)
    known = chat.active_branch
    branch = Branch.objects.create(
        chat=chat,
        parent=parent,
        fork_seq=fork_seq,
        last_seq=fork_seq,
        team_id_offset=parent.team_id_offset,
        time_zone=parent.time_zone,
        compaction_paused=known.compaction_paused if known else False,
        paused_at=known.paused_at if known else None,
        created_at=now,
    )
    inherit_compaction(branch, nearest=[row for row in (known, at.branch, parent) if row])
    chat.active_branch = branch
    chat.save(update_fields=["active_branch"])
    tell("branch.created", branch=branch, cause=cause, actor=f"user:{user.pk}", now=now)
    return branch


def inherit_compaction(branch: Branch, *, nearest: list[Branch]) -> None:
    """Give a new branch the newest compaction of its path that applies to it."""
    start_from = newest_visible(branch, nearest=nearest)
    if start_from is not None:
        branch.active_compaction = start_from
        branch.save(update_fields=["active_compaction"])
        settle(start_from)


def open_empty_branch(
    chat: Chat, *, cause: str, actor: str, now: datetime, team_id_offset: int = 0
) -> Branch:
    """Create a branch without any message and make it the active one; what was said stays behind.

    The caller has locked the chat. Raises `TooManyBranches`.
    """
    if Branch.objects.filter(chat=chat).count() >= BRANCHES_PER_CHAT:
        raise TooManyBranches(limit=BRANCHES_PER_CHAT)
    branch = Branch.objects.create(
        chat=chat, parent=chat.active_branch, team_id_offset=team_id_offset, created_at=now
    )
    chat.active_branch = branch
    chat.save(update_fields=["active_branch"])
    tell("branch.created", branch=branch, cause=cause, actor=actor, now=now)
    return branch


def parent_of(branch: Branch, *, fork_seq: int) -> Branch:
    """Return the nearest branch of the path that holds the message at `fork_seq`."""
    node = branch
    while node.parent is not None and fork_seq <= node.fork_seq:
        node = node.parent
    return node


def newest_visible(branch: Branch, *, nearest: list[Branch]) -> Compaction | None:
    """Return the newest compaction that stands for messages of the branch's path alone.

    The search goes behind the compactions in force on the branches it came from: a window counts as
    it is, a summary with those it displaced, as far as none of its messages was withdrawn.
    """
    found: list[Compaction] = []
    for source in nearest:
        active = source.active_compaction
        if active is None:
            continue
        if active.kind == Compaction.Kind.WINDOW and is_visible(active, branch):
            base = active.base
            if base is None or is_true(base, branch):
                found.append(active)
        found += [row for row in chain(active) if row.status in USABLE and is_true(row, branch)][:1]
    return max(found, key=lambda row: row.to_seq, default=None)


def tell(event: str, *, branch: Branch, cause: str, actor: str, now: datetime) -> None:
    """Record in the ledger where a branch begins and with what."""
    ledger.record(
        event,
        actor=actor,
        now=now,
        chat_id=branch.chat_id,
        data={
            "branch": str(branch.pk),
            "parent": str(branch.parent_id) if branch.parent_id else "",
            "fork_seq": branch.fork_seq,
            "cause": cause,
            "compaction": str(branch.active_compaction_id or ""),
            "depth": len(segments(branch)),
        },
    )
