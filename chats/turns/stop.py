"""Stops turns: a queued one at once, a running one by notifying its worker."""

import logging
import uuid
from collections.abc import Iterable
from datetime import datetime
from functools import partial

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_noop
from redis import Redis
from redis.exceptions import RedisError

from chats.ground.live import STOPS
from chats.ground.refusals import NotFound, Refusal
from chats.models import Chat, Message, Round, Turn
from chats.models.turns import UNFINISHED
from chats.record import locking
from chats.record.message_commitments import build_stored_data, list_turn_replies
from chats.turns import consents, lanes, reply_steps, rounds, tool_steps
from chats.turns.events import describe_reply
from chats.turns.lease import RELEASED
from chats.turns.writes import enqueue_next
from contextpolicy import ledger

logger = logging.getLogger(__name__)


class TurnIsOver(Refusal):
    """The turn has already ended."""

    code = "turn_is_over"
    status = 409
    sentence = gettext_noop(
        "This reply has already ended, so it cannot be stopped. Reload the chat to see it."
    )


def stop_turn(
    *, user: AbstractBaseUser, turn: Turn, now: datetime, with_others: bool = False
) -> Turn:
    """Ask the turn to stop. A queued turn ends immediately, a running one at its next token.

    A turn that waits for consent is queued again, and a worker stores its text so far.
    If a team replies in parallel, only this turn stops; `with_others` stops all parallel turns and
    their round. The request is stored in the row, which the worker reads at each heartbeat; the bus
    only makes it react sooner. Repeating the request has no effect. Raises `TurnIsOver`, and
    `NotFound` if the chat was erased.
    """
    with transaction.atomic():
        # Serialises with accepting a message and ending a reply: only one transaction decides which
        # turn follows, and only one appends a message.
        if locking.lock_turn_chat(turn.pk) is None:
            raise NotFound
        locking.lock_branch_of(turn.pk)
        asked = lock_turns({turn.pk, *(list_parallel_turns(turn) if with_others else ())})
        turn = next(each for each in asked if each.pk == turn.pk)
        if turn.is_over:
            raise TurnIsOver
        if len(asked) > 1 and turn.round is not None:
            rounds.stop_round(turn.round, now=now)
        for each in asked:
            if each.stop_requested_at is None:
                request_stop(each, actor=f"user:{user.pk}", now=now)
    for each in asked:
        if each.status == Turn.Status.RUNNING:
            tell_workers(each)
    return turn


def list_parallel_turns(turn: Turn) -> list[uuid.UUID]:
    """Return the ids of all unfinished lanes of a turn's round, including its own.

    Empty if the turn is not a lane.
    """
    if not turn.lane or turn.round is None:
        return []
    return list(lanes.select_unfinished_lanes(turn.round).values_list("pk", flat=True))


def lock_turns(pks: Iterable[uuid.UUID]) -> list[Turn]:
    """Lock turns and return them.

    They are locked in the order of their ids, as in the worker's heartbeat, to avoid deadlocks.
    """
    rows = Turn.objects.filter(pk__in=pks).select_for_update(of=("self",), no_key=True)
    return list(rows.order_by("pk"))


def stop_all(*, chat: Chat, actor: str, now: datetime) -> None:
    """Ask all unfinished turns of a chat to stop. Call inside a transaction."""
    running = Turn.objects.filter(branch__chat=chat, status__in=UNFINISHED, stop_requested_at=None)
    rows = running.select_for_update(of=("self",), no_key=True).select_related("branch")
    pks = list(running.order_by("accepted").values_list("pk", flat=True))
    # A turn that called tools gets a reply, which changes its branch.
    locking.lock_branches(chat)
    lock_turns(pks)
    # Lock order: branches and turns before the head of the ledger, which the end of a round locks.
    for made in Round.objects.filter(branch__chat=chat, status=Round.Status.RUNNING):
        if lanes.select_unfinished_lanes(made).exists():
            rounds.stop_round(made, now=now)
    for pk in pks:
        # Read one by one: ending a turn may open a round for the next one.
        turn = rows.filter(pk=pk).first()
        if turn is None:
            continue
        request_stop(turn, actor=actor, now=now)
        if turn.status == Turn.Status.RUNNING:
            transaction.on_commit(partial(tell_workers, turn))


