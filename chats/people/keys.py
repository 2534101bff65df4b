"""API keys: created by a signed-in user, shown once, and limited to their owner's permissions.

A key is 256 random bits with the prefix `plm_`, which secret scanners recognise. Only its SHA-256
and its first 12 characters are stored.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import parse_qsl

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_lazy, gettext_noop

from chats.ground import databases, secrets
from chats.ground.refusals import NotFound, Refusal
from chats.models import ApiKey
from chats.people import key_uses, signin, statements
from contextpolicy import ledger
from contextpolicy.engine.text import names
from contextpolicy.models import AuditEvent, ContextPolicy
from contextpolicy.presets import CODING_AGENTS

MARK = "plm_"
# Each scope with its description.
SCOPE_WORDS = {
    "chats:read": gettext_lazy(
        "Read your chats and their prompts, and your folders, files, teams, memory and usage"
    ),
    "chats:write": gettext_lazy(
        "Send messages; create, change and delete your chats, folders, files, teams and memory "
        "(deleted chats can be restored)"
    ),
    "chats:erase": gettext_lazy("Erase your messages and chats permanently"),
    "audit:read": gettext_lazy(
        "Read audit events and, if your role allows it, other users’ prompts after you give a "
        "reason"
    ),
    "policy:read": gettext_lazy(
        "Read a chat’s policy and, if your role allows it, all policies, skills, legal holds and "
        "counts"
    ),
    "policy:write": gettext_lazy(
        "If your role allows it, change policies, assignments, skills "
        "and legal holds, and start retention runs"
    ),
    "webhooks": gettext_lazy("View, create, change and delete your webhooks"),
    "gateway": gettext_lazy("Use the models through the OpenAI-compatible API at /v1"),
}
SCOPES = tuple(SCOPE_WORDS)
GATEWAY = "gateway"
KEYS_PER_PERSON = 20
DEFAULT_DAYS = 90
LONGEST_DAYS = 365
NAME_LENGTH = 200
# Minimum time between two updates of a key's last use, because each is a write.
RECORDED_EVERY = timedelta(minutes=1)
# The name of the optional write in logs.
USE = "the use of a key"


class InvalidKeyName(Refusal):
    """The name is empty, or contains a line break, a control character or a direction override."""

    code = "invalid_name"
    status = 422
    sentence = gettext_noop(
        "Enter a name of 1 to {limit} characters. Line breaks, control characters and"
        " direction overrides are not allowed."
    )
    param = "name"


class KeyNameTooLong(Refusal):
    """The name has more than 200 characters. Names are never truncated."""

    code = "too_long"
    status = 422
    sentence = gettext_noop(
        "The name has {length} characters. The limit is {limit}. Shorten the name."
    )
    param = "name"


class UnknownScope(Refusal):
    """The list of scopes is empty or contains an unknown scope.

    The error message lists the valid ones.
    """

    code = "unknown_scope"
    status = 422
    sentence = gettext_noop("Choose at least one of these scopes: {known}.")
    param = "scopes"


class InvalidLifetime(Refusal):
    """The lifetime is not between 1 and 365 days."""

    code = "invalid_lifetime"
    status = 422
    sentence = gettext_noop("Enter a lifetime of 1 to {limit} days.")
    param = "lifetime_days"


class TooManyKeys(Refusal):
    """You have 20 API keys that are neither revoked nor expired. Revoke one first."""

    code = "too_many_keys"
    status = 422
    sentence = gettext_noop("You have reached the limit of {limit} API keys. Revoke one first.")


class InvalidKey(Refusal):
    """The `Authorization` header has no valid API key, or the key's owner is deactivated.

    A key is invalid if it is unknown, expired or revoked.
    """

    code = "invalid_api_key"
    status = 401
    sentence = gettext_noop(
        "This API key is unknown, expired or revoked."
        " Send a valid one as “Authorization: Bearer plm_…”."
    )


class KeyInAddress(Refusal):
    """The query string contains an API key. Revoke the key, because URLs are logged."""

    code = "key_in_address"
    status = 400
    sentence = gettext_noop(
        "Do not send an API key in a URL, because URLs are logged. Revoke this key "
        "and send a new one in the Authorization header."
    )


class InsufficientScope(Refusal):
    """The API key lacks the scope that the operation requires."""

    code = "insufficient_scope"
    status = 403
    sentence = gettext_noop(
        "This API key does not have the scope {scope}. Create a key that has it."
    )


@transaction.atomic
def create_key(
    *,
    owner: AbstractBaseUser,
    name: str,
    scopes: Sequence[str],
    lifetime_days: int = DEFAULT_DAYS,
    unmanaged: bool = False,
    now: datetime,
) -> tuple[ApiKey, str]:
    """Create a key and return it with its secret. The secret cannot be shown again.

    `unmanaged`: requests to /v1 are passed through unchanged, if the policy allows it.

    Raises `InvalidKeyName`, `KeyNameTooLong`, `UnknownScope`, `InvalidLifetime` and `TooManyKeys`.
    """
    name = names.normalise_name(name)
    if not names.is_allowed_name(name):
        raise InvalidKeyName(limit=NAME_LENGTH)
    if len(name) > NAME_LENGTH:
        raise KeyNameTooLong(limit=NAME_LENGTH, length=len(name))
    if not scopes or not set(scopes) <= set(SCOPES):
        raise UnknownScope(known=", ".join(SCOPES))
    if not 1 <= lifetime_days <= LONGEST_DAYS:
        raise InvalidLifetime(limit=LONGEST_DAYS)
    # Lock the owner, so that parallel requests cannot exceed the limit.
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if statements.select_active_keys(now=now).filter(owner=owner.pk).count() >= KEYS_PER_PERSON:
        raise TooManyKeys(limit=KEYS_PER_PERSON)
    secret = MARK + secrets.generate_token()
    key = ApiKey.objects.create(
        owner_id=owner.pk,
        name=name,
        prefix=secret[:12],
        key_hash=secrets.hash_token(secret),
        scopes=sorted(set(scopes)),
        unmanaged=unmanaged,
        policy=find_gateway_policy() if GATEWAY in scopes else None,
        created_at=now,
        expires_at=now + timedelta(days=lifetime_days),
    )
    record_key_event("api_key.created", key=key, actor=f"user:{owner.pk}", now=now)
    return key, secret


def find_gateway_policy() -> ContextPolicy | None:
    """Return the default policy of new /v1 keys.

    None if it does not exist, has no version or is retired.
    """
    rows = ContextPolicy.objects.filter(
        slug=CODING_AGENTS.slug, retired=False, current__isnull=False
    )
    return rows.first()


@transaction.atomic
def revoke_key(*, key: ApiKey, actor: str, now: datetime) -> ApiKey:
    """Revoke the key. Revoking it again changes nothing."""
    if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=now):
        record_key_event("api_key.revoked", key=key, actor=actor, now=now)
    key.refresh_from_db()
    return key


@transaction.atomic
def revoke_keys(*, owner: AbstractBaseUser, actor: str, now: datetime) -> int:
    """Revoke every usable key of the user; return the number of revoked keys."""
    rows = list_usable_keys(owner=owner, now=now)
    for key in rows:
        revoke_key(key=key, actor=actor, now=now)
    return len(rows)


def list_usable_keys(*, owner: AbstractBaseUser, now: datetime) -> list[ApiKey]:
    """Return the keys that are neither revoked nor expired, even if the owner is deactivated."""
    rows = ApiKey.objects.filter(owner=owner.pk, revoked_at=None, expires_at__gt=now)
    return list(rows.order_by("created_at", "pk"))


def record_key_event(event: str, *, key: ApiKey, actor: str, now: datetime) -> None:
    """Record an event about a key in the ledger: its scopes and expiry, not its name."""
    data = {
        "key": str(key.pk),
        "owner": key.owner_id,
        "prefix": key.prefix,
        "scopes": key.scopes,
        "unmanaged": key.unmanaged,
        "expires_at": key.expires_at.isoformat(),
    }
    ledger.record_event(event, actor=actor, now=now, data=data)


def list_api_keys(*, owner: AbstractBaseUser) -> list[ApiKey]:
    """Return the user's keys, newest first, including revoked and expired ones."""
    rows = ApiKey.objects.filter(owner=owner.pk).select_related("policy")
    return list(rows.order_by("-created_at", "-pk"))


