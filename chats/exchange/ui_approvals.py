"""Consent to tool calls over the UI message protocol: approvals from clients, and denials.

A call that waits for consent is a tool part in the state `approval-requested`. The client answers
with the same message, whose parts are in the state `approval-responded`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from chats.ground.refusals import NotFound
from chats.models import Chat, ToolCall, Turn
from chats.record import access
from chats.tool_servers.results import find_denial
from chats.turns.consents import ConsentIsOver, Decision, decide_tool_call, parse_call_id

# The reason of an approval that allows all later calls of the tool in the chat.
FOR_THE_CHAT = "chat"


@dataclass(frozen=True, slots=True)
class ToolApproval:
    """A user's answer to one request for consent. `id` is the id of the tool call."""

    id: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class KnownParts:
    """The parts of a reply that a client has: all steps up to `step`, without results.

    `step` is 0 if the client has no parts. `calls` has the ids of the tool calls in that
    step.
    """

    step: int = 0
    calls: frozenset[str] = frozenset()


NOTHING_KNOWN = KnownParts()


def parse_approvals(parts: Sequence[Any]) -> list[ToolApproval]:
    """Return the consent answers in the parts of a UI message."""
    found = []
    for part in parts:
        given = part.get("approval") if isinstance(part, Mapping) else None
        if not isinstance(given, Mapping) or part.get("state") != "approval-responded":
            continue
        decision: Decision = "deny"
        if given.get("approved") is True:
            decision = "chat" if given.get("reason") == FOR_THE_CHAT else "once"
        found.append(ToolApproval(str(given.get("id")), decision))
    return found


def decide_approvals(
    approvals: Sequence[ToolApproval],
    *,
    chat: Chat,
    calls: frozenset[str],
    user: User,
    now: datetime,
) -> tuple[Turn, KnownParts]:
    """Store a user's answers. Return their turn, with the parts that the client has.

    An answer that was given before, or came too late, changes nothing. `calls` has the ids of the
    calls in the client's message. Raises `NotFound`.
    """
    ids = [parse_call_id(each.id) for each in approvals]
    asked = ToolCall.objects.filter(pk__in=ids, turn__branch__chat=chat).order_by("-step").first()
    if asked is None:
        raise NotFound
    turn = access.get_turn(user=user, chat_id=chat.pk, turn_id=asked.turn_id)
    for call_id, approval in zip(ids, approvals, strict=True):
        with suppress(ConsentIsOver):
            decide_tool_call(
                user=user, turn=turn, call_id=call_id, decision=approval.decision, now=now
            )
    return turn, KnownParts(asked.step, calls)


def mark_denied_calls(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return UI message parts, with the state `output-denied` for calls without consent."""
    return [mark_denied_call(part) for part in parts]


def mark_denied_call(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part. In a denied call, the approval replaces the text written for the model."""
    code = find_denial(part["output"]) if isinstance(part.get("output"), str) else ""
    if not code:
        return dict(part)
    rest = {name: value for name, value in part.items() if name not in ("output", "state")}
    reason = {} if code == "denied" else {"reason": code}
    approval = {"id": part["toolCallId"], "approved": False, **reason}
    return {**rest, "state": "output-denied", "approval": approval}
