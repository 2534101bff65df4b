"""Query parameters of the audit log."""

from rest_framework import serializers

from chats.api.core.inputs import Identifier, PageQuery
from contextpolicy import event_types
from contextpolicy.audit.search import LONGEST


class EventsQuery(PageQuery):
    """Filters for the audit events."""

    type = serializers.ChoiceField(
        choices=sorted(event_types.EVENT_TYPES),
        required=False,
        help_text="Only events of this type. Absent: all types.",
    )
    chat = Identifier(
        required=False,
        help_text="Only events of the chat with this id. Absent: all chats that you may see.",
    )
    since = serializers.DateTimeField(
        required=False, help_text="Start of the time range (ISO 8601, inclusive). Absent: no limit."
    )
    q = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=LONGEST,
        help_text=(
            "At most 20 terms of the form `key:value`, together at most 500 characters. Keys: "
            "event, actor, person, object, chat, turn, id (a chat or a turn), policy, field, at. "
            "A space means AND, a comma means OR, and a leading minus means NOT. Empty: all "
            "events."
        ),
    )
