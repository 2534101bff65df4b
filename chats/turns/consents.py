"""People's decisions about tool calls (allow once, allow for the chat, deny) and their expiry.

A turn that waits for consent has no worker. The decision about its last open call queues it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Max
from django.utils.translation import gettext_noop

from chats.ground import databases, queue
from chats.ground.refusals import NotFound, Refusal
from chats.models import Round, SkippedRow, ToolCall, ToolConsent, ToolStep, Turn
from chats.turns.tool_steps import Consent, ensure_waiting_event, record_consent_event
from contextpolicy.engine.messages.messages import ToolCallPart, parse_parts

Decision = Literal["once", "chat", "deny"]
DECISIONS: Sequence[Decision] = ("once", "chat", "deny")
# The maximum number of requests that one run of the due job ends.
EXPIRED_AT_ONCE = 300
# Ids have fewer digits than this, so they fit a 64-bit column.
MOST_DIGITS = 19


class ConsentIsOver(Refusal):
    """The request for consent was already answered or has expired, or the reply has ended."""

    code = "consent_is_over"
    status = 409
    sentence = gettext_noop(
        "This request was already answered, or it expired. Reload the chat to see the result."
    )


def decide_tool_call(
    *, user: AbstractBaseUser, turn: Turn, call_id: int, decision: Decision, now: datetime
) -> Turn:
    """Store a user's decision about a waiting call of a turn that they may read.

    The decision `chat` also allows the tool's other waiting calls and its later calls in this chat.
    Raises ConsentIsOver and NotFound.
    """
    actor = f"user:{user.pk}"
    with transaction.atomic():
        locked = lock_waiting_turn(turn)
        row = ToolCall.objects.filter(turn=turn, pk=call_id).first()
        if row is None:
            raise NotFound
        if locked is None or row.consent != Consent.WAITING:
            raise ConsentIsOver
        if decision == "deny":
            store_decision(row, Consent.DENIED, turn=locked, actor=actor, now=now)
        else:
            allow_call(row, turn=locked, decision=decision, actor=actor, now=now)
        resume_decided_turn(locked, now=now)
    return locked


def parse_call_id(value: str) -> int:
    """Parse the id of a call from a page's request. Raises NotFound."""
    if not (value.isascii() and value.isdigit() and len(value) < MOST_DIGITS):
        raise NotFound
    return int(value)


def parse_decision(value: str) -> Decision:
    """Parse a decision from a page's request. An unknown value means `deny`."""
    return next((each for each in DECISIONS if each == value), "deny")


def lock_waiting_turn(turn: Turn) -> Turn | None:
    """Return the turn, locked for the transaction. None if it does not wait for consent."""
    rows = Turn.objects.select_related("branch").filter(pk=turn.pk, awaits_consent=True)
    return rows.select_for_update(of=("self",), no_key=True).first()


def allow_call(row: ToolCall, *, turn: Turn, decision: Decision, actor: str, now: datetime) -> None:
    """Allow a waiting call. The decision `chat` allows its tool in the chat from now on.

    Other waiting calls of that tool in this turn are then allowed too.
    """
    rows = [row]
    if decision == "chat":
        ToolConsent.objects.update_or_create(
            chat_id=turn.branch.chat_id,
            server=row.server,
            tool=row.tool,
            defaults={"digest": row.digest, "given_at": now},
        )
        same = ToolCall.objects.filter(
            turn=turn, consent=Consent.WAITING, server=row.server, tool=row.tool
        )
        rows = list(same)
    for each in rows:
        store_decision(each, Consent.ALLOWED, turn=turn, actor=actor, now=now, scope=decision)


def store_decision(
    row: ToolCall, consent: str, *, turn: Turn, actor: str, now: datetime, scope: str = ""
) -> None:
    """Store a decision about a request for consent, or its expiry, and record it in the ledger."""
    row.consent, row.asked_until = consent, None
    row.save(update_fields=["consent", "asked_until"])
    kind = f"tool.consent_{'given' if consent == Consent.ALLOWED else consent}"
    more = {"scope": scope} if scope else {}
    record_consent_event(kind, row, turn=turn, actor=actor, now=now, **more)


