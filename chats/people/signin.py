"""Signs people in with one-time links or passwords, and throttles failures.

Every endpoint that accepts a password, a link or a key counts its failures here. Failed attempts
are database rows, so a restart does not reset them. The ledger stores only keyed hashes of names
and addresses.
"""

import ipaddress
import math
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.models import AbstractBaseUser, Group, User
from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction
from django.db.models import QuerySet
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext_lazy, gettext_noop

from chats.ground import secrets
from chats.ground.refusals import Refusal
from chats.models import LoginFailure, LoginLink
from chats.people import sessions
from contextpolicy import ledger, roles
from contextpolicy.engine.text.names import casefold_name

ADDRESS_WINDOW = timedelta(minutes=1)
ACCOUNT_WINDOW = timedelta(minutes=5)
# Longer passwords are refused without hashing, because hashing megabytes is a denial of service.
PASSWORD_LENGTH = 4096


class LinkInvalid(Refusal):
    """The link was used, has expired or is unknown. The error message does not say which."""

    code = "login_link_invalid"
    status = 403
    sentence = gettext_noop(
        "This sign-in link was used, has expired or is unknown. Request a new one."
    )


class WrongCredentials(Refusal):
    """No active account has this name and password."""

    code = "wrong_credentials"
    status = 401
    sentence = gettext_noop("The name or the password is wrong. Check both and try again.")


class LoginThrottled(Refusal):
    """Too many failed sign-ins or invalid API keys came from this address or account.

    Wait, then try again.
    """

    code = "login_throttled"
    status = 429
    sentence = gettext_noop("Too many failed sign-ins. Try again in {seconds} s.")


class WrongPassword(Refusal):
    """The current password, required before setting a new one, is wrong."""

    code = "wrong_password"
    status = 422
    sentence = gettext_noop("Your current password is wrong. The password was not changed.")
    param = "old_password"


class NotConfirmed(Refusal):
    """The password or sign-in link that was given to confirm the identity is wrong."""

    code = "not_confirmed"
    status = 422
    sentence = gettext_noop("{proof} Nothing was changed.")


class NameTaken(Refusal):
    """The name for the first administrator belongs to a user without that role."""

    code = "name_taken"
    status = 409
    sentence = gettext_noop(
        "There is no active administrator, and the name “{username}” belongs to another user. "
        "Create an administrator: manage.py createsuperuser"
    )


# --- Links ---------------------------------------------------------------------------------------


@transaction.atomic
def create_link(
    *,
    user: AbstractBaseUser,
    now: datetime,
    actor: str = "system",
    lifetime: timedelta | None = None,
    invitation: bool = False,
) -> str:
    """Create a one-time token that signs the user in within its lifetime.

    The default lifetime is `settings.LOGIN_LINK_SECONDS`. Only a hash is stored. The token lets its
    holder sign in as the user.
    """
    token = secrets.generate_token()
    expires_at = now + (lifetime or timedelta(seconds=settings.LOGIN_LINK_SECONDS))
    LoginLink.objects.create(
        user_id=user.pk,
        token_hash=secrets.hash_token(token),
        expires_at=expires_at,
        invitation=invitation,
    )
    data = {"user": user.pk, "expires_at": expires_at.isoformat()}
    data |= {"invitation": True} if invitation else {}
    ledger.record_event("login.link_created", actor=actor, now=now, data=data)
    return token


def end_links(user: User, *, now: datetime) -> None:
    """End the unused sign-in links of a user."""
    LoginLink.objects.filter(user=user, used_at=None).update(used_at=now)


def use_link(
    *, token: str, address: str, now: datetime, only: AbstractBaseUser | None = None
) -> User:
    """Return the person whom a link signs in, and mark the link as used.

    `only`: accept only links of this user. Raises `LinkInvalid` and `LoginThrottled`.
    """
    attempt = SignInAttempt(door="link", address=address, account="", now=now)
    attempt.begin()
    with transaction.atomic():
        links = LoginLink.objects.filter(token_hash=secrets.hash_token(token), used_at=None)
        links = links.filter(user=only.pk) if only else links
        used = links.filter(expires_at__gt=now, user__is_active=True).update(used_at=now)
        if used:
            user = User.objects.get(loginlink__token_hash=secrets.hash_token(token))
            attempt.succeed(user)
            return user
    attempt.fail()
    raise LinkInvalid


