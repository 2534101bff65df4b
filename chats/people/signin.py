"""Signs people in: one-time links and passwords, with a throttle.

Every door that takes a password, a link or a key counts its failures here, so a guesser gains
nothing by changing doors. Failed attempts are rows, not cache entries: a restart forgets none. Only
keyed hashes of names and addresses reach the ledger.
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

from chats.ground import secrets
from chats.ground.refusals import Refusal
from chats.models import LoginFailure, LoginLink
from chats.people import sessions
from contextpolicy import ledger, roles

ADDRESS_WINDOW = timedelta(minutes=1)
ACCOUNT_WINDOW = timedelta(minutes=5)
# Longer passwords are refused unhashed: hashing megabytes is an attack.
PASSWORD_LENGTH = 4096


class LinkInvalid(Refusal):
    """The link was used, has expired or was never made: the three are not told apart."""

    code = "login_link_invalid"
    status = 403
    sentence = (
        "This link does not sign anyone in: it was used, or it is too old. Ask for a new one."
    )


class WrongCredentials(Refusal):
    """There is no active account with this name and password."""

    code = "wrong_credentials"
    status = 401
    sentence = "The name or the password is not right. Check both and try again."


class LoginThrottled(Refusal):
    """There were too many failures from this address or for this account."""

    code = "login_throttled"
    status = 429
    sentence = "Too many failed sign-ins. Wait {seconds} seconds and try again."


class WrongPassword(Refusal):
    """The present password, asked for before a new one is set, is not right."""

    code = "wrong_password"
    status = 422
    sentence = "Your present password is not right. The password was not changed."
    param = "old_password"


class NotConfirmed(Refusal):
    """The password, or the sign-in link, that was to show who sits there is not right."""

    code = "not_confirmed"
    status = 422
    sentence = "{proof} Nothing was changed."


class NameTaken(Refusal):
    """The name for the first administrator belongs to a person who is none."""

    code = "name_taken"
    status = 409
    sentence = "There is already a person called “{username}”. Choose another name."


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
    """Create a one-time token that signs the person in within its lifetime.

    The default lifetime is `settings.LOGIN_LINK_SECONDS`. Only a hash is stored; the token
    lets its holder sign in as the person.
    """
    token = secrets.new_token()
    expires_at = now + (lifetime or timedelta(seconds=settings.LOGIN_LINK_SECONDS))
    LoginLink.objects.create(
        user_id=user.pk,
        token_hash=secrets.hash_token(token),
        expires_at=expires_at,
        invitation=invitation,
    )
    data = {"user": user.pk, "expires_at": expires_at.isoformat()}
    data |= {"invitation": True} if invitation else {}
    ledger.record("login.link_created", actor=actor, now=now, data=data)
    return token


def use_link(
    *, token: str, address: str, now: datetime, only: AbstractBaseUser | None = None
) -> User:
    """Return the person a link signs in; it works once. `only`: a link of this person alone.

    Raises `LinkInvalid` and `LoginThrottled`.
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
    """Return the active person with this name and password.

    An unknown name costs the same time as a wrong password (Django hashes a dummy for it) and
    gets the same words. Raises `WrongCredentials` and `LoginThrottled`.
    """
    username, password = storable(username), storable(password)
    attempt = SignInAttempt(door="login", address=address, account=username, now=now)
    attempt.begin()
    user = None
    if len(password) <= PASSWORD_LENGTH:
        user = authenticate(username=username, password=password)
    if not isinstance(user, User):
        attempt.fail()
        raise WrongCredentials
    attempt.succeed(user)
    return user


def change_password(
    *, user: User, old: str | None, new: str, address: str, session: SessionBase, now: datetime
) -> None:
    """Set a new, already validated password.

    The old one is asked for when there is one. A first password needs no other proof: only
    the server's console could give one. It counts as a fresh sign-in. Raises
    `WrongPassword` and `LoginThrottled`.
    """
    has_one = user.has_usable_password()
    if has_one:
        confirm_password(user=user, password=old or "", address=address, now=now)
    with transaction.atomic():
        user.set_password(new)
        user.save(update_fields=["password"])
        ledger.record("password.changed", actor=f"user:{user.pk}", now=now, data={"user": user.pk})
    if not has_one:
        sessions.confirm_session(session=session, now=now)


def confirm_password(*, user: User, password: str, address: str, now: datetime) -> None:
    """Raise `WrongPassword` unless it is the person's; counted and throttled like a sign-in."""
    attempt = SignInAttempt(door="login", address=address, account=user.username, now=now)
    attempt.begin()
    if len(password) > PASSWORD_LENGTH or not user.check_password(storable(password)):
        attempt.fail()
        raise WrongPassword
    attempt.forget()


