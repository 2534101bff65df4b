"""Exports a user's memory: settings, instructions and preferences."""

from collections.abc import Iterable
from typing import Any

from django.db.models import Prefetch

from chats.memory.preferences.memory_settings import get_memory_settings
from chats.memory.preferences.preference_changes import format_change_time
from chats.memory.preferences.preferences import (
    list_preferences,
    select_kept_preferences,
    select_visible_preferences,
)
from chats.models import Preference, PreferenceEvidence


def export_memory(owner_id: int) -> dict[str, Any]:
    """Return the memory of a user as JSON data, without preferences from deleted chats only."""
    return build_memory_data(owner_id, rows=list_preferences(owner_id))


def export_all_memory(owner_id: int, *, has_deleted: bool = True) -> dict[str, Any]:
    """Return all memory of a user as JSON data. The message texts are not loaded.

    `has_deleted`: include preferences whose only sources are in deleted chats that can be restored.
    """
    source = PreferenceEvidence.objects.select_related("message__branch").only(
        "preference", "start", "end", "message__branch__chat"
    )
    select = select_kept_preferences if has_deleted else select_visible_preferences
    rows = select(owner_id).order_by("learned_at", "pk")
    rows = rows.prefetch_related(Prefetch("evidence", source.order_by("pk")))
    return build_memory_data(owner_id, rows=rows.iterator(chunk_size=50))


def build_memory_data(owner_id: int, *, rows: Iterable[Preference]) -> dict[str, Any]:
    """Return a user's memory settings and these preferences as JSON data."""
    settings = get_memory_settings(owner_id)
    return {
        "instructions": settings.instructions,
        "consented_at": format_change_time(settings.consented_at),
        "paused": settings.paused,
        "inferring_since": format_change_time(settings.inferring_since),
        "preferences": [serialize_preference(row) for row in rows],
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
