"""The statement by which a key is found."""

from typing import Any

from django.db.models import QuerySet

from chats.models import ApiKey
from speed import prepared


def living_keys(*, now: Any) -> QuerySet[ApiKey]:
    """Return the keys that open something: not revoked, not expired, and their owner is active."""
    return ApiKey.objects.filter(revoked_at=None, expires_at__gt=now, owner__is_active=True)


LIVING_KEY = prepared.Select(
    lambda at: living_keys(now=at("now")).select_related("owner").filter(key_hash=at("hash"))
)