def confirm(
    *, user: User, password: str, link: str, address: str, session: SessionBase, now: datetime
) -> None:
    """Let a session count as fresh again, by the person's password.

    Who has none shows a new sign-in link of theirs, which is used up by it. Raises `NotConfirmed`,
    `LoginThrottled`, and `ReauthenticationRequired` without either.
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
        raise NotConfirmed(proof="This password is not right.") from None
    except LinkInvalid:
        raise NotConfirmed(
            proof="This is not an unused sign-in link of yours, or it is too old."
        ) from None
    sessions.confirm_session(session=session, now=now)


def storable(text: str) -> str:
    """Replace characters that no database takes; a name or password with one matches nobody's."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


# --- The throttle --------------------------------------------------------------------------------


class SignInAttempt:
    """One try at a door. It counts as failed from the start, so parallel tries see each other.

    A refused try is not counted: a lock ends with its window, after five minutes at most.
    """

    def __init__(self, *, door: str, address: str, account: str, now: datetime) -> None:
        # By door: a program that repeats a dead API key does not lock its neighbours' login.
        self.address = f"{door}:{address}"[:64]
        self.account = keyed("account", account.casefold()) if account else ""
        self.door = door
        self.now = now
        self.row: LoginFailure | None = None

    def begin(self) -> None:
        """Raise `LoginThrottled`, or count this try until it succeeds."""
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
        """Raise `LoginThrottled` when a limit is reached; `already` of the rows are this try's."""
        for rows, limit, window in self.limits():
            times = list(rows.order_by("-at").values_list("at", flat=True)[: limit + already])
            if len(times) >= limit + already:
                left = times[limit - 1 + already] + window - self.now
                seconds = max(1, math.ceil(left.total_seconds()))
                raise LoginThrottled(seconds=seconds, retry_after=seconds)

    def limits(self) -> Iterator[tuple[QuerySet[LoginFailure], int, timedelta]]:
        """Yield the failures that count, how many are allowed, and in what time."""
        # Rows from the future are left out: after a clock was set back they would lock for long.
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
        """Take this try back: it was no failure."""
        if self.row is not None:
            self.row.delete()

    @transaction.atomic
    def succeed(self, user: User) -> None:
        """Note the sign-in."""
        self.forget()
        data = {"by": self.door, **self.origin()}
        ledger.record("login.succeeded", actor=f"user:{user.pk}", now=self.now, data=data)

    @transaction.atomic
    def fail(self) -> None:
        """Note the failure, and that the door is shut when it was one too many."""
        LoginFailure.objects.filter(at__lt=self.now - ACCOUNT_WINDOW).delete()
        data = {"by": self.door, "account": self.account, **self.origin()}
        ledger.record("login.failed", actor="system", now=self.now, data=data)
        # Noted here alone: otherwise a guesser who goes on could fill the ledger.
        if any(rows.count() >= limit for rows, limit, _ in self.limits()):
            ledger.record("login.throttled", actor="system", now=self.now, data=data)

    def origin(self) -> dict[str, str]:
        """Say where the try came from, so that equal origins can be seen and none can be read."""
        return {"origin": keyed("address", self.address)}


def keyed(kind: str, text: str) -> str:
    """Hash so that only this instance can: names and addresses are easily tried out."""
    return salted_hmac(f"chats.people.signin.{kind}", text, algorithm="sha256").hexdigest()


def client_address(*, remote_addr: str, forwarded_for: str) -> str:
    """Return the address to count failures by: IPv4 whole, IPv6 its /64, which is one customer's.

    `X-Forwarded-For` counts only behind a trusted proxy, and of it only the last entry: the proxy
    appended that one, everything before it came with the request.
    """
    offered = remote_addr
    if settings.TRUSTED_PROXY and forwarded_for:
        offered = forwarded_for.rsplit(",", 1)[-1]
    try:
        address = ipaddress.ip_address(offered.strip())
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


# --- The first administrator ---------------------------------------------------------------------


@transaction.atomic
def ensure_admin(*, username: str, now: datetime) -> tuple[User, bool]:
    """Return an active superuser, and whether it was made now.

    A new one has no password and signs in by link. An existing one is returned whatever its name.
    Raises `NameTaken`.
    """
    present = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if present is not None:
        return present, False
    if User.objects.filter(username=username).exists():
        raise NameTaken(username=username)
    person = User(username=username, is_staff=True, is_superuser=True)
    person.set_unusable_password()
    roles.save_person(person=person, changed={"username", "is_superuser"}, actor="system", now=now)
    owners = Group.objects.filter(name=roles.OWNER)
    if owners:
        roles.change_roles(person=person, groups=owners, actor="system", now=now)
    return person, True
