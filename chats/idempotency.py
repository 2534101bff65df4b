"""Requests that come twice: what is done under a key is done once, and told again for a day."""

import hashlib
from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser

from chats.models import IdempotencyRecord
from chats.refusals import Refusal

KEY_LIFETIME = timedelta(hours=24)


class InvalidIdempotencyKey(Refusal):
    """The key has no usable form."""

    code = "invalid_idempotency_key"
    status = 400
    sentence = "An Idempotency-Key has 1 to 255 printable ASCII characters."


class IdempotencyKeyReused(Refusal):
    """The key belongs to another request."""

    code = "idempotency_key_reused"
    status = 422
    sentence = "This Idempotency-Key was used for another request. Use a new key."


class Keyed:
    """One request with an idempotency key; without a key every request is new."""

    def __init__(self, *, user: AbstractBaseUser, route: str, key: str, body: str) -> None:
        if key and not (len(key) <= 255 and key.isascii() and key.isprintable()):
            raise InvalidIdempotencyKey
        self.owner_id = user.pk
        self.route = route
        self.key = key
        self.digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()

    def find(self, *, now: datetime) -> dict[str, str] | None:
        """The stored result, or None. Raises `IdempotencyKeyReused` for another body."""
        if not self.key:
            return None
        row = IdempotencyRecord.objects.filter(
            owner_id=self.owner_id, route=self.route, key=self.key
        ).first()
        if row is not None and row.created_at < now - KEY_LIFETIME:
            row.delete()
            return None
        if row is None:
            return None
        if row.body_sha256 != self.digest:
            raise IdempotencyKeyReused
        return dict(row.result)

    def remember(self, *, result: dict[str, str], now: datetime) -> None:
        """Store the result, in the transaction that made it true."""
        if self.key:
            IdempotencyRecord.objects.create(
                owner_id=self.owner_id,
                route=self.route,
                key=self.key,
                body_sha256=self.digest,
                result=result,
                created_at=now,
            )
