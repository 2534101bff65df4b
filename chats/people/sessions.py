"""Sessions after a sign-in: lifetime, re-authentication and revocation."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.ground import databases, secrets
from chats.ground.refusals import Refusal
from contextpolicy import ledger

RECENTLY = timedelta(minutes=15)
# Minimum time between two updates of a session's last use, because each is a write.
RECORDED_EVERY = timedelta(minutes=5)
# Expired sessions that one run of the due job deletes.
DELETED_AT_ONCE = 500

SIGNED_IN_AT = "signed_in_at"
SEEN_AT = "seen_at"


class ReauthenticationRequired(Refusal):
    """The last sign-in of the session was more than 15 minutes ago. Sign in again."""

    code = "reauthentication_required"
    status = 403
    sentence = gettext_noop(
        "This action needs a recent sign-in. Sign in again, then retry within 15 minutes."
    )


@dataclass(frozen=True, slots=True)
class SignedIn:
    """One session of a user. `id` identifies it on pages without revealing the session key."""

    id: str
    signed_in_at: datetime | None
    seen_at: datetime | None
    expires_at: datetime


def begin_session(*, session: SessionBase, now: datetime) -> None:
    """Set the fixed expiry of a new session, which use does not extend."""
    session.set_expiry(now + timedelta(seconds=settings.SESSION_COOKIE_AGE))
    session[SIGNED_IN_AT] = session[SEEN_AT] = now.isoformat()


def can_continue_session(*, session: SessionBase, is_staff: bool, now: datetime) -> bool:
    """Return True if the session is still valid. If so, also update its last use.

    Staff sessions end when they have been idle for `STAFF_IDLE_SECONDS`. The last use is written at
    most every five minutes.
    """
    if SEEN_AT not in session:
        session[SEEN_AT] = now.isoformat()
    idle = now - datetime.fromisoformat(session[SEEN_AT])
    if is_staff and idle > timedelta(seconds=settings.STAFF_IDLE_SECONDS):
        return False
    if idle > RECORDED_EVERY:
        note_seen(session, now=now)
    return True


def note_seen(session: SessionBase, *, now: datetime) -> None:
    """Update the session's last use. If that fails, the request continues."""
    was_changed = session.modified
    session[SEEN_AT] = now.isoformat()
    databases.write_if_possible("the use of a session", session.save)
    session.modified = was_changed


@transaction.atomic
def note_logout(*, user: AbstractBaseUser, now: datetime) -> None:
    """Record in the ledger that the user signed out."""
    ledger.record_event(
        "logout.succeeded", actor=f"user:{user.pk}", now=now, data={"user": user.pk}
    )


def require_recent(*, session: SessionBase, now: datetime) -> None:
    """Raise `ReauthenticationRequired` unless the user signed in within the last 15 minutes."""
    if not has_recent_reauthentication(session=session, now=now):
        raise ReauthenticationRequired


def has_recent_reauthentication(*, session: SessionBase, now: datetime) -> bool:
    """Return True if the user confirmed their identity within the last 15 minutes."""
    signed_in_at = session.get(SIGNED_IN_AT)
    if not signed_in_at:
        return False
    return now - datetime.fromisoformat(signed_in_at) <= RECENTLY


def confirm_session(*, session: SessionBase, now: datetime) -> None:
    """Mark the session as freshly signed in, because the user just confirmed their identity."""
    session[SIGNED_IN_AT] = now.isoformat()


def list_sessions(*, user: AbstractBaseUser, now: datetime) -> list[SignedIn]:
    found = [describe_session(row) for row in iter_stored_sessions(user=user, now=now)]
    return sorted(found, key=lambda entry: entry.seen_at or entry.expires_at, reverse=True)


def describe_session(row: Session) -> SignedIn:
    """Return a stored session as pages show it, without its key."""
    data = row.get_decoded()
    times = [data.get(name) for name in (SIGNED_IN_AT, SEEN_AT)]
    signed_in_at, seen_at = (datetime.fromisoformat(text) if text else None for text in times)
    return SignedIn(
        id=derive_session_id(row.session_key),
        signed_in_at=signed_in_at,
        seen_at=seen_at,
        expires_at=row.expire_date,
    )


def derive_session_id(key: str) -> str:
    """Return the id of a session for pages and URLs, where its key would be a credential."""
    return secrets.hash_token(key)[:32]


def iter_stored_sessions(*, user: AbstractBaseUser, now: datetime) -> Iterator[Session]:
    """Yield the user's stored sessions.

    Reads all unexpired sessions, because the rows do not store the user.
    """
    for row in Session.objects.filter(expire_date__gt=now).iterator():
        if row.get_decoded().get(SESSION_KEY) == str(user.pk):
            yield row


@transaction.atomic
def revoke_session(*, user: AbstractBaseUser, session: str, now: datetime) -> bool:
    """End the user's session with this id, as a sign-out does. Returns False if there is none."""
    keys = [row.session_key for row in iter_stored_sessions(user=user, now=now)]
    ended = [key for key in keys if derive_session_id(key) == session]
    if not Session.objects.filter(session_key__in=ended).delete()[0]:
        return False
    note_logout(user=user, now=now)
    return True


def drop_sessions(*, user: AbstractBaseUser, keep: str | None, now: datetime) -> int:
    """End the user's sessions, except the one with the key `keep`. Return the count."""
    keys = [
        row.session_key
        for row in iter_stored_sessions(user=user, now=now)
        if row.session_key != keep
    ]
    return Session.objects.filter(session_key__in=keys).delete()[0]


def delete_expired_sessions(*, now: datetime) -> int:
    """Delete the rows of expired sessions, up to `DELETED_AT_ONCE`. Return the count.

    Django deletes only the row of a session whose cookie is sent again.
    """
    expired = Session.objects.filter(expire_date__lt=now).order_by("expire_date")
    keys = list(expired.values_list("pk", flat=True)[:DELETED_AT_ONCE])
    return Session.objects.filter(pk__in=keys).delete()[0] if keys else 0
