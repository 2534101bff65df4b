"""Ledger events for turns that start, and for attempts that end without ending their turn."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from chats.models import Chat, Message, Turn
from chats.record.message_commitments import Sealed, build_stored_data
from chats.turns.step_results import build_attempt_data
from contextpolicy import ledger


def record_turn_started(
    turn: Turn,
    *,
    actor: str,
    chat: Chat,
    now: datetime,
    message: Message | None,
    stored: Sequence[Message | Sealed] = (),
    more: Mapping[str, Any] | None = None,
) -> None:
    """Record `turn.started` in the ledger: ids, sizes and commitments, never the text.

    `stored`: the messages that this transaction stored. `more`: additional fields for the event.
    """
    data: dict[str, Any] = {"turn": str(turn.pk), "model": turn.model_name, **(more or {})}
    data |= build_stored_data(stored)
    if message is not None:
        data |= {"message": str(message.pk), "characters": len(message.text)}
    if turn.round_id is not None:
        data |= {"round": str(turn.round_id), "hop": turn.hop}
    ledger.record_event(
        "turn.started", actor=actor, now=now, chat_id=chat.pk, turn_id=turn.pk, data=data
    )


def describe_reply(reply: Message | None) -> dict[str, Any]:
    """Return the fields that identify the reply in a turn's last event; empty without a reply."""
    return {"reply": str(reply.pk), "seq": reply.seq} if reply is not None else {}


def record_attempt_end(
    turn: Turn, *, kind: str, actor: str, now: datetime, more: Mapping[str, Any] | None = None
) -> None:
    """Record the end of a turn's attempt with its model calls and replies.

    `kind` is the event's type. `more`: additional fields for the event. The ledger's verification
    reports a model call that no such event contains.
    """
    ledger.record_event(
        kind,
        actor=actor,
        now=now,
        chat_id=turn.branch.chat_id,
        turn_id=turn.pk,
        data={**(more or {}), **build_attempt_data(turn)},
    )
