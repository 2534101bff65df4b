"""Steps that call tools on tool servers.

A step is stored before its first call, and resumed if its worker is lost. Each function is one
short transaction. The calls themselves run between these transactions.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from chats.ground.secrets import SecretUnreadable
from chats.models import ToolCall, ToolConsent, ToolStep, Turn
from chats.tool_servers.client import ServerAccess
from chats.tool_servers.results import format_failure
from chats.tool_servers.servers import build_server_access
from chats.turns.events import record_attempt_end
from chats.turns.lease import RELEASED, Lease, lock_held_turn, update_held_turn
from chats.turns.result_images import ResultImage, load_step_images, store_step_images
from contextpolicy import ledger
from contextpolicy.engine.messages.messages import ToolCallPart
from contextpolicy.models import AuditEvent, ToolDefinition
from contextpolicy.tool_servers import load_allowed_tools

WORKER = "worker"
# The code of a turn and of a call whose worker ended before it.
LOST_CODE = "worker_lost"
Outcome, Consent = ToolCall.Outcome, ToolCall.Consent
# Reasons why a call without valid consent is not made, by the state of its consent.
CONSENT_CODES: Mapping[str, str] = {
    Consent.DENIED: "denied",
    Consent.EXPIRED: "consent_expired",
    Consent.ALLOWED: "tool_definition_changed",
}


@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A call to make, or one that already has its result.

    `content` and `images` are the result of a call that needs no request to the server; `access`
    is then None.
    """

    pk: int
    server: str
    tool: str
    content: str | None = None
    images: Sequence[ResultImage] = ()
    access: ServerAccess | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""


@dataclass(frozen=True, slots=True)
class CallEnding:
    """The outcome of a call, its error code, text and images, and its size and duration."""

    outcome: str
    content: str
    code: str = ""
    result_bytes: int = 0
    milliseconds: int = 0
    images: Sequence[ResultImage] = ()


@transaction.atomic
def open_tool_step(
    *,
    lease: Lease,
    turn: Turn,
    parts: Sequence[Mapping[str, Any]],
    receipt_id: uuid.UUID,
    usage: Mapping[str, int],
    body_sha256: str,
    first_token_at: datetime | None,
) -> None:
    """Store the reply of a step whose tools have not run yet. Raises `LeaseLost`."""
    lock_held_turn(lease)
    _, is_new = ToolStep.objects.get_or_create(
        turn=turn,
        step=turn.step,
        defaults={
            "parts": list(parts),
            "receipt_id": receipt_id,
            "usage": dict(usage),
            "body_sha256": body_sha256,
            "first_token_at": first_token_at,
        },
    )
    if is_new:
        # An erasure deleted the reply of an earlier attempt. The consent to its calls is deleted
        # too.
        ToolCall.objects.filter(turn=turn, step=turn.step).delete()


def find_tool_step(turn: Turn) -> ToolStep | None:
    """Return the reply that the turn's current step stored before its tools ran.

    Returns None if there is none.
    """
    return ToolStep.objects.filter(turn=turn, step=turn.step).first()


def delete_tool_steps(turn: Turn) -> None:
    """Delete the stored replies and the result texts of a turn, in the caller's transaction.

    The calls' rows are kept, but without the text of their results.
    """
    ToolStep.objects.filter(turn=turn).delete()
    ToolCall.objects.filter(turn=turn).exclude(content="").update(content="")


def close_tool_steps(turn: Turn, *, now: datetime, code: str = LOST_CODE) -> None:
    """Delete the texts of a turn's tool steps, and end the calls that have not ended.

    The ends are recorded in the chat's ledger, whose head is locked after branches and memory.
    `code`: why a call that this attempt started did not end.
    """
    delete_tool_steps(turn)
    unended = ToolCall.objects.filter(turn=turn, outcome=Outcome.OPEN)
    for row in unended.order_by("step", "place"):
        end_open_call(row, turn=turn, now=now, code=code)


def end_open_call(row: ToolCall, *, turn: Turn, now: datetime, code: str) -> None:
    """End a call that is still open when its turn ends.

    A call that was not started is refused, even if it waits for consent. The outcome of a call that
    was started is unknown.
    """
    if row.attempt:
        code = code if row.attempt == turn.attempt else LOST_CODE
        ending = CallEnding(Outcome.UNKNOWN, "", code)
    else:
        ending = CallEnding(Outcome.REFUSED, "", "stopped")
        ToolCall.objects.filter(pk=row.pk, consent=Consent.WAITING).update(consent=Consent.DENIED)
    store_call_ending(row, turn=turn, ending=ending, now=now)


