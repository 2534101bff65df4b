"""Accepts a message: one transaction stores it with its turn, event and idempotency key.

The response means "accepted", not "done". A Celery task, enqueued on commit, writes the reply.
Refusals are raised before anything is written.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from chats.ground.texts import replace_tagged_blocks, strip_line_signs
from chats.models import ApiKey, Branch, Chat, Message, Turn
from chats.prompt import model_choice
from chats.record import messages
from chats.record.idempotency import IdempotentRequest
from chats.record.images import Bytes
from chats.record.locking import lock_chat_for_writing
from chats.turns import round_again, round_messages, statements
from chats.turns.events import record_turn_started
from contextpolicy.engine.text import names
from speed import prepared

# A text that is a single tagged block, and the tags of a client's block within a text.
IN_TAGS = re.compile(r"\s*<([\w-]{1,64})[^<>]*>.*</\1>\s*", re.DOTALL)
TAGS = re.compile(
    r"<(?P<slash>/?)(?P<name>[A-Za-z]{1,64}+(?:[_-][A-Za-z]{1,64}+){1,16}+)(?:\s[^<>]*)?>"
)
# Tags that clients write around the words of the person.
AROUND = re.compile(
    r"</?(?:task|feedback|query|question|request|user[_-](?:query|message|request|input|prompt))>"
)


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


class TurnNotOver(Refusal):
    """The turn has not ended yet. Wait for it or stop it."""

    code = "turn_not_over"
    status = 409
    sentence = gettext_noop(
        "This reply is still being written. Wait for it or stop it, then try again."
    )


class NothingToContinue(Refusal):
    """The reply is complete, or the turn has no reply."""

    code = "nothing_to_continue"
    status = 409
    sentence = gettext_noop(
        "This turn has no truncated reply that can be continued. Try the reply again instead."
    )


class NotTheLastTurn(Refusal):
    """The chat has newer messages. Send a new message instead."""

    code = "not_the_last_turn"
    status = 409
    sentence = gettext_noop(
        "The chat has newer messages, so only its latest turn can be continued or repeated. "
        "Send a new message instead."
    )


class TurnIsCompleted(Refusal):
    """The turn completed with a reply. Regenerate the reply instead."""

    code = "turn_completed"
    status = 409
    sentence = gettext_noop(
        "This turn is completed, so it cannot be retried. Regenerate its reply to get another "
        "version."
    )


class TurnWasAbsorbed(Refusal):
    """Another turn replied to the message. Retry or regenerate that reply instead."""

    code = "turn_absorbed"
    status = 409
    sentence = gettext_noop(
        "Another turn also replied to this message. Retry or regenerate that reply instead."
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
    uploads of the person. `unread` attaches files without content by name only. `copies` is passed
    to `build_attached_files`.

    `as_role` is the human member of the chat's team in whose name the message is written. Raises
    the refusals of `record.messages.check_text`, of `files.attach.build_attached_files`,
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
        if chat.model_id != asked.model_id:
            # The model was changed after the chat was read.
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
        model_window=choice.model.window,
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
    """Return the model that replies to the text.

    Raises the refusals of `record.messages.check_text` and of resolving the policy, and
    `ModelUnavailable`.
    """
    choice = model_choice.choose_chat_model(chat=chat)
    messages.check_text(text, limit=choice.values.input_length_limit, has_files=has_files)
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

    Raises `FileNotFound`, and `NoSuchSeat` also for a role in a chat without a team.
    """
    branch = get_active_branch(chat)
    check_turn_limits(user=user, chat=chat, api_key=api_key)
    attach.lock_attached_files(files)
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
    if any(attach.is_cut(file.part) for file in files):
        chat.has_cut_files = True
        prepared.save_row_fields(chat, "has_cut_files")
    prepared.save_row_fields(chat, "title", "updated_at", "accepted_count")
    record_turn_started(turn, actor=actor, chat=chat, now=now, message=message, stored=[message])
    transaction.on_commit(partial(failpoint, "before_enqueue"))
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
    return message, turn


def get_active_branch(chat: Chat) -> Branch:
    """Return the branch for new messages. Every chat has one from its creation."""
    if chat.active_branch is None:
        raise ValueError(f"chat {chat.pk} has no branch")
    return chat.active_branch