def resume_decided_turn(turn: Turn, *, now: datetime) -> None:
    """Queue the turn again if none of its calls waits for a decision."""
    if ToolCall.objects.filter(turn=turn, consent=Consent.WAITING).exists():
        return
    ensure_waiting_event(turn, now=now)
    leave_wait_out_of_round(turn, now=now)
    turn.awaits_consent, turn.queued_at = False, now
    turn.save(update_fields=["awaits_consent", "queued_at"])
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)


def leave_wait_out_of_round(turn: Turn, *, now: datetime) -> None:
    """Move the start of the turn's round by the time for which the turn waited for decisions.

    Like the time in which a round waits for a person, it does not count towards the time limit. The
    time before another parallel turn was queued again is left out already.
    """
    if turn.round_id is None:
        return
    rows = Round.objects.filter(pk=turn.round_id, status=Round.Status.RUNNING)
    made = rows.select_for_update(of=("self",), no_key=True).first()
    if made is not None:
        others = Turn.objects.filter(round=made).exclude(pk=turn.pk)
        resumed = others.aggregate(at=Max("queued_at"))["at"]
        began = turn.queued_at if resumed is None else min(max(turn.queued_at, resumed), now)
        made.started_at = min(made.started_at + (now - began), now)
        made.save(update_fields=["started_at"])


def end_waiting(turn: Turn, *, now: datetime) -> None:
    """Deny the waiting calls of a turn that was asked to stop, and queue the turn so that it ends.

    The caller holds the lock of the turn, and saves `awaits_consent` and `queued_at`.
    """
    waiting = ToolCall.objects.filter(turn=turn, consent=Consent.WAITING)
    waiting.update(consent=Consent.DENIED, asked_until=None)
    ensure_waiting_event(turn, now=now)
    leave_wait_out_of_round(turn, now=now)
    turn.awaits_consent, turn.queued_at = False, now
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)


def expire_consents(*, now: datetime) -> int:
    """End unanswered requests for consent whose time has passed. Their calls count as denied.

    Returns the number of ended requests. A row that fails is skipped and reported; a temporary
    database error is raised.
    """
    due = ToolCall.objects.filter(consent=Consent.WAITING, asked_until__lte=now)
    ended = 0
    for row in due.select_related("turn").order_by("asked_until")[:EXPIRED_AT_ONCE]:
        try:
            ended += expire_consent(row, now=now)
        except Exception as error:
            if databases.is_retryable_error(error):
                raise
            SkippedRow.note(job="tool consents", row=f"tool call {row.pk}", error=error, now=now)
    return ended


@transaction.atomic
def expire_consent(row: ToolCall, *, now: datetime) -> int:
    """End one unanswered request and return 1.

    Returns 0 if the request was answered or its turn no longer waits.
    """
    turn = lock_waiting_turn(row.turn)
    fresh = ToolCall.objects.filter(pk=row.pk, consent=Consent.WAITING).first()
    if turn is None or fresh is None:
        return 0
    store_decision(fresh, Consent.EXPIRED, turn=turn, actor="system", now=now)
    resume_decided_turn(turn, now=now)
    return 1


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits for a decision, with its arguments as JSON text from the model."""

    id: int
    server: str
    tool: str
    arguments: str
    expires_at: datetime | None
    # The id that the model gave the call in its message.
    call_id: str = ""


def list_waiting_calls(turn: Turn) -> list[WaitingCall]:
    """Return the calls of a turn that wait for a decision.

    Runs no query if the turn does not wait.
    """
    if not turn.awaits_consent:
        return []
    step = ToolStep.objects.filter(turn=turn, step=turn.step).first()
    parts = parse_parts(step.parts) if step else ()
    asked = [part for part in parts if isinstance(part, ToolCallPart)]
    rows = ToolCall.objects.filter(turn=turn, consent=Consent.WAITING).order_by("place")
    return [
        WaitingCall(
            row.pk,
            row.server,
            row.tool,
            asked[row.place].arguments if row.place < len(asked) else "",
            row.asked_until,
            asked[row.place].call_id if row.place < len(asked) else "",
        )
        for row in rows
    ]
