"""API keys: made by a signed-in person, shown once, and never able to do more than their owner.

A key is 256 random bits behind the prefix `plm_`, by which secret scanners and people know it.
Only its SHA-256 and its first letters are stored.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.db.models import Q

from chats.ground import secrets
from chats.ground.refusals import NotFound, Refusal
from chats.models import ApiKey
from chats.people import signin, statements
from contextpolicy import ledger
from contextpolicy.engine import names
from contextpolicy.models import ContextPolicy
from contextpolicy.presets import CODING_AGENTS

MARK = "plm_"
# Each with what it opens.
SCOPE_WORDS = {
    "chats:read": "Read chats, messages, summaries and what was sent",
    "chats:write": "Send messages; make, change and delete chats",
    "chats:erase": "Erase messages and chats for good",
    "audit:read": "Read audit events",
    "policy:read": "Read the policy of a chat, and all policies if you may",
    "policy:write": "Change policies and where they apply, if you may",
    "webhooks": "See, make and change webhooks",
    "gateway": "Use the models through /v1, as an OpenAI client does",
}
SCOPES = tuple(SCOPE_WORDS)
GATEWAY = "gateway"
KEYS_PER_PERSON = 20
DEFAULT_DAYS = 90
LONGEST_DAYS = 365
NAME_LENGTH = 200
# A key's last use is noted at most so often: each note costs a write.
NOTED_EVERY = timedelta(minutes=1)


class InvalidKeyName(Refusal):
    """The name is empty, or has a character that no name may have."""

    code = "invalid_name"
    status = 422
    sentence = (
        "A key needs a name of 1 to {limit} characters. Line breaks, control characters and"
        " direction overrides are not allowed."
    )
    param = "name"


class KeyNameTooLong(Refusal):
    """The name is over its limit; names are never cut."""

    code = "too_long"
    status = 422
    sentence = "A key's name has at most {limit} characters; this one has {length}."
    param = "name"


class UnknownScope(Refusal):
    """The key has no scopes, or one that does not exist."""

    code = "unknown_scope"
    status = 422
    sentence = "A key needs at least one scope, and only these exist: {known}."
    param = "scopes"


class InvalidLifetime(Refusal):
    """The lifetime is too short or too long."""

    code = "invalid_lifetime"
    status = 422
    sentence = "A key lives for 1 to {limit} days."
    param = "lifetime_days"


class TooManyKeys(Refusal):
    """The person has as many living keys as they may."""

    code = "too_many_keys"
    status = 422
    sentence = "You have {limit} API keys and cannot make another. Revoke one first."


class InvalidKey(Refusal):
    """The key is unknown, expired, revoked, or not a key at all: not told apart."""

    code = "invalid_api_key"
    status = 401
    sentence = (
        "This API key is not valid here: it is unknown, expired or revoked."
        " Send a valid one as “Authorization: Bearer plm_…”."
    )


class KeyInAddress(Refusal):
    """A key came in the query string, where logs and histories keep it."""

    code = "key_in_address"
    status = 400
    sentence = (
        "An API key must not stand in an address, because addresses are logged."
        " Revoke this key and send a new one in the Authorization header."
    )


class InsufficientScope(Refusal):
    """The key is valid and may not do this."""

    code = "insufficient_scope"
    status = 403
    sentence = "This API key lacks the scope {scope}. Make a key that has it."


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
    """Create a key; returns it with its secret, which can never be shown again.

    `unmanaged`: its requests to /v1 are passed on as they came, where the policy allows it.

    Raises `InvalidKeyName`, `KeyNameTooLong`, `UnknownScope`, `InvalidLifetime` and `TooManyKeys`.
    """
    name = names.normal(name)
    if not names.is_sound(name):
        raise InvalidKeyName(limit=NAME_LENGTH)
    if len(name) > NAME_LENGTH:
        raise KeyNameTooLong(limit=NAME_LENGTH, length=len(name))
    if not scopes or not set(scopes) <= set(SCOPES):
        raise UnknownScope(known=", ".join(SCOPES))
    if not 1 <= lifetime_days <= LONGEST_DAYS:
        raise InvalidLifetime(limit=LONGEST_DAYS)
    # Locked, so that two requests at once cannot both make the last key.
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if statements.living_keys(now=now).filter(owner=owner.pk).count() >= KEYS_PER_PERSON:
        raise TooManyKeys(limit=KEYS_PER_PERSON)
    secret = MARK + secrets.new_token()
    key = ApiKey.objects.create(
        owner_id=owner.pk,
        name=name,
        prefix=secret[:12],
        key_hash=secrets.hash_token(secret),
        scopes=sorted(set(scopes)),
        unmanaged=unmanaged,
        policy=gateway_policy() if GATEWAY in scopes else None,
        created_at=now,
        expires_at=now + timedelta(days=lifetime_days),
    )
    note("api_key.created", key=key, actor=f"user:{owner.pk}", now=now)
    return key, secret


def gateway_policy() -> ContextPolicy | None:
    """Return the policy of new keys for /v1; None if it was retired."""
    rows = ContextPolicy.objects.filter(
        slug=CODING_AGENTS.slug, retired=False, current__isnull=False
    )
    return rows.first()


@transaction.atomic
def revoke_key(*, key: ApiKey, actor: str, now: datetime) -> ApiKey:
    """End the key from now on; revoking it again changes nothing."""
    if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=now):
        note("api_key.revoked", key=key, actor=actor, now=now)
    key.refresh_from_db()
    return key


def note(event: str, *, key: ApiKey, actor: str, now: datetime) -> None:
    """Write the ledger's row about a key: what it may do and how long, not its name."""
    data = {
        "key": str(key.pk),
        "owner": key.owner_id,
        "prefix": key.prefix,
        "scopes": key.scopes,
        "unmanaged": key.unmanaged,
        "expires_at": key.expires_at.isoformat(),
    }
    ledger.record(event, actor=actor, now=now, data=data)