def check_turn_limits(*, user: AbstractBaseUser, chat: Chat, api_key: ApiKey | None) -> None:
    """Raise `ChatFull`, `ChatBusy` or `TooManyTurns` at a limit. The caller has locked the chat.

    Replies of a person and of each API key are counted separately, so a client cannot block its
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
    # one person would not count each other's turns.
    statements.PERSON_LOCK.hold(owner=user.pk)
    if api_key is not None:
        others = statements.BUSY_BRANCHES_OF_KEY.tuples(key=api_key.pk, branch=branch.pk)
        if len(others) >= settings.TURNS_PER_KEY:
            raise TooManyTurnsOfKey(limit=settings.TURNS_PER_KEY)
        return
    others = statements.BUSY_BRANCHES.tuples(owner=user.pk, branch=branch.pk)
    if len(others) >= settings.TURNS_PER_USER:
        raise TooManyTurns(limit=settings.TURNS_PER_USER)


def get_title_text(message: Message) -> str:
    """Return the text from which a title is derived: the message's text, or its first file name.

    Empty if the message has neither.
    """
    if message.text.strip():
        return message.text
    named = (part["name"] for part in message.parts if part["type"] == "file")
    return next((name for name in named if name), "")


def derive_title(text: str, *, is_plain: bool = True) -> str:
    """Derive a title from the first visible line of the first message, cut at a word boundary.

    `is_plain` removes Markdown syntax. Without it, the result is the title that older versions
    derived.
    """
    lines = (
        names.normalise_name(names.replace_forbidden_characters(line)) for line in text.splitlines()
    )
    line = next((line for line in lines if names.is_allowed_name(line)), "")
    if is_plain:
        line = strip_line_signs(line)
    if len(line) <= 80:
        return line
    head = line[:80]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"


def is_derived_title(title: str, *, text: str) -> bool:
    """Return True if `derive_title` made the title from the text, in this or an older version."""
    return title in {derive_title(text), derive_title(text, is_plain=False)}


def find_first_text(texts: Iterable[str]) -> str:
    """Return the first text that a person wrote, otherwise the first non-empty text.

    Empty if there is none. Coding agents describe their environment in blocks such as
    `<environment_context>`, as separate messages or within a message. These blocks are removed.
    """
    spoken = [words for text in texts if (words := AROUND.sub("", text)).strip()]
    written = (remove_tagged_blocks(text) for text in spoken if not IN_TAGS.fullmatch(text))
    return next((text for text in written if text), "".join(spoken[:1]))


def remove_tagged_blocks(text: str) -> str:
    """Return a text without the tagged blocks that clients add, such as `<system-reminder>`."""
    return replace_tagged_blocks(AROUND.sub("", text), tags=TAGS).strip()


def retry_turn(
    *, user: AbstractBaseUser, turn: Turn, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Reply again to a message whose turn failed or was stopped, as a new turn.

    Raises `TurnNotOver`, `NotTheLastTurn`, `TurnIsCompleted`, `TurnWasAbsorbed`, and the refusals
    of `start_follow_up`.
    """
    return start_follow_up(user=user, turn=turn, now=now, make=build_retry_cause, api_key=api_key)


def continue_reply(
    *, user: AbstractBaseUser, turn: Turn, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Continue a truncated reply, as a new turn without a message.

    Raises `TurnNotOver`, `NotTheLastTurn`, `NothingToContinue`, and the refusals of
    `start_follow_up`.
    """
    return start_follow_up(
        user=user, turn=turn, now=now, make=build_continuation_cause, api_key=api_key
    )


def build_retry_cause(turn: Turn) -> dict[str, Any]:
    """Return the cause of a retry: the same message, or the same truncated reply.

    Raises `TurnIsCompleted` and `TurnWasAbsorbed`.
    """
    if turn.status == Turn.Status.COMPLETED:
        raise TurnIsCompleted
    if turn.status == Turn.Status.ABSORBED:
        raise TurnWasAbsorbed
    return {"trigger_id": turn.trigger_id, "continues_id": turn.continues_id}


def build_continuation_cause(turn: Turn) -> dict[str, Any]:
    """Return the cause of a continuation: the turn with the truncated reply.

    Raises `NothingToContinue`.
    """
    if turn.reply is None or turn.reply.finish == Message.Finish.STOP:
        raise NothingToContinue
    return {"trigger_id": None, "continues_id": turn.pk}


def start_follow_up(
    *,
    user: AbstractBaseUser,
    turn: Turn,
    now: datetime,
    make: Callable[[Turn], dict[str, Any]],
    api_key: ApiKey | None,
) -> Turn:
    """Create a new turn on the same branch, caused by an earlier one.

    Raises `TurnNotOver`, `NotTheLastTurn`, and the refusals of `make` and `create_turn`.
    """
    with transaction.atomic():
        chat = lock_chat_for_writing(turn.branch.chat_id)
        turn = Turn.objects.select_related("reply", "round", "agent__model").get(pk=turn.pk)
        if not turn.is_over:
            raise TurnNotOver
        if Turn.objects.filter(branch=turn.branch_id, accepted__gt=turn.accepted).exclude(
            status=Turn.Status.ABSORBED
        ):
            raise NotTheLastTurn
        return create_turn(
            user=user,
            chat=chat,
            branch_id=turn.branch_id,
            cause={**make(turn), **round_again.prepare_round_retry(turn, now=now)},
            now=now,
            api_key=api_key,
        )


def create_turn(
    *,
    user: AbstractBaseUser,
    chat: Chat,
    branch_id: uuid.UUID,
    cause: Mapping[str, Any],
    now: datetime,
    api_key: ApiKey | None,
) -> Turn:
    """Create a turn without a new message. The caller has locked the chat.

    Raises `ModelUnavailable`, the refusals of `check_turn_limits`, and those of resolving the
    policy.
    """
    choice = model_choice.choose_chat_model(chat=chat, agent=cause.get("agent"))
    model_choice.get_available_account(choice.model)
    check_turn_limits(user=user, chat=chat, api_key=api_key)
    new = Turn.objects.create(
        branch_id=branch_id,
        accepted=messages.increment_accepted_count(chat=chat),
        model=choice.model,
        model_name=choice.model.name,
        api_key=api_key,
        queued_at=now,
        **cause,
    )
    chat.save(update_fields=["accepted_count"])
    record_turn_started(new, actor=f"user:{user.pk}", chat=chat, now=now, message=None)
    queue.enqueue(queue.RUN_TURN, turn_id=new.pk)
    return new


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
