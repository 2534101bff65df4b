"""Keeps the time zone of a person's browser with their account."""

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.sessions.backends.base import SessionBase

from chats.models import AccountSettings

# The key of the session under which it has the zone that was stored last.
STORED = "time_zone"


def remember_zone(*, user: AbstractBaseUser, session: SessionBase, zone: str) -> None:
    """Store the browser's time zone with the account, once for each change in a session."""
    if session.get(STORED) == zone:
        return
    AccountSettings.objects.update_or_create(owner_id=user.pk, defaults={"time_zone": zone})
    session[STORED] = zone