def keys_of(*, owner: AbstractBaseUser) -> list[ApiKey]:
    """Return the person's keys, newest first, with those that ended."""
    rows = ApiKey.objects.filter(owner=owner.pk).select_related("policy")
    return list(rows.order_by("-created_at", "-pk"))


def key_for(*, user: AbstractBaseUser, key_id: uuid.UUID) -> ApiKey:
    """Return the person's own key. Raises `NotFound`."""
    key = ApiKey.objects.filter(pk=key_id, owner=user.pk).first()
    if key is None:
        raise NotFound
    return key


def authenticate(*, secret: str, now: datetime) -> ApiKey | None:
    """Return the living key with this secret, with its owner.

    Its use is noted once a minute, the first of a day in the ledger too.
    """
    key = statements.LIVING_KEY.first(now=now, hash=secrets.hash_token(secret))
    if key is None:
        return None
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    noted_until = max(now - NOTED_EVERY, midnight)
    if key.last_used_at is None or key.last_used_at < noted_until:
        note_use(key, noted_until=noted_until, now=now)
    return key


@transaction.atomic
def note_use(key: ApiKey, *, noted_until: datetime, now: datetime) -> None:
    """Note that the key was used; of several at once one notes it."""
    unnoted = Q(last_used_at=None) | Q(last_used_at__lt=noted_until)
    is_first = key.last_used_at is None or key.last_used_at.date() < now.astimezone(UTC).date()
    if ApiKey.objects.filter(unnoted, pk=key.pk).update(last_used_at=now) and is_first:
        note("api_key.used", key=key, actor=f"user:{key.owner_id}", now=now)


def is_living(*, key_id: uuid.UUID, now: datetime) -> bool:
    """Tell whether the key still opens something."""
    return statements.living_keys(now=now).filter(pk=key_id).exists()


def key_from_header(*, authorization: str, address: str, now: datetime) -> ApiKey:
    """Return the key of an `Authorization` header.

    Raises `InvalidKey`, and `LoginThrottled` after too many wrong ones from one address.
    """
    scheme, _, secret = authorization.partition(" ")
    secret = secret.strip()
    if scheme.lower() == "bearer" and secret.startswith(MARK):
        key = authenticate(secret=secret, now=now)
        if key is not None:
            return key
    attempt = signin.SignInAttempt(door="api", address=address, account="", now=now)
    attempt.begin()
    attempt.fail()
    raise InvalidKey


def require_scope(*, key: ApiKey, scope: str) -> None:
    """Raise `InsufficientScope` unless the key has it."""
    if scope not in key.scopes:
        raise InsufficientScope(scope=scope)


def refuse_in_address(query: str) -> None:
    """Raise `KeyInAddress` when a raw query string carries what looks like a key."""
    pairs = parse_qsl(query, keep_blank_values=True, errors="replace")
    if any(piece.startswith(MARK) for pair in pairs for piece in pair):
        raise KeyInAddress