# --- Passwords -----------------------------------------------------------------------------------


def check_credentials(*, username: str, password: str, address: str, now: datetime) -> User:
    """Return the active user with this name and password.

    An unknown name takes as long as a wrong password (Django hashes a dummy) and raises the same
    error. Raises `WrongCredentials` and `LoginThrottled`.
    """
    username, password = sanitise_credential(username), sanitise_credential(password)
    attempt = SignInAttempt(door="login", address=address, account=username, now=now)
    attempt.begin()
    user = None
    if len(password) <= PASSWORD_LENGTH:
        known = roles.find_person_by_name(username)
        user = authenticate(username=known.username if known else username, password=password)
    if not isinstance(user, User):
        attempt.fail()
        raise WrongCredentials
    attempt.succeed(user)
    return user


def confirm_password(*, user: User, password: str, address: str, now: datetime) -> None:
    """Raise `WrongPassword` if the password is wrong.

    Attempts count and are throttled like a sign-in.
    """
    attempt = SignInAttempt(door="login", address=address, account=user.username, now=now)
    attempt.begin()
    if len(password) > PASSWORD_LENGTH or not user.check_password(sanitise_credential(password)):
        attempt.fail()
        raise WrongPassword
    attempt.forget()


def verify_identity(
    *, user: User, password: str, link: str, address: str, session: SessionBase, now: datetime
) -> None:
    """Confirm the user's identity with their password, so that the session counts as fresh.

    A user without a password enters a new sign-in link instead, which is then used up. Raises
    `NotConfirmed` and `LoginThrottled`, and `ReauthenticationRequired` without either proof.
    """
    if not password and not link:
        raise sessions.ReauthenticationRequired
    try:
        if user.has_usable_password():
            confirm_password(user=user, password=password, address=address, now=now)
        else:
            token = link.strip().rstrip("/").rpartition("/")[2]
            use_link(token=token, address=address, now=now, only=user)
    except WrongPassword:
        raise NotConfirmed(proof=gettext_lazy("This password is wrong. Enter it again.")) from None
    except LinkInvalid:
        raise NotConfirmed(
            proof=gettext_lazy(
                "This sign-in link is not yours, was used or has expired. Request a new one."
            )
        ) from None
    sessions.confirm_session(session=session, now=now)


def sanitise_credential(text: str) -> str:
    """Replace characters that databases reject. Other strings are returned unchanged.

    A changed string matches no stored name or password.
    """
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


# --- The throttle --------------------------------------------------------------------------------


