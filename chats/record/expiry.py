"""Says which chats are to be erased by now.

The only place that says so. What keeps a chat longer has to be excluded here and refused in
`actions.erasure`.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q, QuerySet

from chats.models import Chat


def expired(*, now: datetime) -> QuerySet[Chat]:
    """Return deleted chats whose time is over, and temporary ones that nobody wrote in for long."""
    unused = now - timedelta(hours=settings.TEMPORARY_CHAT_HOURS)
    return Chat.objects.filter(Q(erase_at__lte=now) | Q(temporary=True, updated_at__lte=unused))
