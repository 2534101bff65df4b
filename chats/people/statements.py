"""The prepared query that finds an API key."""

from typing import Any

from django.db.models import QuerySet

from chats.models import ApiKey
from speed import prepared


def select_active_keys(*, now: Any) -> QuerySet[ApiKey]:
    """Return the usable keys: not revoked, not expired, and with an active owner."""
    return ApiKey.objects.filter(revoked_at=None, expires_at__gt=now, owner__is_active=True)


LIVING_KEY = prepared.Select(
    lambda at: select_active_keys(now=at("now")).select_related("owner").filter(key_hash=at("hash"))
)
