"""Ledger events for turns that start."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from chats.models import Chat, Message, Turn
from chats.record.message_commitments import Sealed, build_stored_data
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