def get_own_api_key(*, user: AbstractBaseUser, key_id: uuid.UUID) -> ApiKey:
    """Return the user's own key. Raises `NotFound`."""
    key = ApiKey.objects.filter(pk=key_id, owner=user.pk).first()
    if key is None:
        raise NotFound
    return key


def authenticate_api_key(*, secret: str, now: datetime) -> ApiKey | None:
    """Return the usable key with this secret, with its owner loaded; None if there is none.

    Its last use is updated at most once a minute. The first use of a day is also recorded in the
    ledger.
    """
    key = statements.LIVING_KEY.first(now=now, hash=secrets.hash_token(secret))
    if key is None:
        return None
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    recorded_until = max(now - RECORDED_EVERY, midnight)
    if key.last_used_at is None or key.last_used_at < recorded_until:
        note_use(key, recorded_until=recorded_until, now=now)
    return key


def note_use(key: ApiKey, *, recorded_until: datetime, now: datetime) -> None:
    """Record that the key was used. If several requests run concurrently, only one writes.

    If the database is busy, the request continues, and a later request or a thread records the use.
    """
    write = partial(write_use, key, recorded_until=recorded_until, now=now)
    if not databases.write_if_possible(USE, write, is_repeated=True):
        again = partial(write_missed_use, key, recorded_until=recorded_until, now=now)
        later = partial(databases.write_if_possible, USE, again, is_repeated=True)
        key_uses.UNNOTED.add(key.pk, now.astimezone(UTC).date(), later)


