"""Says which chats are to be erased by now.

The only place that says so. What keeps a chat longer has to be excluded here and refused in
`actions.erasure`.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q, QuerySet

from chats.models import Chat
from chats.record import holds


def expired(*, now: datetime) -> QuerySet[Chat]:
    """Return deleted chats whose time is over, and temporary ones that nobody wrote in for long.

    Also those that a program opened and that never went on, unless a person took one out of the
    archived chats or wrote in it. Not what a legal hold covers.
    """
    unused = now - timedelta(hours=settings.TEMPORARY_CHAT_HOURS)
    is_deleted = Q(deleted_at__isnull=False)
    silent = now - timedelta(hours=settings.GATEWAY_PROVISIONAL_HOURS)
    is_provisional = Q(archived=True, updated_at__lte=silent)
    rows = Chat.objects.filter(
        Q(erase_at__lte=now) & (is_deleted | is_provisional)
        | Q(temporary=True, updated_at__lte=unused)
    )
    return holds.free(rows, now=now)
