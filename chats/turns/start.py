"""Accepts a message: one transaction with the message, its turn, the event and the key.

The response is "accepted", never "done": a Celery task, enqueued after the commit, writes the
reply. A refusal is raised before anything is written.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from chats.ground import queue
from chats.ground.failpoints import failpoint
from chats.ground.refusals import NotFound, Refusal
from chats.models import ApiKey, Branch, Chat, Message, Turn
from chats.prompt import model_choice
from chats.record import messages
from chats.record.idempotency import IdempotentRequest
from chats.record.locking import chat_to_write_in
from chats.turns import round_again, round_messages, statements
from chats.turns.events import started_event
from contextpolicy.engine import names
from speed import prepared

# A text that is one block in tags, and a block of a client within a text.
IN_TAGS = re.compile(r"\s*<([\w-]+)[^<>]*>.*</\1>\s*", re.DOTALL)
TAGGED = re.compile(r"<([A-Za-z]+(?:[_-][A-Za-z]+)+)(?:\s[^<>]*)?>.*?</\1>", re.DOTALL)


class ChatBusy(Refusal):
    """Too many messages wait in this chat."""

    code = "chat_busy"
    status = 409
    sentence = (
        "{waiting} messages already wait for an answer in this chat."
        " Send this one when the reply is there."
    )
    retry_after = 5


class ChatFull(Refusal):
    """The chat reached its largest size."""

    code = "chat_full"
    status = 409
    sentence = "This chat holds {limit:,} messages and takes no more. Continue in a new chat."


class TooManyTurns(Refusal):
    """The person has as many replies running as they may."""

    code = "too_many_runs"
    status = 429
    sentence = "{limit} replies of yours are already running in other chats. Wait for one to end."
    retry_after = 5


class TooManyTurnsOfKey(TooManyTurns):
    """A program has as many replies running as one key may."""

    sentence = (
        "{limit} replies to this key are already running in other chats. Wait for one to end."
    )


class TurnNotOver(Refusal):
    """The turn has not ended, so it cannot be tried again or continued."""

    code = "turn_not_over"
    status = 409
    sentence = "This reply is still being written."


class NothingToContinue(Refusal):
    """The reply is complete, or there is none."""

    code = "nothing_to_continue"
    status = 409
    sentence = "There is no cut reply to continue; try again instead."


class NotTheLastTurn(Refusal):
    """Other messages followed this turn."""

    code = "not_the_last_turn"
    status = 409
    sentence = "The chat has gone on since. Send a new message instead."


@dataclass(frozen=True, slots=True)
class Accepted:
    """A stored message and the turn that will reply to it; `repeated` when the key was known."""

    message: Message
    turn: Turn
    repeated: bool


def start(
    *,
    user: AbstractBaseUser,
    chat: Chat,
    text: str,
    now: datetime,
    idempotency_key: str = "",
    api_key: ApiKey | None = None,
    as_role: str = "",
) -> Accepted:
    """Accept a user message in a chat of this person's; `api_key` is what a program asks with.

    `as_role`: the person of the chat's team in whose name it is said. Raises the refusals of
    `record.messages.check_text`, `ChatBusy`, `ChatFull`, `TooManyTurns`, `InvalidIdempotencyKey`,
    `IdempotencyKeyReused`, `ModelUnavailable`, those of `round_messages.accept`, and what resolving
    the policy raises.
    """
    body = f"as:{as_role}\n{text}" if as_role else text
    keyed = IdempotentRequest(user=user, route=f"chat:{chat.pk}", key=idempotency_key, body=body)
    known = keyed.find(now=now)
    if known:
        return recall(known)
    # SQLite has one lock for everything: all that only reads is done before it is taken.
    choice = answerable(chat, text=text)
    with transaction.atomic():
        asked, chat = chat, chat_to_write_in(chat.pk)
        # The same request may have been sent twice at once.
        known = keyed.find(now=now)
        if known:
            return recall(known)
        if chat.model_id != asked.model_id:
            # Another model was chosen since the chat was read.
            choice = answerable(chat, text=text)
        message, turn = store_message(
            user=user,
            chat=chat,
            choice=choice,
            text=text,
            now=now,
            api_key=api_key,
            as_role=as_role,
        )
        keyed.remember(result={"message": str(message.pk), "turn": str(turn.pk)}, now=now)
    return Accepted(message=message, turn=turn, repeated=False)


def accept_message(
    *,
    user: AbstractBaseUser,
    chat: Chat,
    text: str,
    now: datetime,
    api_key: ApiKey | None = None,
) -> tuple[Message, Turn]:
    """Check and store a message with its turn; the caller has locked the chat.

    Raises what `start` raises, apart from the refusals of its key.
    """
    choice = answerable(chat, text=text)
    return store_message(user=user, chat=chat, choice=choice, text=text, now=now, api_key=api_key)


def answerable(chat: Chat, *, text: str) -> model_choice.ChosenModel:
    """Return the model that will reply to the text. Raises if its policy or model forbids it."""
    choice = model_choice.choose(chat=chat)
    messages.check_text(text, limit=choice.values.input_length_limit)
    model_choice.available_account(choice.model)
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
) -> tuple[Message, Turn]:
    """Store a checked message with its turn, if there is room; the caller has locked the chat.

    Raises `NoSuchSeat` for a role in a chat without a team, too.
    """
    branch = open_branch(chat)
    check_room(user=user, chat=chat, api_key=api_key)
    actor = f"user:{user.pk}"
    if chat.team_id is not None:
        branch.chat = chat
        message, turn = round_messages.accept(
            chat=chat,
            branch=branch,
            text=text,
            now=now,
            actor=actor,
            api_key=api_key,
            as_role=as_role,
        )
    elif as_role:
        raise round_messages.NoSuchSeat(role=as_role[:80])
    else:
        message = messages.accept(chat=chat, branch=branch, text=text, now=now)
        turn = Turn(
            branch=branch,
            accepted=messages.next_accepted(chat=chat),
            trigger=message,
            model=choice.model,
            model_name=choice.model.name,
            api_key=api_key,
            queued_at=now,
        )
        prepared.insert(turn)
    if not chat.title:
        chat.title = title_from(text)
    chat.updated_at = now
    prepared.save(chat, "title", "updated_at", "accepted_count")
    started_event(turn, actor=actor, chat=chat, now=now, message=message)
    transaction.on_commit(partial(failpoint, "before_enqueue"))
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
    return message, turn


def open_branch(chat: Chat) -> Branch:
    """Return the branch that new messages go to; every chat has one from its creation on."""
    if chat.active_branch is None:
        raise ValueError(f"chat {chat.pk} has no branch")
    return chat.active_branch


def check_room(*, user: AbstractBaseUser, chat: Chat, api_key: ApiKey | None) -> None:
    """Raise `ChatFull`, `ChatBusy` or `TooManyTurns` without room; the caller has locked the chat.

    A person's replies and those of each key are counted apart: no program silences its owner.
    """
    branch = open_branch(chat)
    if branch.last_seq >= settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)
    # Counted here: there are never many more than the limits allow.
    waiting = len(statements.WAITING.tuples(branch=branch.pk))
    if waiting >= settings.WAITING_PER_CHAT:
        raise ChatBusy(waiting=waiting)
    # Locked after the chat, as everywhere: two chats of one person that ask at once see each other.
    statements.PERSON_LOCK.hold(owner=user.pk)
    if api_key is not None:
        others = statements.BUSY_BRANCHES_OF_KEY.tuples(key=api_key.pk, branch=branch.pk)
        if len(others) >= settings.TURNS_PER_KEY:
            raise TooManyTurnsOfKey(limit=settings.TURNS_PER_KEY)
        return
    others = statements.BUSY_BRANCHES.tuples(owner=user.pk, branch=branch.pk)
    if len(others) >= settings.TURNS_PER_USER:
        raise TooManyTurns(limit=settings.TURNS_PER_USER)


def title_from(text: str) -> str:
    """Make a title of the first line of the first message, cut at a word's end."""
    lines = (names.normal(names.made_sound(line)) for line in text.splitlines())
    line = next((line for line in lines if line), "")
    if len(line) <= 80:
        return line
    head = line[:80]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"


