"""Sessions after a sign-in: how long they hold, how fresh they are, how they end."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.models import Session
from django.db import transaction

from chats.ground import secrets
from chats.ground.refusals import Refusal
from contextpolicy import ledger

RECENTLY = timedelta(minutes=15)
# A session's last use is noted at most so often: each note costs a write.
NOTED_EVERY = timedelta(minutes=5)

SIGNED_IN_AT = "signed_in_at"
SEEN_AT = "seen_at"


class ReauthenticationRequired(Refusal):
    """The session is older than what this action asks for."""

    code = "reauthentication_required"
    status = 403
    sentence = "This needs a fresh sign-in. Sign in again, then repeat it within 15 minutes."


@dataclass(frozen=True, slots=True)
class SignedIn:
    """One session of a person; `id` names it on a page without giving it away."""

    id: str
    signed_in_at: datetime | None
    seen_at: datetime | None
    expires_at: datetime


def begin_session(*, session: SessionBase, now: datetime) -> None:
    """Set the end of a session that a sign-in just began: no use of it moves that end."""
    session.set_expiry(now + timedelta(seconds=settings.SESSION_COOKIE_AGE))
    session[SIGNED_IN_AT] = session[SEEN_AT] = now.isoformat()


def may_go_on(*, session: SessionBase, is_staff: bool, now: datetime) -> bool:
    """Tell whether the session still holds; staff's ends after `STAFF_IDLE_SECONDS` idle."""
    if SEEN_AT not in session:
        session[SEEN_AT] = now.isoformat()
    idle = now - datetime.fromisoformat(session[SEEN_AT])
    if is_staff and idle > timedelta(seconds=settings.STAFF_IDLE_SECONDS):
        return False
    if idle > NOTED_EVERY:
        session[SEEN_AT] = now.isoformat()
    return True


@transaction.atomic
def note_logout(*, user: AbstractBaseUser, now: datetime) -> None:
    """Write down that the person ended their session."""
    ledger.record("logout.succeeded", actor=f"user:{user.pk}", now=now, data={"user": user.pk})


def require_recent(*, session: SessionBase, now: datetime) -> None:
    """Raise `ReauthenticationRequired` unless the person signed in within the last 15 minutes."""
    if not reauthenticated_recently(session=session, now=now):
        raise ReauthenticationRequired


def reauthenticated_recently(*, session: SessionBase, now: datetime) -> bool:
    """Tell whether the person proved who they are within the last 15 minutes."""
    signed_in_at = session.get(SIGNED_IN_AT)
    if not signed_in_at:
        return False
    return now - datetime.fromisoformat(signed_in_at) <= RECENTLY


def confirm_session(*, session: SessionBase, now: datetime) -> None:
    """Count the session as fresh again: the person has just proved who they are."""
    session[SIGNED_IN_AT] = now.isoformat()


def sessions_of(*, user: AbstractBaseUser, now: datetime) -> list[SignedIn]:
    """Return the person's sessions, last used first."""
    found = [signed_in(row) for row in rows_of(user=user, now=now)]
    return sorted(found, key=lambda entry: entry.seen_at or entry.expires_at, reverse=True)


def signed_in(row: Session) -> SignedIn:
    """Return a stored session as a page may show it."""
    data = row.get_decoded()
    times = [data.get(name) for name in (SIGNED_IN_AT, SEEN_AT)]
    signed_in_at, seen_at = (datetime.fromisoformat(text) if text else None for text in times)
    return SignedIn(
        id=session_id(row.session_key),
        signed_in_at=signed_in_at,
        seen_at=seen_at,
        expires_at=row.expire_date,
    )


def session_id(key: str) -> str:
    """Name a session for pages and addresses: its key would be the session itself."""
    return secrets.hash_token(key)[:32]


def rows_of(*, user: AbstractBaseUser, now: datetime) -> Iterator[Session]:
    """Yield the person's stored sessions.

    Reads all that live, because the rows do not say whose they are.
    """
    for row in Session.objects.filter(expire_date__gt=now).iterator():
        if row.get_decoded().get(SESSION_KEY) == str(user.pk):
            yield row


@transaction.atomic
def revoke_session(*, user: AbstractBaseUser, session: str, now: datetime) -> bool:
    """End the person's session with this id, as a logout there would; False when there is none."""
    keys = [row.session_key for row in rows_of(user=user, now=now)]
    ended = [key for key in keys if session_id(key) == session]
    if not Session.objects.filter(session_key__in=ended).delete()[0]:
        return False
    note_logout(user=user, now=now)
    return True


def drop_sessions(*, user: AbstractBaseUser, keep: str | None, now: datetime) -> int:
    """End every session of the person but the one with the key `keep`; return how many ended."""
    keys = [row.session_key for row in rows_of(user=user, now=now) if row.session_key != keep]
    return Session.objects.filter(session_key__in=keys).delete()[0]
