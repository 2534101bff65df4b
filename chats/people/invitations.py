"""Invitations: an account with its role, and a link with which the person sets a password.

An administrator passes the link on. It works once and for a week; a renewed invitation has a new
link, and the old one no longer works.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from chats.ground import secrets
from chats.ground.refusals import NotFound, Refusal
from chats.models import LoginLink
from chats.people.signin import create_link
from contextpolicy import roles

LIFETIME = timedelta(days=7)
# The list shows the newest invitations up to this number.
MOST_SHOWN = 200


class InvitationRefused(Refusal):
    """The name cannot be used for a new account."""

    code = "invitation_refused"
    status = 422
    sentence = "{reason}"
    param = "username"


@dataclass(frozen=True, slots=True)
class PendingInvitation:
    """An invited account without a password. `status`: `pending`, `expired` or `used`."""

    user: User
    expires_at: datetime
    status: str


@transaction.atomic
def invite(
    *, username: str, groups: Collection[Group], actor: str, now: datetime
) -> tuple[User, str]:
    """Create an account without a password and return it with the token of its link.

    Raises `InvitationRefused`, and what `roles.change_roles` raises.
    """
    person = User(username=username.strip())
    person.set_unusable_password()
    try:
        person.full_clean(exclude=["password"])
    except ValidationError as error:
        raise InvitationRefused(reason=" ".join(error.messages)) from error
    try:
        with transaction.atomic():
            roles.save_person(person=person, changed={"username"}, actor=actor, now=now)
    except IntegrityError as error:
        raise InvitationRefused(reason="This name is taken. Choose another one.") from error
    roles.change_roles(person=person, groups=groups, actor=actor, now=now)
    return person, link_for(person, actor=actor, now=now)


@transaction.atomic
def renew(*, user_id: int, actor: str, now: datetime) -> tuple[User, str]:
    """Return a person with the token of a new link; the earlier links stop working.

    Raises `NotFound` if the person was not invited or has a password.
    """
    person = without_password().select_for_update(of=("self",)).filter(pk=user_id).first()
    if person is None:
        raise NotFound
    LoginLink.objects.filter(user=person, used_at=None).update(used_at=now)
    return person, link_for(person, actor=actor, now=now)


def without_password() -> QuerySet[User]:
    """Return the invited people who have no password yet."""
    invited = LoginLink.objects.filter(invitation=True).values("user")
    return User.objects.filter(
        pk__in=invited, is_active=True, password__startswith=UNUSABLE_PASSWORD_PREFIX
    )


def link_for(person: User, *, actor: str, now: datetime) -> str:
    """Create the link of an invitation and return its token."""
    return create_link(user=person, now=now, actor=actor, lifetime=LIFETIME, invitation=True)


def pending(*, now: datetime) -> list[PendingInvitation]:
    """Return the invitations of people without a password, the newest first."""
    people = without_password().order_by("-pk")[:MOST_SHOWN]
    links = LoginLink.objects.filter(invitation=True, user__in=[row.pk for row in people])
    newest = {link.user_id: link for link in links.order_by("pk")}
    return [
        PendingInvitation(row, newest[row.pk].expires_at, status_of(newest[row.pk], now=now))
        for row in people
    ]


def status_of(link: LoginLink, *, now: datetime) -> str:
    """Return the status of an invitation by its newest link."""
    if link.used_at is not None:
        return "used"
    return "expired" if link.expires_at <= now else "pending"


def is_invitation(token: str) -> bool:
    """Return True if a token belongs to the link of an invitation."""
    return LoginLink.objects.filter(token_hash=secrets.hash_token(token), invitation=True).exists()
