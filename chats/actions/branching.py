"""Branches from a message: edit it, request another reply, or continue after it.

Existing messages are never changed: each action creates a branch that shares the path up to a
message. The branch starts with the newest summary whose messages are all on that path, so that no
summary contains messages from outside.
"""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.compaction.coverage import (
    is_range_on_path,
    is_true,
    is_usable,
    update_compaction_statuses,
    walk_summary_chain,
)
from chats.files.edited_files import copy_attached_files
from chats.ground.refusals import NotFound, Refusal
from chats.models import ApiKey, Branch, Chat, Compaction, Message, Turn
from chats.prompt import turn_question
from chats.record.history import list_path_segments, select_path_messages
from chats.record.idempotency import IdempotentRequest
from chats.record.locking import lock_chat_for_writing
from chats.turns import round_again
from chats.turns.follow_up_turns import build_repeat_cause, create_turn
from chats.turns.start import Accepted, accept_message, replay_request
from chats.turns.statements import PERSON_LOCK
from contextpolicy import ledger

BRANCHES_PER_CHAT = 200


class TooManyBranches(Refusal):
    """The chat has 200 branches, which is the limit. Continue in a new chat."""

    code = "too_many_branches"
    status = 409
    sentence = gettext_noop(
        "This chat has reached its limit of {limit} branches. Continue in a new chat."
    )


class StillWaiting(Refusal):
    """The message is still queued, so no branch can start at it. Retry when its turn runs."""

    code = "still_waiting"
    status = 409
    sentence = gettext_noop(
        "This message is waiting for its reply to start. Try again once the reply has started."
    )


class NotAUserMessage(Refusal):
    """A model or a team member wrote the message, so it cannot be edited."""

    code = "not_a_user_message"
    status = 409
    sentence = gettext_noop(
        "Only your own messages can be edited. Regenerate the reply, or branch from this message."
    )


class NotAReply(Refusal):
    """The message is not a model's reply, so it cannot be regenerated."""

    code = "not_a_reply"
    status = 409
    sentence = gettext_noop("Only a reply can be regenerated. Edit the message instead.")


class MessageGone(Refusal):
    """The message was erased, so no branch can start at it."""

    code = "message_erased"
    status = 409
    sentence = gettext_noop(
        "This message was erased, so you cannot branch from it. Choose another message."
    )


