"""Accepts a message: one transaction stores it with its turn, event and idempotency key.

The response means "accepted", not "done". A Celery task, enqueued on commit, writes the reply.
Refusals are raised before anything is written.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.files import attach
from chats.ground import queue
from chats.ground.failpoints import failpoint
from chats.ground.refusals import NotFound, Refusal
from chats.models import ApiKey, Branch, Chat, Message, Turn
from chats.prompt import model_choice
from chats.record import message_text, messages, quotas
from chats.record.idempotency import IdempotentRequest
from chats.record.images import Bytes
from chats.record.locking import lock_chat_for_writing
from chats.turns import round_messages, statements
from chats.turns.derived_titles import derive_title, get_title_text
from chats.turns.events import record_turn_started
from speed import prepared


class ChatBusy(Refusal):
    """The chat has 20 queued messages (the default of `WAITING_PER_CHAT`). Wait for a reply."""

    code = "chat_busy"
    status = 409
    sentence = gettext_noop(
        "{waiting} messages are already waiting for a reply in this chat. Send this message after "
        "the next reply."
    )
    retry_after = 5


class ChatFull(Refusal):
    """The chat is full (`MESSAGES_PER_CHAT`, 200,000 messages by default). Start a new chat."""

    code = "chat_full"
    status = 409
    sentence = gettext_noop(
        "This chat has reached its limit of {limit:,} messages. Continue in a new chat."
    )


class TooManyTurns(Refusal):
    """Your sessions have 4 running replies in other chats (the default of `TURNS_PER_USER`)."""

    code = "too_many_runs"
    status = 429
    sentence = gettext_noop(
        "{limit} of your replies are already running in other chats. Wait for one to end."
    )
    retry_after = 5


class TooManyTurnsOfKey(TooManyTurns):
    """The API key has 8 running replies in other chats (the default of `TURNS_PER_KEY`)."""

    sentence = gettext_noop(
        "{limit} replies for this API key are already running in other chats. Wait for one to end."
    )


@dataclass(frozen=True, slots=True)
class Accepted:
    """A stored message and the turn that answers it.

    `repeated`: the idempotency key was already used.
    """

    message: Message
    turn: Turn
    repeated: bool


def start_turn(
    *,
    user: AbstractBaseUser,
    chat: Chat,
    text: str,
    now: datetime,
    idempotency_key: str = "",
    api_key: ApiKey | None = None,
    as_role: str = "",
    metadata: Mapping[str, Any] | None = None,
    files: Sequence[uuid.UUID] = (),
    unread: bool = False,
    copies: Mapping[uuid.UUID, Bytes] | None = None,
) -> Accepted:
    """Accept a user message in a chat. Return the stored message and its turn.

    `api_key` is the key of the client, if any. `metadata` is stored with the message. `files` are
    the user's uploads. `unread` attaches files without content by name only. `copies` is passed to
    `build_attached_files`.

    `as_role` is the human member of the chat's team in whose name the message is written. Raises
    the refusals of `record.message_text.check_text`, of `files.attach.build_attached_files`,
    `ChatBusy`, `ChatFull`, `TooManyTurns`, `InvalidIdempotencyKey`, `IdempotencyKeyReused`,
    `ModelUnavailable`, those of `round_messages.accept_team_message`, and those of resolving the
    policy.
    """
    body = f"as:{as_role}\n{text}" if as_role else text
    if files:
        body = f"files:{','.join(map(str, files))}\n{body}"
    keyed = IdempotentRequest(user=user, route=f"chat:{chat.pk}", key=idempotency_key, body=body)
    known = keyed.find(now=now)
    if known:
        return replay_request(known)
    # SQLite has a single write lock. Complete all reads before taking it.
    choice = resolve_model(chat, text=text, has_files=bool(files))
    attached = attach_files(files, user=user, choice=choice, unread=unread, copies=copies)
    with transaction.atomic():
        asked, chat = chat, lock_chat_for_writing(chat.pk)
        # The same request may have been sent twice concurrently.
        known = keyed.find(now=now)
        if known:
            return replay_request(known)
        if (chat.model_id, chat.team_id) != (asked.model_id, asked.team_id):
            # The model or the team was changed after the chat was read.
            choice = resolve_model(chat, text=text, has_files=bool(files))
        message, turn = store_message(
            user=user,
            chat=chat,
            choice=choice,
            text=text,
            now=now,
            api_key=api_key,
            as_role=as_role,
            metadata=metadata,
            files=attached,
        )
        keyed.remember(result={"message": str(message.pk), "turn": str(turn.pk)}, now=now)
    return Accepted(message=message, turn=turn, repeated=False)


def attach_files(
    files: Sequence[uuid.UUID],
    *,
    user: AbstractBaseUser,
    choice: model_choice.ChosenModel,
    unread: bool = False,
    copies: Mapping[uuid.UUID, Bytes] | None = None,
) -> list[messages.AttachedFile]:
    """Return the files of a new message. Raises the refusals of `build_attached_files`."""
    if not files:
        return []
    return attach.build_attached_files(
        files,
        user=user,
        values=choice.values,
        model=choice.model,
        unread=unread,
        copies=copies,
    )


def accept_message(
    *,
    user: AbstractBaseUser,
    chat: Chat,
    text: str,
    now: datetime,
    api_key: ApiKey | None = None,
    metadata: Mapping[str, Any] | None = None,
    files: Sequence[messages.AttachedFile] = (),
) -> tuple[Message, Turn]:
    """Check and store a message with its turn. The caller has locked the chat.

    Raises the refusals of `start_turn`, except for those of the idempotency key.
    """
    choice = resolve_model(chat, text=text, has_files=bool(files))
    return store_message(
        user=user,
        chat=chat,
        choice=choice,
        text=text,
        now=now,
        api_key=api_key,
        metadata=metadata,
        files=files,
    )


def resolve_model(chat: Chat, *, text: str, has_files: bool) -> model_choice.ChosenModel:
    """Return the model that replies to the text: the chat's, or that of an agent of its team.

    Raises the refusals of `record.message_text.check_text` and of resolving the policy,
    `ModelUnavailable`, and `TeamGone`.
    """
    if chat.team_id is None:
        choice = model_choice.choose_chat_model(chat=chat)
    else:
        choice = round_messages.choose_team_model(chat, branch=get_active_branch(chat), text=text)
    message_text.check_text(text, limit=choice.values.input_length_limit, has_files=has_files)
    model_choice.get_available_account(choice.model)
    return choice


def store_message(
    *,
    user: AbstractBaseUser,
    chat: Chat,
    choice: model_choice.ChosenModel,
    text: str,
    now: datetime,
    api_key: ApiKey | None,
    as_role: str = "",
    metadata: Mapping[str, Any] | None = None,
    files: Sequence[messages.AttachedFile] = (),
) -> tuple[Message, Turn]:
    """Store a checked message with its turn, within the limits. The caller has locked the chat.

    Raises `FileNotFound`, `FileQuotaExceeded`, and `NoSuchSeat` also for a role in a chat without a
    team.
    """
    branch = get_active_branch(chat)
    check_turn_limits(user=user, chat=chat, api_key=api_key, choice=choice, now=now)
    attach.lock_attached_files(files)
    attach.check_attached_images(files, owner_id=user.pk)
    actor = f"user:{user.pk}"
    if chat.team_id is not None:
        branch.chat = chat
        message, turn = round_messages.accept_team_message(
            chat=chat,
            branch=branch,
            text=text,
            now=now,
            actor=actor,
            api_key=api_key,
            as_role=as_role,
            metadata=metadata,
            files=files,
        )
    elif as_role:
        raise round_messages.NoSuchSeat(role=as_role[:80])
    else:
        message = messages.store_waiting_message(
            chat=chat, branch=branch, text=text, now=now, metadata=metadata, files=files
        )
        turn = Turn(
            branch=branch,
            accepted=messages.increment_accepted_count(chat=chat),
            trigger=message,
            model=choice.model,
            model_name=choice.model.name,
            api_key=api_key,
            queued_at=now,
        )
        prepared.insert_row(turn)
    if not chat.title:
        chat.title = derive_title(get_title_text(message))
    chat.updated_at = now
    attach.mark_chat_documents(chat, parts=(file.part for file in files))
    prepared.save_row_fields(chat, "title", "updated_at", "accepted_count")
    keep_provisional_chat(chat)
    record_turn_started(turn, actor=actor, chat=chat, now=now, message=message, stored=[message])
    if round_messages.is_unanswered(turn):
        messages.end_absorbed([turn], by=None, chat_id=chat.pk, now=now)
        return message, turn
    transaction.on_commit(partial(failpoint, "before_enqueue"))
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
    return message, turn


def keep_provisional_chat(chat: Chat) -> None:
    """Make a provisional chat permanent, because its owner continues it."""
    if chat.is_provisional:
        chat.archived, chat.erase_at = False, None
        chat.save(update_fields=["archived", "erase_at"])


def get_active_branch(chat: Chat) -> Branch:
    """Return the branch for new messages. Every chat has one from its creation."""
    if chat.active_branch is None:
        raise ValueError(f"chat {chat.pk} has no branch")
    return chat.active_branch


def check_turn_limits(
    *,
    user: AbstractBaseUser,
    chat: Chat,
    api_key: ApiKey | None,
    choice: model_choice.ChosenModel | None,
    now: datetime,
) -> None:
    """Raise a refusal if a limit is reached. The caller has locked the chat.

    `choice`: None if only the worker knows the model; it then checks the quotas before its calls.
    Raises `ChatFull`, `ChatBusy`, `TooManyTurns` and `quotas.QuotaExceeded`.

    Replies of a user and of each API key are counted separately, so a client cannot block its
    owner.
    """
    branch = get_active_branch(chat)
    if branch.last_seq >= settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)
    # Counted in Python: the limits keep the number small.
    waiting = len(statements.WAITING.tuples(branch=branch.pk))
    if waiting >= settings.WAITING_PER_CHAT:
        raise ChatBusy(waiting=waiting)
    # Locked after the chat, as everywhere. Without this lock, concurrent requests in two chats of
    # one user would not count each other's turns.
    statements.PERSON_LOCK.hold(owner=user.pk)
    if choice is not None:
        quotas.check_policy_quota(
            owner_id=chat.owner_id, values=choice.values, prices=choice.model.prices, now=now
        )
    if api_key is not None:
        others = statements.BUSY_BRANCHES_OF_KEY.tuples(key=api_key.pk, branch=branch.pk)
        if len(others) >= settings.TURNS_PER_KEY:
            raise TooManyTurnsOfKey(limit=settings.TURNS_PER_KEY)
        return
    others = statements.BUSY_BRANCHES.tuples(owner=user.pk, branch=branch.pk)
    if len(others) >= settings.TURNS_PER_USER:
        raise TooManyTurns(limit=settings.TURNS_PER_USER)


def replay_request(known: dict[str, str]) -> Accepted:
    """Return the result of the first request with the same key.

    Raises `NotFound` if its message or turn was deleted.
    """
    message = Message.objects.filter(pk=uuid.UUID(known["message"])).first()
    turns = Turn.objects.select_related("branch__chat").filter(pk=uuid.UUID(known["turn"]))
    turn = turns.first()
    if message is None or turn is None:
        raise NotFound
    return Accepted(message=message, turn=turn, repeated=True)
