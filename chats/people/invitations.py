"""Invitations: an account with a role, and a link for setting its password.

An administrator sends the link to the user. It works once, for a week. Renewing an invitation
creates a new link and disables the old one.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils.functional import lazy
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy, gettext_noop

from chats.ground import secrets
from chats.ground.refusals import NotFound, Refusal
from chats.models import LoginLink
from chats.people import signin
from chats.people.signin import LinkInvalid, create_link
from contextpolicy import roles

LIFETIME = timedelta(days=7)
# Maximum number of invitations in the list.
MOST_SHOWN = 200


class InvitationRefused(Refusal):
    """The user name is invalid or taken. The error message gives the reason."""

    code = "invitation_refused"
    status = 422
    sentence = "{reason}"
    param = "username"


class InvitationOver(LinkInvalid):
    """The invitation was used, was replaced or has expired, or its account is deactivated."""

    sentence = gettext_noop(
        "This invitation was used, was replaced or has expired. Ask the administrator who sent it "
        "for a new one. If you have already set a password, sign in with it."
    )


@dataclass(frozen=True, slots=True)
class PendingInvitation:
    """An invited account without a password. `status`: `pending`, `expired` or `used`."""

    user: User
    expires_at: datetime
    status: str


@transaction.atomic
def invite_user(
    *, username: str, groups: Collection[Group], actor: str, now: datetime
) -> tuple[User, str]:
    """Create an account without a password. Return it with the token of its invitation link.

    Raises `InvitationRefused`, and the errors of `roles.change_roles`.
    """
    person = User(username=User.normalize_username(username.strip()))
    person.set_unusable_password()
    try:
        roles.check_username_free(person.username)
    except roles.NameInvisible as error:
        words = gettext_lazy("The name has no visible character. Choose another one.")
        raise InvitationRefused(reason=words) from error
    except roles.UsernameTaken as error:
        words = gettext_lazy("The name “{taken}” is taken (case is ignored). Choose another name.")
        raise InvitationRefused(reason=format_lazy(words, taken=error.name)) from error
    try:
        person.full_clean(exclude=["password"])
    except ValidationError as error:
        raise InvitationRefused(reason=lazy_words(error)) from error
    try:
        with transaction.atomic():
            roles.save_person(person=person, changed={"username"}, actor=actor, now=now)
    except IntegrityError as error:
        reason = gettext_lazy("This name is taken. Choose another name.")
        raise InvitationRefused(reason=reason) from error
    roles.change_roles(person=person, groups=groups, actor=actor, now=now)
    return person, link_for(person, actor=actor, now=now)


def join_error_messages(error: ValidationError) -> str:
    """Return the sentences of a validation error, joined, in the active language."""
    return " ".join(error.messages)


lazy_words = lazy(join_error_messages, str)


@transaction.atomic
def renew_invitation(*, user_id: int, actor: str, now: datetime) -> tuple[User, str]:
    """Create a new invitation link. Return the user and the token; older links stop working.

    Raises `NotFound` if the user was not invited, is deactivated or a superuser, or already has
    a password.
    """
    person = select_passwordless_users().select_for_update(of=("self",)).filter(pk=user_id).first()
    if person is None:
        raise NotFound
    signin.end_links(person, now=now)
    return person, link_for(person, actor=actor, now=now)


def select_passwordless_users() -> QuerySet[User]:
    """Return the active invited people without a usable password, who need a sign-in link.

    Superusers are left out, because the creator of a link could sign in with it.
    """
    invited = LoginLink.objects.filter(invitation=True).values("user")
    return User.objects.filter(
        pk__in=invited,
        is_active=True,
        is_superuser=False,
        password__startswith=UNUSABLE_PASSWORD_PREFIX,
    )


def link_for(person: User, *, actor: str, now: datetime) -> str:
    """Create a one-time sign-in link for an invited user and return its token.

    The ledger records it.
    """
    return create_link(user=person, now=now, actor=actor, lifetime=LIFETIME, invitation=True)


def list_pending_invitations(*, now: datetime) -> list[PendingInvitation]:
    """Return the invitations of people without a password, the newest first."""
    people = select_passwordless_users().order_by("-pk")[:MOST_SHOWN]
    links = LoginLink.objects.filter(invitation=True, user__in=[row.pk for row in people])
    newest = {link.user_id: link for link in links.order_by("pk")}
    return [
        PendingInvitation(
            row, newest[row.pk].expires_at, get_invitation_status(newest[row.pk], now=now)
        )
        for row in people
    ]


def get_invitation_status(link: LoginLink, *, now: datetime) -> str:
    """Return `pending`, `expired` or `used`, by the newest link of the invitation."""
    if link.used_at is not None:
        return "used"
    return "expired" if link.expires_at <= now else "pending"


def is_invitation(token: str, *, now: datetime) -> bool:
    """Return True if a token belongs to an unexpired invitation, even a used one."""
    return select_invitation(token).filter(expires_at__gt=now).exists()


def is_over_invitation(token: str, *, now: datetime) -> bool:
    """Return True if a token belongs to an invitation that was used, was replaced or has expired.

    An invitation of a deactivated account counts as over, too.
    """
    over = Q(expires_at__lte=now) | Q(used_at__isnull=False) | Q(user__is_active=False)
    return select_invitation(token).filter(over).exists()


def select_invitation(token: str) -> QuerySet[LoginLink]:
    return LoginLink.objects.filter(token_hash=secrets.hash_token(token), invitation=True)
