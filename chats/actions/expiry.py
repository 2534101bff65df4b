"""Selects the chats whose retention has ended. No other module decides this.

Chats that must be kept have to be left out here and refused in `actions.erasure`.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q, QuerySet

from chats.models import Chat
from chats.record import holds


def select_expired_chats(*, now: datetime) -> QuerySet[Chat]:
    """Return the chats to erase now: expired deleted, temporary and provisional chats.

    A temporary chat expires `TEMPORARY_CHAT_HOURS` after its last change. A provisional
    chat was opened by an API client and never continued. Continuing, unarchiving or pinning it,
    and moving it to a folder, make it permanent. Chats under a legal hold are left out.
    """
    unused = now - timedelta(hours=settings.TEMPORARY_CHAT_HOURS)
    is_deleted = Q(deleted_at__isnull=False)
    silent = now - timedelta(hours=settings.GATEWAY_PROVISIONAL_HOURS)
    is_provisional = Q(archived=True, updated_at__lte=silent)
    rows = Chat.objects.filter(
        Q(erase_at__lte=now) & (is_deleted | is_provisional)
        | Q(temporary=True, updated_at__lte=unused)
    )
    return holds.exclude_held_chats(rows, now=now)