class SignInAttempt:
    """A sign-in attempt. It counts as failed from the start, so concurrent attempts see each other.

    A throttled attempt is not counted, so throttling ends with its window, after at most five
    minutes.
    """

    def __init__(self, *, door: str, address: str, account: str, now: datetime) -> None:
        # Counted per entry point: a client that repeats a revoked API key does not block sign-in
        # for others behind the same address.
        self.address = f"{door}:{address}"[:64]
        # All spellings that find the same user count together.
        name = casefold_name(account)
        self.account = compute_keyed_hash("account", name) if account else ""
        self.door = door
        self.now = now
        self.row: LoginFailure | None = None

    def begin(self) -> None:
        """Count this attempt as failed until it succeeds. Raises `LoginThrottled` at a limit."""
        self.check(already=0)
        self.row = LoginFailure.objects.create(
            address=self.address, account=self.account, at=self.now
        )
        try:
            self.check(already=1)
        except LoginThrottled:
            self.forget()
            raise

    def check(self, *, already: int) -> None:
        """Raise `LoginThrottled` if a limit is reached.

        `already`: the number of counted failures that belong to this attempt.
        """
        for rows, limit, window in self.limits():
            times = list(rows.order_by("-at").values_list("at", flat=True)[: limit + already])
            if len(times) >= limit + already:
                left = times[limit - 1 + already] + window - self.now
                seconds = max(1, math.ceil(left.total_seconds()))
                raise LoginThrottled(seconds=seconds, retry_after=seconds)

    def limits(self) -> Iterator[tuple[QuerySet[LoginFailure], int, timedelta]]:
        """Yield the failures that count, their limit, and their time window."""
        # Ignore rows from the future: after the clock is set back, they would lock sign-in for
        # long.
        recent = LoginFailure.objects.filter(at__lte=self.now)
        yield (
            recent.filter(address=self.address, at__gt=self.now - ADDRESS_WINDOW),
            settings.LOGIN_FAILURES_PER_IP,
            ADDRESS_WINDOW,
        )
        if self.account:
            yield (
                recent.filter(account=self.account, at__gt=self.now - ACCOUNT_WINDOW),
                settings.LOGIN_FAILURES_PER_ACCOUNT,
                ACCOUNT_WINDOW,
            )

    def forget(self) -> None:
        if self.row is not None:
            self.row.delete()

    @transaction.atomic
    def succeed(self, user: User) -> None:
        """Record the sign-in in the ledger, and delete the attempt's failure."""
        self.forget()
        data = {"by": self.door, **self.origin()}
        ledger.record_event("login.succeeded", actor=f"user:{user.pk}", now=self.now, data=data)

    @transaction.atomic
    def fail(self) -> None:
        """Record the failure in the ledger, and the throttling if it reached a limit.

        Also deletes failures that no longer count.
        """
        LoginFailure.objects.filter(at__lt=self.now - ACCOUNT_WINDOW).delete()
        data = {"by": self.door, "account": self.account, **self.origin()}
        ledger.record_event("login.failed", actor="system", now=self.now, data=data)
        # Recorded only here: otherwise a guesser who continues could fill the ledger.
        if any(rows.count() >= limit for rows, limit, _ in self.limits()):
            ledger.record_event("login.throttled", actor="system", now=self.now, data=data)

    def origin(self) -> dict[str, str]:
        """Return a keyed hash of the client's address, which can be compared but not reversed."""
        return {"origin": compute_keyed_hash("address", self.address)}


def compute_keyed_hash(kind: str, text: str) -> str:
    """Return a hash keyed to this instance, because names and addresses are easy to guess."""
    return salted_hmac(f"chats.people.signin.{kind}", text, algorithm="sha256").hexdigest()


def resolve_client_address(*, remote_addr: str, forwarded_for: str) -> str:
    """Return the address by which failures are counted: an IPv4 address, an IPv6 /64 or “unknown”.

    A /64 usually belongs to one customer. `X-Forwarded-For` counts only behind trusted proxies.
    Each proxy appends its client's address, so with N proxies the Nth entry from the end counts.
    Earlier entries come from the client and can be forged.
    """
    offered = remote_addr
    if settings.TRUSTED_PROXY and forwarded_for:
        listed = forwarded_for.split(",")
        offered = listed[-min(int(settings.TRUSTED_PROXY), len(listed))]
    try:
        address = ipaddress.ip_address(strip_port(offered.strip()))
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def strip_port(address: str) -> str:
    """Return an address without the port that some proxies add, as in `192.0.2.1:80`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


# --- The first administrator ---------------------------------------------------------------------


@transaction.atomic
def ensure_admin(*, username: str, now: datetime) -> tuple[User, bool]:
    """Return an active superuser, and True if it was just created.

    If there is none, a superuser with this name is created. It has no password and signs in by
    link. An existing superuser is returned even if its name differs. Raises `NameTaken`.
    """
    present = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if present is not None:
        return present, False
    if roles.find_person_by_name(username) is not None:
        raise NameTaken(username=username)
    person = User(username=username, is_staff=True, is_superuser=True)
    person.set_unusable_password()
    roles.save_person(person=person, changed={"username", "is_superuser"}, actor="system", now=now)
    owners = Group.objects.filter(name=roles.OWNER)
    if owners:
        roles.change_roles(person=person, groups=owners, actor="system", now=now)
    return person, True
