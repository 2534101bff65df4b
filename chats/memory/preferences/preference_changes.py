"""Records changes of a user's memory in the audit log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from chats.models import (
    Message,
    Preference,
)
from contextpolicy import ledger


def build_preference_data(row: Preference) -> dict[str, Any]:
    """Return the ledger data of a preference, without its text."""
    return {
        "preference": str(row.pk),
        "slot": row.slot,
        "kind": row.kind,
        "status": row.status,
    }


def record_change(
    event: str,
    *,
    owner_id: int,
    now: datetime,
    data: Mapping[str, Any] | None = None,
    message: Message | None = None,
) -> None:
    """Record a change in the ledger.

    A preference from a chat is recorded in the chat's chain, others in the instance's chain.
    """
    ledger.record_event(
        event,
        actor="worker" if message else f"user:{owner_id}",
        now=now,
        chat_id=message.branch.chat_id if message else None,
        data={**(data or {}), **({"message": str(message.pk)} if message else {})},
    )


def format_change_time(at: datetime | None) -> str | None:
    """Return a time in the server's zone as ISO 8601, or None."""
    return at.astimezone(timezone.get_default_timezone()).isoformat() if at else None