@transaction.atomic
def begin_tool_call(
    *,
    lease: Lease,
    turn: Turn,
    place: int,
    call: ToolCallPart,
    allowed: Sequence[str],
    now: datetime,
) -> ReadyCall:
    """Record that a call starts, and return the data for it. Raises `LeaseLost`.

    If an earlier attempt started the call, it is unknown whether it took effect. The call is then
    repeated only if its tool is idempotent. Safe to repeat within one attempt.
    """
    lock_held_turn(lease)
    row = ToolCall.objects.filter(turn=turn, step=turn.step, place=place).first()
    if row is not None and row.outcome != Outcome.OPEN:
        images = load_step_images(turn, call_id=call.call_id)
        return ReadyCall(row.pk, row.server, row.tool, content=row.content, images=images)
    tool = find_called_tool(call.name, allowed=allowed)
    if row is None:
        row = create_tool_call(turn, place=place, call=call, tool=tool, now=now)
    elif row.attempt == 0:
        ToolCall.objects.filter(pk=row.pk).update(attempt=turn.attempt, started_at=now)
    elif row.attempt != turn.attempt and (tool is None or not tool.is_idempotent):
        return end_without_call(row, turn=turn, code=LOST_CODE, is_unknown=True, now=now)
    else:
        ToolCall.objects.filter(pk=row.pk).update(attempt=turn.attempt, started_at=now)
    return prepare_tool_call(row, turn=turn, call=call, tool=tool, now=now)


def find_called_tool(name: str, *, allowed: Sequence[str]) -> ToolDefinition | None:
    """Return the approved tool that prompts list under this name; None if it is not allowed."""
    return next((row for row in load_allowed_tools(allowed) if row.wire_name == name), None)


def create_tool_call(
    turn: Turn, *, place: int, call: ToolCallPart, tool: ToolDefinition | None, now: datetime
) -> ToolCall:
    """Store a new call. An unknown tool is stored under the name that the model used."""
    server, _, name = call.name.partition("__")
    return ToolCall.objects.create(
        turn=turn,
        step=turn.step,
        place=place,
        attempt=turn.attempt,
        server=tool.server.slug if tool else server[:30],
        tool=tool.name if tool else name[:200],
        argument_bytes=len(call.arguments.encode()),
        started_at=now,
    )


def prepare_tool_call(
    row: ToolCall, *, turn: Turn, call: ToolCallPart, tool: ToolDefinition | None, now: datetime
) -> ReadyCall:
    """Return the call with access to its server.

    A call that is not made is stored as ended, and returned with the reason as its content.
    """
    arguments = parse_arguments(call.arguments)
    made = ToolCall.objects.filter(turn=turn).exclude(outcome=Outcome.REFUSED).count()
    code = ""
    if tool is None:
        code = "not_allowed"
    elif not has_consent(row, tool=tool, chat_id=turn.branch.chat_id):
        code = CONSENT_CODES.get(row.consent, "not_allowed")
    elif arguments is None:
        code = "arguments_invalid"
    elif made > settings.TOOL_CALLS_PER_TURN:
        code = "too_many_calls"
    if tool is None or arguments is None or code:
        return end_without_call(row, turn=turn, code=code, is_unknown=False, now=now)
    try:
        access = build_server_access(tool.server)
    except SecretUnreadable as refusal:
        return end_without_call(row, turn=turn, code=refusal.code, is_unknown=False, now=now)
    return ReadyCall(
        row.pk, row.server, row.tool, access=access, arguments=arguments, digest=tool.digest
    )


def has_consent(row: ToolCall, *, tool: ToolDefinition, chat_id: uuid.UUID) -> bool:
    """Return True if a call needs no consent, or if the tool's current definition was allowed."""
    if not tool.asks:
        return True
    if row.consent == Consent.NONE:
        return is_allowed_in_chat(tool, chat_id=chat_id)
    return row.consent == Consent.ALLOWED and row.digest == tool.digest


def is_allowed_in_chat(tool: ToolDefinition, *, chat_id: uuid.UUID) -> bool:
    """Return True if the user allowed the tool's current definition for the whole chat."""
    given = ToolConsent.objects.filter(
        chat=chat_id, server=tool.server.slug, tool=tool.name, digest=tool.digest
    )
    return given.exists()


def list_asking_tools(chat_id: uuid.UUID, *, allowed: Sequence[str]) -> frozenset[str]:
    """Return the names, as in prompts, of the allowed tools that need consent in a chat."""
    return frozenset(
        row.wire_name
        for row in load_allowed_tools(allowed)
        if row.asks and not is_allowed_in_chat(row, chat_id=chat_id)
    )


