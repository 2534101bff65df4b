"""Exports a person's memory: settings, instructions and preferences."""

from typing import Any

from chats.memory.preferences.memory_settings import get_memory_settings
from chats.memory.preferences.preference_changes import format_change_time
from chats.memory.preferences.preferences import list_preferences
from chats.models import Preference


def export_memory(owner_id: int) -> dict[str, Any]:
    """Return all memory of a person as JSON data."""
    settings = get_memory_settings(owner_id)
    return {
        "instructions": settings.instructions,
        "consented_at": format_change_time(settings.consented_at),
        "paused": settings.paused,
        "inferring_since": format_change_time(settings.inferring_since),
        "preferences": [serialize_preference(row) for row in list_preferences(owner_id)],
    }


def serialize_preference(row: Preference) -> dict[str, Any]:
    """Return one preference with its sources as JSON data."""
    return {
        "id": str(row.pk),
        "slot": row.slot,
        "text": row.text,
        "kind": row.kind,
        "status": row.status,
        "confidence": row.confidence,
        "folder": str(row.folder_id) if row.folder_id else None,
        "valid_from": format_change_time(row.valid_from),
        "valid_to": format_change_time(row.valid_to),
        "learned_at": format_change_time(row.learned_at),
        "evidence": [
            {
                "chat": str(item.message.branch.chat_id),
                "message": str(item.message_id),
                "start": item.start,
                "end": item.end,
            }
            for item in row.evidence.all()
        ],
    }
