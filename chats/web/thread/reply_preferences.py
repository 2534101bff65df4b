"""Finds the preferences to list under each reply: those saved from its turn."""

import uuid
from collections.abc import Iterable, Mapping

from chats.memory.preferences.preference_patterns import extract_statements
from chats.models import Message, Preference, PreferenceEvidence


def find_preferences_by_reply(
    messages: Iterable[Message], *, owner_id: int
) -> Mapping[uuid.UUID, list[Preference]]:
    """Return saved preferences, grouped by the final reply of the turn that saved them.

    Queries the database only if a message may contain a preference.
    """
    listed = list(messages)
    telling = [
        row.pk
        for row in listed
        if row.role == Message.Role.USER
        and not row.speaker
        and row.turn_id
        and extract_statements(row.text)
    ]
    if not telling:
        return {}
    found: dict[uuid.UUID, list[Preference]] = {}
    replies = {row.turn_id: row.pk for row in listed if row.turn and row.turn.reply_id == row.pk}
    rows = PreferenceEvidence.objects.filter(
        message__in=telling,
        preference__owner=owner_id,
        preference__kind=Preference.Kind.TOLD,
    ).exclude(preference__status=Preference.Status.SUPERSEDED)
    for row in rows.select_related("preference", "message").order_by("pk"):
        if row.message.turn_id in replies:
            found.setdefault(replies[row.message.turn_id], []).append(row.preference)
    return found