def end_waiting_turns(*, chat: Chat, actor: str, now: datetime) -> None:
    """Stop all turns of a chat if one of them waits for consent. Call inside a transaction.

    Call this before erasing a chat, so that the text of the waiting turn is not stored as a reply.
    """
    if Turn.objects.filter(branch__chat=chat, awaits_consent=True).update(awaits_consent=False):
        stop_all(chat=chat, actor=actor, now=now)


def end_turns_waiting_on(*, message: Message, actor: str, now: datetime) -> None:
    """Stop the turn of a message if it waits for consent. Call inside a transaction.

    Call this before erasing a message, so that the text of the waiting turn is not stored as a
    reply. The next turn of the branch starts.
    """
    rows = Turn.objects.filter(Q(pk=message.turn_id) | Q(trigger=message), awaits_consent=True)
    pks = list(rows.values_list("pk", flat=True))
    Turn.objects.filter(pk__in=pks).update(awaits_consent=False)
    for turn in lock_turns(pks):
        request_stop(turn, actor=actor, now=now, keeps_calls=False)
        enqueue_next(branch_id=turn.branch_id)


def request_stop(turn: Turn, *, actor: str, now: datetime, keeps_calls: bool = True) -> None:
    """Store the stop request. A queued turn ends at once.

    A turn that waits for consent is queued again, and a worker stores its text so far.
    `keeps_calls`: the calls that a queued turn started become its reply.
    """
    chat_id = turn.branch.chat_id
    turn.stop_requested_at = now
    fields = ["stop_requested_at"]
    ledger.record_event(
        "turn.stop_requested", actor=actor, now=now, chat_id=chat_id, turn_id=turn.pk
    )
    if turn.awaits_consent:
        consents.end_waiting(turn, now=now)
        fields += ["awaits_consent", "queued_at"]
    elif turn.status == Turn.Status.QUEUED:
        turn.status = Turn.Status.STOPPED
        turn.finished_at = now
        fields += ["status", "finished_at", *RELEASED]
        if turn.client is not None:
            turn.client = {}
            fields.append("client")
        fields += store_stopped_reply(turn, actor=actor, now=now, keeps_calls=keeps_calls)
    turn.save(update_fields=fields)
    if turn.is_over and turn.round_id is not None:
        rounds.advance_round(turn, status=turn.status, reply=turn.reply, now=now)


def store_stopped_reply(turn: Turn, *, actor: str, now: datetime, keeps_calls: bool) -> list[str]:
    """Store the calls of a stopped turn without a worker as its reply, and record its end.

    Returns the changed fields, which the caller saves. The caller has locked the chat and the turn.
    """
    reply = None
    if turn.attempt and keeps_calls:
        chat = Chat.objects.get(pk=turn.branch.chat_id)
        finish = Message.Finish.STOPPED
        reply = reply_steps.store_lost_step(turn, chat=chat, finish=finish, now=now)
    ledger.record_event(
        "turn.stopped",
        actor=actor,
        now=now,
        chat_id=turn.branch.chat_id,
        turn_id=turn.pk,
        data=build_stored_data(list_turn_replies(turn.pk)) | describe_reply(reply),
    )
    if turn.attempt:
        tool_steps.close_tool_steps(turn, now=now)
    if reply is None:
        return []
    turn.reply = reply
    return ["reply"]


def tell_workers(turn: Turn) -> None:
    """Publish the turn's id on the stop stream. If the bus is down, workers see the row instead."""
    try:
        with Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=2
        ) as client:
            client.xadd(STOPS, {"turn": str(turn.pk)}, maxlen=1000, approximate=True)
    except (RedisError, OSError) as error:
        logger.warning(
            "live bus unreachable, turn %s stops at its next heartbeat: %s",
            turn.pk,
            type(error).__name__,
        )