def edit_message(
    *,
    user: AbstractBaseUser,
    message: Message,
    text: str,
    now: datetime,
    idempotency_key: str = "",
    api_key: ApiKey | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Accepted:
    """Edit a message: create a branch from the message preceding it, with a new turn.

    `metadata` is stored with the new message, which keeps the files. A repeated `idempotency_key`
    returns the first result. Raises `NotAUserMessage`, `StillWaiting`, `MessageGone`,
    `TooManyBranches`, `InvalidIdempotencyKey`, `IdempotencyKeyReused`, and the refusals of
    `turns.start.accept_message`.
    """
    chat_id = message.branch.chat_id
    keyed = IdempotentRequest(user=user, route=f"edit:{message.pk}", key=idempotency_key, body=text)
    with transaction.atomic():
        chat, message = lock_for_branching(chat_id, message)
        known = keyed.find(now=now)
        if known:
            return replay_request(known)
        if not is_owner_message(message):
            raise NotAUserMessage
        seq = message.seq or 1
        fork_branch(chat, at=message, fork_seq=seq - 1, cause="edit", user=user, now=now)
        made, turn = accept_message(
            user=user,
            chat=chat,
            text=text,
            now=now,
            api_key=api_key,
            metadata=metadata,
            files=copy_attached_files(message),
        )
        keyed.remember(result={"message": str(made.pk), "turn": str(turn.pk)}, now=now)
    return Accepted(message=made, turn=turn, repeated=False)


def is_owner_message(message: Message) -> bool:
    """Return True if the chat's owner wrote the message themselves, not as a team member."""
    return message.role == Message.Role.USER and message.speaker is None


def regenerate_reply(
    *, user: AbstractBaseUser, message: Message, now: datetime, play_on: bool = False
) -> Turn:
    """Request another reply and return its turn. Raises the refusals of `regenerate_once`."""
    return regenerate_once(user=user, message=message, now=now, play_on=play_on).turn


@transaction.atomic
def regenerate_once(
    *,
    user: AbstractBaseUser,
    message: Message,
    now: datetime,
    idempotency_key: str = "",
    api_key: ApiKey | None = None,
    play_on: bool = False,
) -> Accepted:
    """Create a branch that ends with the question of a reply, and queue another reply there.

    A team's agent replies again at its position in the round, alone or, with `play_on`,
    followed by the same agents as before. Raises `NotAReply`, `StillWaiting`,
    `MessageGone`, `QuestionErased`, `QuestionExcluded`, `TooManyBranches`,
    `InvalidIdempotencyKey`, `IdempotencyKeyReused`, and the refusals of `turns.start.create_turn`.
    """
    keyed = IdempotentRequest(
        user=user,
        route=f"regenerate:{message.pk}",
        key=idempotency_key,
        body="play on" if play_on else "",
    )
    chat, message = lock_for_branching(message.branch.chat_id, message)
    known = keyed.find(now=now)
    if known:
        return replay_request(known)
    if message.role != Message.Role.ASSISTANT or message.turn is None:
        raise NotAReply
    question, cause = find_reply_question(message, turn=message.turn)
    is_agent = message.turn.agent_id is not None
    # User messages that the turn accepted later stay before the new reply.
    own = message.turn.messages.filter(seq__isnull=False).exclude(role=Message.Role.USER)
    first = own.order_by("seq").first() or message
    # An agent's question is its round's opening, which may be on a parent branch.
    at = message if is_agent or question is None else question
    fork_seq = (question.seq if question and not is_agent else None) or (first.seq or 1) - 1
    branch = fork_branch(chat, at=at, fork_seq=fork_seq, cause="regenerate", user=user, now=now)
    actor = f"user:{user.pk}"
    taken = round_again.open_regeneration_round(
        message.turn, branch=branch, play_on=play_on, actor=actor, now=now
    )
    turn = create_turn(
        user=user, chat=chat, branch_id=branch.pk, cause=cause | taken, now=now, api_key=api_key
    )
    keyed.remember(result={"message": str(message.pk), "turn": str(turn.pk)}, now=now)
    return Accepted(message=message, turn=turn, repeated=False)


@transaction.atomic
def reply_beside_turn(
    *, user: AbstractBaseUser, turn: Turn, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Queue another reply in a new branch in place of a turn that is stopping and has no text yet.

    The text that the turn may still store stays in its own branch. Raises `StillWaiting`,
    `MessageGone`, `QuestionErased`, `QuestionExcluded`, `TooManyBranches`, and the refusals of
    `turns.start.create_turn`.
    """
    question = turn_question.find_turn_question(turn)
    path = select_path_messages(turn.branch, after=0, before=turn.branch.last_seq + 1)
    last = path.order_by("seq").last()
    if last is None:
        raise StillWaiting
    chat, last = lock_for_branching(turn.branch.chat_id, last)
    branch = fork_branch(
        chat, at=last, fork_seq=last.seq or 0, cause="regenerate", user=user, now=now
    )
    taken = round_again.open_regeneration_round(
        turn, branch=branch, play_on=False, actor=f"user:{user.pk}", now=now
    )
    cause = build_repeat_cause(turn, question=question) | taken
    return create_turn(
        user=user, chat=chat, branch_id=branch.pk, cause=cause, now=now, api_key=api_key
    )


def find_reply_question(message: Message, *, turn: Turn) -> tuple[Message | None, dict[str, Any]]:
    """Return the last user message that precedes the reply, and the cause of a new turn.

    The message is the newest user message of the turn before the reply, or the one that started the
    turn. The new turn answers the newest of these that prompts may contain. A continuation has no
    message: its cause is the turn whose reply it continues. Raises `QuestionErased` and
    `QuestionExcluded`.
    """
    users = Message.objects.filter(turn=turn, role=Message.Role.USER, seq__lt=message.seq or 0)
    asked = list(users.order_by("seq")) or ([turn.trigger] if turn.trigger else [])
    if not asked:
        turn_question.find_turn_question(turn)
        return None, {"continues_id": turn.continues_id}
    answered = asked[-1]
    if turn_question.answers_person(turn):
        answered = turn_question.choose_question(asked)
    return asked[-1], {"trigger_id": answered.pk}


@transaction.atomic
def branch_from_message(*, user: AbstractBaseUser, message: Message, now: datetime) -> Branch:
    """Continue from a message in a new branch, which becomes the active one.

    Raises `StillWaiting`, `MessageGone` and `TooManyBranches`.
    """
    chat, message = lock_for_branching(message.branch.chat_id, message)
    return fork_branch(
        chat, at=message, fork_seq=message.seq or 0, cause="branch", user=user, now=now
    )


@transaction.atomic
def choose_branch(
    *, user: AbstractBaseUser, chat: Chat, branch_id: uuid.UUID, now: datetime
) -> Branch:
    """Switch to another branch of the chat. Raises `NotFound`."""
    chat = lock_chat_for_writing(chat.pk)
    branch = Branch.objects.filter(pk=branch_id, chat=chat).first()
    if branch is None:
        raise NotFound
    if chat.active_branch_id != branch.pk:
        chat.active_branch = branch
        chat.save(update_fields=["active_branch"])
        record_branch_event(
            "branch.chosen", branch=branch, cause="chosen", actor=f"user:{user.pk}", now=now
        )
    return branch


def lock_for_branching(chat_id: uuid.UUID, message: Message) -> tuple[Chat, Message]:
    """Lock the message's chat and its owner, and return the reloaded chat and message.

    The owner is locked before the ledger, as everywhere. The branch is recorded in the
    ledger before its message is accepted, which would lock the owner to count replies.
    Raises `StillWaiting` and `MessageGone`.
    """
    chat = lock_chat_for_writing(chat_id)
    PERSON_LOCK.hold(owner=chat.owner_id)
    rows = Message.objects.select_related("branch", "turn__trigger", "turn__continues")
    message = rows.get(pk=message.pk)
    if message.seq is None:
        raise StillWaiting
    if message.erased_at is not None:
        raise MessageGone
    return chat, message


def fork_branch(
    chat: Chat, *, at: Message, fork_seq: int, cause: str, user: AbstractBaseUser, now: datetime
) -> Branch:
    """Create a branch that shares the path of `at` up to `fork_seq`, and activate it.

    The caller has locked the chat. Raises `TooManyBranches`.
    """
    if Branch.objects.filter(chat=chat).count() >= BRANCHES_PER_CHAT:
        raise TooManyBranches(limit=BRANCHES_PER_CHAT)
    parent = find_parent_branch(at.branch, fork_seq=fork_seq)
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
    record_branch_event(
        "branch.created", branch=branch, cause=cause, actor=f"user:{user.pk}", now=now
    )
    return branch


def inherit_compaction(branch: Branch, *, nearest: list[Branch]) -> None:
    """Give a new branch the newest compaction that applies to its path."""
    start_from = find_inheritable_compaction(branch, nearest=nearest)
    if start_from is not None:
        branch.active_compaction = start_from
        branch.save(update_fields=["active_compaction"])
        update_compaction_statuses(start_from)


def open_empty_branch(
    chat: Chat, *, cause: str, actor: str, now: datetime, team_id_offset: int = 0
) -> Branch:
    """Create a branch without messages and activate it. Other branches keep their messages.

    The caller has locked the chat. Raises `TooManyBranches`.
    """
    if Branch.objects.filter(chat=chat).count() >= BRANCHES_PER_CHAT:
        raise TooManyBranches(limit=BRANCHES_PER_CHAT)
    branch = Branch.objects.create(
        chat=chat, parent=chat.active_branch, team_id_offset=team_id_offset, created_at=now
    )
    chat.active_branch = branch
    chat.save(update_fields=["active_branch"])
    record_branch_event("branch.created", branch=branch, cause=cause, actor=actor, now=now)
    return branch


def find_parent_branch(branch: Branch, *, fork_seq: int) -> Branch:
    """Return the nearest branch on the path that contains the message at `fork_seq`."""
    node = branch
    while node.parent is not None and fork_seq <= node.fork_seq:
        node = node.parent
    return node


def find_inheritable_compaction(branch: Branch, *, nearest: list[Branch]) -> Compaction | None:
    """Return the newest compaction that covers only messages on the branch's path.

    The search starts at the active compactions of `nearest`. A window counts only together with
    the summary below it. For a summary, the summaries that it replaced are checked too. Summaries
    with an excluded or erased message are skipped. None if no compaction is left.
    """
    found: list[Compaction] = []
    for source in nearest:
        active = source.active_compaction
        if active is None:
            continue
        if active.kind == Compaction.Kind.WINDOW and is_range_on_path(active, branch):
            base = active.base
            if base is None or is_true(base, branch):
                found.append(active)
        found += [row for row in walk_summary_chain(active) if is_usable(row, branch)][:1]
    return max(found, key=lambda row: row.to_seq, default=None)


def record_branch_event(
    event: str, *, branch: Branch, cause: str, actor: str, now: datetime
) -> None:
    """Record in the ledger where a branch starts, and with which compaction."""
    ledger.record_event(
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
            "depth": len(list_path_segments(branch)),
        },
    )
