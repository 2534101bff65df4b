"""Changes accounts and passwords, and ends sessions and API keys where required."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction

from chats.people import keys, sessions, signin
from contextpolicy import ledger, roles


@dataclass(frozen=True, slots=True)
class EndedAccess:
    """The number of sessions and API keys that an account change ended."""

    sessions: int = 0
    keys: int = 0


def save_user_account(
    *, person: User, changed: Collection[str], actor: str, now: datetime
) -> EndedAccess:
    """Save an account. Return the number of ended sessions and API keys.

    Deactivating an account ends its sessions and revokes its API keys. So does activating it,
    because older versions left them valid on deactivation. Both, and a change of the superuser
    status, end its sign-in links: others may have seen them. Raises `LastOwner`.
    """
    with transaction.atomic():
        roles.save_person(person=person, changed=changed, actor=actor, now=now)
        if {"is_active", "is_superuser"} & set(changed):
            signin.end_links(person, now=now)
        if "is_active" not in changed:
            return EndedAccess()
        return EndedAccess(
            sessions=sessions.drop_sessions(user=person, keep=None, now=now),
            keys=keys.revoke_keys(owner=person, actor=actor, now=now),
        )


def change_password(
    *,
    user: User,
    old: str | None,
    new: str,
    address: str,
    session: SessionBase,
    revoke_keys: bool,
    now: datetime,
) -> None:
    """Set a user's new, already validated password.

    Revokes their API keys if requested. The old password is required if the user has one.
    A user without a password has signed in with a one-time link, which is sufficient
    proof. Setting a first password counts as a fresh sign-in. Raises `WrongPassword` and
    `LoginThrottled`.
    """
    has_one = user.has_usable_password()
    if has_one:
        signin.confirm_password(user=user, password=old or "", address=address, now=now)
    with transaction.atomic():
        user.set_password(new)
        user.save(update_fields=["password"])
        note_password(user=user, revoke_keys=revoke_keys, actor=f"user:{user.pk}", now=now)
    if not has_one:
        sessions.confirm_session(session=session, now=now)


@transaction.atomic
def note_password(*, user: User, revoke_keys: bool, actor: str, now: datetime) -> None:
    """Record that a password was set, and revoke the user's API keys if requested.

    Earlier sign-in links stop working.
    """
    signin.end_links(user, now=now)
    ledger.record_event("password.changed", actor=actor, now=now, data={"user": user.pk})
    if revoke_keys:
        keys.revoke_keys(owner=user, actor=actor, now=now)
