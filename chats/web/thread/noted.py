"""The line under a reply that says what was noted of the person."""

import uuid
from collections.abc import Iterable, Mapping

from chats.memory.told import told_in
from chats.models import Message, Preference, PreferenceEvidence


def noted_under(
    messages: Iterable[Message], *, owner_id: int
) -> Mapping[uuid.UUID, list[Preference]]:
    """Return the preferences that the person's messages brought, by the reply that ended the turn.

    The database is asked only where a message may have brought one.
    """
    listed = list(messages)
    telling = [
        row.pk
        for row in listed
        if row.role == Message.Role.USER and not row.speaker and row.turn_id and told_in(row.text)
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
