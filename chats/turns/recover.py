"""Recovery of turns after a worker died or a broker message was lost.

Idempotent and safe to run concurrently: each step is one conditional UPDATE.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_noop

from chats.ground import databases, leases, queue, shared_figures
from chats.ground.sentences import Sentence
from chats.models import Chat, Message, Receipt, SkippedRow, Turn
from chats.record import locking, quotas
from chats.turns import reply_steps, rounds, statements, tool_steps
from chats.turns.events import describe_reply, record_attempt_end
from chats.turns.lease import RELEASED
from chats.turns.step_results import build_failure_fields
from chats.turns.writes import enqueue_next

LOST_SENTENCE = gettext_noop(
    "The reply was started {losses} times, and its worker stopped each time, often because of a "
    "lack of memory. Your message is saved. Try again. If it happens again, tell an operator."
)


def release_expired(*, now: datetime, worker: str = "") -> int:
    """Release turns with an expired lease, and return the count.

    With `worker`, release instead all running turns of workers whose names start with that prefix.
    A turn that cannot be released is skipped and reported; a temporary database error is raised.
    """
    gone = Turn.objects.filter(status=Turn.Status.RUNNING)
    ended = Q(worker__startswith=worker) if worker else leases.match_expired_leases()
    gone = gone.filter(ended)
    released = 0
    for turn in gone.select_related("branch").order_by("queued_at"):
        try:
            with transaction.atomic():
                released += release_lost_turn(turn, now=now)
        except Exception as error:
            if databases.is_retryable_error(error):
                raise
            SkippedRow.note(job="lost replies", row=f"turn {turn.pk}", error=error, now=now)
    return released


def release_lost_turn(turn: Turn, *, now: datetime) -> int:
    """Requeue one turn that lost its worker. Return 1, or 0 if its lease changed concurrently.

    A turn that was asked to stop ends as stopped. After `MAX_ATTEMPTS` losses, it ends as failed.
    """
    chat = lock_chat_of_lost_turn(turn)
    mine = Turn.objects.filter(pk=turn.pk, status=Turn.Status.RUNNING, lease_token=turn.lease_token)
    losses = turn.losses + 1
    if turn.stop_requested_at:
        changes = {"status": Turn.Status.STOPPED, "finished_at": now}
    elif losses >= settings.MAX_ATTEMPTS:
        changes = {
            "status": Turn.Status.FAILED,
            "finished_at": now,
            "error_code": tool_steps.LOST_CODE,
            **build_failure_fields(Sentence(LOST_SENTENCE, losses=losses)),
        }
    else:
        changes = {"status": Turn.Status.QUEUED, "queued_at": now}
    if turn.client is not None and changes["status"] != Turn.Status.QUEUED:
        changes["client"] = {}
    if not mine.update(losses=losses, **changes, **RELEASED):
        return 0
    quotas.close_lost_receipts(Receipt.objects.filter(turn=turn), now=now)
    transaction.on_commit(shared_figures.count_lease_loss)
    requeued = changes["status"] == Turn.Status.QUEUED
    reply = None
    if not requeued:
        reply = store_lost_reply(turn, chat=chat, status=str(changes["status"]), now=now)
    code = {"code": changes["error_code"]} if "error_code" in changes else {}
    record_attempt_end(
        turn,
        kind="turn.requeued" if requeued else f"turn.{changes['status']}",
        actor="system",
        now=now,
        more={"losses": losses} | describe_reply(reply) | code,
    )
    if not requeued:
        finish_lost_turn(turn, status=str(changes["status"]), reply=reply, now=now)
    if requeued and turn.lane:
        # `enqueue_next` may choose an earlier lane, but lanes do not wait for each other.
        queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
    enqueue_next(branch_id=turn.branch_id)
    return 1


def lock_chat_of_lost_turn(turn: Turn) -> Chat | None:
    """Return the chat of a lost turn, locked with the turn's branch.

    Serialises with accepting a message: only one transaction decides which turn follows, and only
    one appends a message. None for most turns, which belong to no round and called no tool server.
    """
    if turn.round_id is None and not reply_steps.has_started_calls(turn):
        return None
    chat = locking.lock_turn_chat(turn.pk)
    locking.lock_branch_of(turn.pk)
    return chat


def store_lost_reply(
    turn: Turn, *, chat: Chat | None, status: str, now: datetime
) -> Message | None:
    """Store the calls of a turn that ended without a worker as the turn's reply.

    None if it started no call. `chat`: the locked chat; if None, the turn started no call.
    """
    if chat is None:
        return None
    is_stopped = status == Turn.Status.STOPPED
    finish = Message.Finish.STOPPED if is_stopped else Message.Finish.INCOMPLETE
    reply = reply_steps.store_lost_step(turn, chat=chat, finish=finish, now=now)
    if reply is not None:
        Turn.objects.filter(pk=turn.pk).update(reply=reply)
    return reply


def finish_lost_turn(turn: Turn, *, status: str, reply: Message | None, now: datetime) -> None:
    """Close the tool steps of a turn that ended without a worker, and advance its round."""
    tool_steps.close_tool_steps(turn, now=now)
    if turn.round_id is not None:
        rounds.advance_round(turn, status=status, reply=reply, now=now)


def enqueue_overdue() -> int:
    """Enqueue queued turns again if no worker fetched them in time, or if a worker released them.

    Broker messages can be lost. Returns the number of turns, at most 1,000.
    """
    found = statements.OVERDUE.tuples(age=timedelta(seconds=settings.REQUEUE_AFTER))
    for (turn_id,) in found:
        queue.enqueue(queue.RUN_TURN, turn_id=turn_id)
    return len(found)