def write_use(key: ApiKey, *, recorded_until: datetime, now: datetime) -> None:
    """Update the key's last use; record the first use of a day in the ledger too."""
    is_first = key.last_used_at is None or key.last_used_at.date() < now.astimezone(UTC).date()
    if update_last_use(key, recorded_until=recorded_until, now=now) and is_first:
        record_use(key, now=now)


def write_missed_use(key: ApiKey, *, recorded_until: datetime, now: datetime) -> None:
    """Record a use that the database was too busy to record.

    Another use may have been noted since, even on the next day. The ledger gets the missed use
    if it has no use of the key on the same day.
    """
    held = ApiKey.objects.select_for_update(of=("self",), no_key=True).filter(pk=key.pk)
    if not held:
        return
    update_last_use(key, recorded_until=recorded_until, now=now)
    if not has_use_of_day(key, day=now):
        record_use(key, now=now)


def update_last_use(key: ApiKey, *, recorded_until: datetime, now: datetime) -> bool:
    """Update the key's last use; return False if it was updated since `recorded_until`."""
    unnoted = Q(last_used_at=None) | Q(last_used_at__lt=recorded_until)
    return bool(ApiKey.objects.filter(unnoted, pk=key.pk).update(last_used_at=now))


def record_use(key: ApiKey, *, now: datetime) -> None:
    record_key_event("api_key.used", key=key, actor=f"user:{key.owner_id}", now=now)


def has_use_of_day(key: ApiKey, *, day: datetime) -> bool:
    """Return True if the ledger has a use of the key on the day of a moment, in UTC."""
    start = day.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    rows = AuditEvent.objects.filter(type="api_key.used", data__key=str(key.pk))
    return rows.filter(at__gte=start, at__lt=start + timedelta(days=1)).exists()


def is_living(*, key_id: uuid.UUID, now: datetime) -> bool:
    """Return True if the key is neither revoked nor expired and its owner is active."""
    return statements.select_active_keys(now=now).filter(pk=key_id).exists()


def get_key_from_header(*, authorization: str, address: str, now: datetime) -> ApiKey:
    """Return the API key of an `Authorization` header.

    Raises `InvalidKey`, and `LoginThrottled` after too many wrong keys from one address.
    """
    scheme, _, secret = authorization.partition(" ")
    secret = secret.strip()
    if scheme.lower() == "bearer" and secret.startswith(MARK):
        key = authenticate_api_key(secret=secret, now=now)
        if key is not None:
            return key
    attempt = signin.SignInAttempt(door="api", address=address, account="", now=now)
    attempt.begin()
    attempt.fail()
    raise InvalidKey


def require_scope(*, key: ApiKey, scope: str) -> None:
    """Raise `InsufficientScope` unless the key has the scope."""
    if scope not in key.scopes:
        raise InsufficientScope(scope=scope)


def refuse_in_address(query: str) -> None:
    """Raise `KeyInAddress` if the raw query string contains something that looks like a key."""
    pairs = parse_qsl(query, keep_blank_values=True, errors="replace")
    if any(piece.startswith(MARK) for pair in pairs for piece in pair):
        raise KeyInAddress