@transaction.atomic
def request_consents(
    *,
    lease: Lease,
    turn: Turn,
    calls: Mapping[int, ToolCallPart],
    text: str,
    allowed: Sequence[str],
    now: datetime,
) -> bool:
    """Ask the user about calls of tools that require consent. Raises `LeaseLost`.

    `text` is the reply so far. Returns True if the turn now waits for a decision. The turn
    then has no worker, and is resumed after the last decision.
    """
    lock_held_turn(lease)
    until = now + timedelta(hours=settings.TOOL_CONSENT_HOURS)
    stored = {row.place: row for row in ToolCall.objects.filter(turn=turn, step=turn.step)}
    waiting = any(row.consent == Consent.WAITING for row in stored.values())
    for place, call in calls.items():
        tool = find_called_tool(call.name, allowed=allowed)
        if place in stored or tool is None or not tool.asks:
            continue
        if is_allowed_in_chat(tool, chat_id=turn.branch.chat_id):
            continue
        row = create_tool_call(turn, place=place, call=call, tool=tool, now=now)
        row.attempt, row.consent = 0, Consent.WAITING
        row.digest, row.asked_until = tool.digest, until
        row.save(update_fields=["attempt", "consent", "digest", "asked_until"])
        record_consent_event("tool.consent_asked", row, turn=turn, actor=WORKER, now=now)
        waiting = True
    if waiting:
        update_held_turn(
            lease,
            status=Turn.Status.QUEUED,
            awaits_consent=True,
            queued_at=now,
            # Shown while the turn waits. The pages read the row again.
            partial_text=text,
            partial_reasoning="",
            begun_anew=turn.begun_anew + 1,
            **RELEASED,
        )
        # The attempt ends here: its calls must be in the ledger before another one begins.
        record_attempt_end(turn, kind="turn.waiting", actor=WORKER, now=now)
    return waiting


def ensure_waiting_event(turn: Turn, *, now: datetime) -> None:
    """Record the end of the attempt of a waiting turn if a worker of an older version did not.

    The caller holds the lock of the turn.
    """
    recorded = AuditEvent.objects.filter(
        turn_id=turn.pk, type="turn.waiting", data__attempt=turn.attempt
    )
    if not recorded.exists():
        record_attempt_end(turn, kind="turn.waiting", actor=WORKER, now=now)


def record_consent_event(
    kind: str, row: ToolCall, *, turn: Turn, actor: str, now: datetime, **more: str
) -> None:
    """Record a consent event of a call, with the names of its server and its tool."""
    ledger.record_event(
        kind,
        actor=actor,
        now=now,
        chat_id=turn.branch.chat_id,
        turn_id=turn.pk,
        data={"call": row.pk, "server": row.server, "tool": row.tool, **more},
    )


def parse_arguments(arguments: str) -> dict[str, Any] | None:
    """Parse the JSON arguments of a call; empty text means no arguments.

    None if the text is not a JSON object.
    """
    try:
        given = json.loads(arguments or "{}")
        json.dumps(given, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def end_without_call(
    row: ToolCall, *, turn: Turn, code: str, is_unknown: bool, now: datetime
) -> ReadyCall:
    """Store the outcome of a call that is not made. Return it with the text for the model."""
    outcome = Outcome.UNKNOWN if is_unknown else Outcome.REFUSED
    content = format_failure(code, is_unknown=is_unknown)
    store_call_ending(row, turn=turn, ending=CallEnding(outcome, content, code), now=now)
    return ReadyCall(row.pk, row.server, row.tool, content=content)


@transaction.atomic
def end_tool_call(
    *,
    lease: Lease,
    turn: Turn,
    ready: ReadyCall,
    call_id: str,
    ending: CallEnding,
    now: datetime,
) -> None:
    """Store the end of a call, and record it in the ledger. Raises `LeaseLost`.

    Does nothing if the call has already ended.
    """
    lock_held_turn(lease)
    row = ToolCall.objects.get(pk=ready.pk)
    if row.outcome == Outcome.OPEN:
        store_step_images(turn, call_id=call_id, images=ending.images)
        store_call_ending(row, turn=turn, ending=ending, now=now)


def store_call_ending(row: ToolCall, *, turn: Turn, ending: CallEnding, now: datetime) -> None:
    """Store the end of a call and record it: names, sizes, duration and outcome, never text."""
    row.outcome, row.code, row.content = ending.outcome, ending.code, ending.content
    row.result_bytes, row.milliseconds = ending.result_bytes, ending.milliseconds
    row.save(update_fields=["outcome", "code", "content", "result_bytes", "milliseconds"])
    ledger.record_event(
        "tool.called",
        actor=WORKER,
        now=now,
        chat_id=turn.branch.chat_id,
        turn_id=turn.pk,
        data={
            "server": row.server,
            "tool": row.tool,
            "outcome": row.outcome,
            **({"code": row.code} if row.code else {}),
            "argument_bytes": row.argument_bytes,
            "result_bytes": row.result_bytes,
            "milliseconds": row.milliseconds,
            "attempt": turn.attempt,
            "step": turn.step,
        },
    )