def first_words(texts: Iterable[str]) -> str:
    """Return the first of some texts that a person wrote, or the first; empty without any.

    Coding agents describe their surroundings in blocks such as `<environment_context>`, as messages
    or within a message; these blocks are removed.
    """
    spoken = [text for text in texts if text.strip()]
    written = (TAGGED.sub("", text).strip() for text in spoken if not IN_TAGS.fullmatch(text))
    return next((text for text in written if text), "".join(spoken[:1]))


def retry(
    *, user: AbstractBaseUser, turn: Turn, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Reply to the same message again after a failure or a stop, as a new turn.

    Raises `TurnNotOver`, `NotTheLastTurn`, and what `follow_up` raises.
    """
    return follow_up(user=user, turn=turn, now=now, make=retry_cause, api_key=api_key)


def continue_reply(
    *, user: AbstractBaseUser, turn: Turn, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Let the model continue a reply that was cut, as a new turn without a message.

    Raises `TurnNotOver`, `NotTheLastTurn`, `NothingToContinue`, and what `follow_up` raises.
    """
    return follow_up(user=user, turn=turn, now=now, make=continuation_cause, api_key=api_key)


def retry_cause(turn: Turn) -> dict[str, Any]:
    """Return the cause of a retry: the same message, or the same cut reply."""
    return {"trigger_id": turn.trigger_id, "continues_id": turn.continues_id}


def continuation_cause(turn: Turn) -> dict[str, Any]:
    """Return the cause of a continuation: the turn whose reply was cut.

    Raises `NothingToContinue`.
    """
    if turn.reply is None or turn.reply.finish == Message.Finish.STOP:
        raise NothingToContinue
    return {"trigger_id": None, "continues_id": turn.pk}


def follow_up(
    *,
    user: AbstractBaseUser,
    turn: Turn,
    now: datetime,
    make: Callable[[Turn], dict[str, Any]],
    api_key: ApiKey | None,
) -> Turn:
    """Create a new turn in the same branch, caused by an earlier one.

    Raises `TurnNotOver`, `NotTheLastTurn`, and what `make` and `caused_turn` raise.
    """
    with transaction.atomic():
        chat = chat_to_write_in(turn.branch.chat_id)
        turn = Turn.objects.select_related("reply", "round", "agent__model").get(pk=turn.pk)
        if not turn.is_over:
            raise TurnNotOver
        if Turn.objects.filter(branch=turn.branch_id, accepted__gt=turn.accepted).exclude(
            status=Turn.Status.ABSORBED
        ):
            raise NotTheLastTurn
        return caused_turn(
            user=user,
            chat=chat,
            branch_id=turn.branch_id,
            cause={**make(turn), **round_again.cause_of_retry(turn, now=now)},
            now=now,
            api_key=api_key,
        )


def caused_turn(
    *,
    user: AbstractBaseUser,
    chat: Chat,
    branch_id: uuid.UUID,
    cause: Mapping[str, Any],
    now: datetime,
    api_key: ApiKey | None,
) -> Turn:
    """Create a new turn without a new message; the caller has locked the chat.

    Raises `ModelUnavailable`, the refusals of `check_room`, and what resolving the policy raises.
    """
    choice = model_choice.choose(chat=chat, agent=cause.get("agent"))
    model_choice.available_account(choice.model)
    check_room(user=user, chat=chat, api_key=api_key)
    new = Turn.objects.create(
        branch_id=branch_id,
        accepted=messages.next_accepted(chat=chat),
        model=choice.model,
        model_name=choice.model.name,
        api_key=api_key,
        queued_at=now,
        **cause,
    )
    chat.save(update_fields=["accepted_count"])
    started_event(new, actor=f"user:{user.pk}", chat=chat, now=now, message=None)
    queue.enqueue(queue.RUN_TURN, turn_id=new.pk)
    return new


def recall(known: dict[str, str]) -> Accepted:
    """Return the result of the first request with the same key.

    Raises `NotFound` when it was deleted.
    """
    message = Message.objects.filter(pk=uuid.UUID(known["message"])).first()
    turns = Turn.objects.select_related("branch__chat").filter(pk=uuid.UUID(known["turn"]))
    turn = turns.first()
    if message is None or turn is None:
        raise NotFound
    return Accepted(message=message, turn=turn, repeated=True)
