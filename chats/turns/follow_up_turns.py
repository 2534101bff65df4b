"""Starts a turn without a new message: retries a failed turn or continues a truncated reply."""

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.models import ApiKey, Chat, Message, Turn
from chats.prompt import model_choice, turn_question
from chats.prompt.turn_question import QuestionExcluded
from chats.record import messages
from chats.record.locking import lock_chat_for_writing
from chats.turns import round_again
from chats.turns.events import record_turn_started
from chats.turns.start import check_turn_limits, keep_provisional_chat


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


def retry_turn(
    *, user: AbstractBaseUser, turn: Turn, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Reply again to a message whose turn failed or was stopped, as a new turn.

    Raises `TurnNotOver`, `NotTheLastTurn`, `TurnIsCompleted`, `TurnWasAbsorbed`, `QuestionErased`,
    `QuestionExcluded`, and the refusals of `start_follow_up`.
    """
    return start_follow_up(user=user, turn=turn, now=now, make=build_retry_cause, api_key=api_key)


def continue_reply(
    *, user: AbstractBaseUser, turn: Turn, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Continue a truncated reply, as a new turn without a message.

    Raises `TurnNotOver`, `NotTheLastTurn`, `NothingToContinue`, `QuestionExcluded`, and the
    refusals of `start_follow_up`.
    """
    return start_follow_up(
        user=user, turn=turn, now=now, make=build_continuation_cause, api_key=api_key
    )


def build_retry_cause(turn: Turn) -> dict[str, Any]:
    """Return the cause of a retry: the same message, or the same truncated reply.

    If prompts may no longer contain the message, another one that the turn answers. Raises
    `TurnIsCompleted`, `TurnWasAbsorbed`, `QuestionErased` and `QuestionExcluded`.
    """
    if turn.status == Turn.Status.COMPLETED:
        raise TurnIsCompleted
    if turn.status == Turn.Status.ABSORBED:
        raise TurnWasAbsorbed
    question = turn_question.find_turn_question(turn)
    return build_repeat_cause(turn, question=question)


def build_repeat_cause(turn: Turn, *, question: Message | None) -> dict[str, Any]:
    """Return the cause of a turn that repeats another one.

    `question`: the result of `turn_question.find_turn_question`. It replaces a trigger that prompts
    may not contain.
    """
    trigger = turn.trigger
    if question is not None and trigger is not None and (trigger.excluded or trigger.erased_at):
        trigger = question
    return {"trigger_id": trigger.pk if trigger else None, "continues_id": turn.continues_id}


def build_continuation_cause(turn: Turn) -> dict[str, Any]:
    """Return the cause of a continuation: the turn with the truncated reply.

    Raises `NothingToContinue` and `QuestionExcluded`.
    """
    reply = turn.reply
    if reply is None or not reply.parts or reply.finish == Message.Finish.STOP:
        raise NothingToContinue
    if reply.excluded:
        raise QuestionExcluded
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
        turn = Turn.objects.select_related("reply", "round", "agent__model", "trigger").get(
            pk=turn.pk
        )
        if not turn.is_over:
            raise TurnNotOver
        later = Turn.objects.filter(branch=turn.branch_id, accepted__gt=turn.accepted)
        if later.exclude(status=Turn.Status.ABSORBED).exists():
            raise NotTheLastTurn
        new = create_turn(
            user=user,
            chat=chat,
            branch_id=turn.branch_id,
            cause={**make(turn), **round_again.prepare_round_retry(turn, now=now)},
            now=now,
            api_key=api_key,
        )
        if turn.agent is None:
            round_again.start_opening_turns(new, chat=chat, actor=f"user:{user.pk}", now=now)
        return new


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
    check_turn_limits(user=user, chat=chat, api_key=api_key, choice=choice, now=now)
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
    keep_provisional_chat(chat)
    record_turn_started(new, actor=f"user:{user.pk}", chat=chat, now=now, message=None)
    queue.enqueue(queue.RUN_TURN, turn_id=new.pk)
    return new
