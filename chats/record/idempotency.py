"""Idempotency-Key support: replay the stored response if a request is repeated within a day."""

import hashlib
import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_noop

from chats.ground.commitments import compute_commitment, is_commitment_valid, new_salt
from chats.ground.refusals import Refusal
from chats.models import IdempotencyRecord
from chats.record import statements
from speed import prepared

KEY_LIFETIME = timedelta(hours=24)
# Rows that one statement of the cleanup deletes, and its statements in one run.
DELETED_AT_ONCE, MOST_STATEMENTS = 1_000, 20


class InvalidIdempotencyKey(Refusal):
    """The `Idempotency-Key` is not a string of 1 to 255 printable ASCII characters."""

    code = "invalid_idempotency_key"
    status = 400
    sentence = gettext_noop(
        "The Idempotency-Key is not valid. Send a key of 1 to 255 printable ASCII characters."
    )


class IdempotencyKeyReused(Refusal):
    """The `Idempotency-Key` was used on this path in the last 24 hours with a different body."""

    code = "idempotency_key_reused"
    status = 422
    sentence = gettext_noop("This Idempotency-Key was used for another request. Use a new key.")


class IdempotentRequest:
    """A request with an idempotency key. Without a key, every request is new."""

    def __init__(self, *, user: AbstractBaseUser, route: str, key: str, body: str) -> None:
        if key and not (len(key) <= 255 and key.isascii() and key.isprintable()):
            raise InvalidIdempotencyKey
        self.owner_id = user.pk
        self.route = route
        self.key = key
        self.digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()

    def find(self, *, now: datetime) -> dict[str, Any] | None:
        """Return the stored result, or None. Raises `IdempotencyKeyReused` for another body.

        Also raised if the request's content was erased: it is then unknown whether the body is the
        same, and a refusal is safe.
        """
        row = self.kept_on(self.route, now=now)
        if row is None:
            return None
        if not is_commitment_valid(row.body_commitment, self.digest, salt=row.salt):
            raise IdempotencyKeyReused
        return dict(row.result)

    def refuse_if_used(self, *, route: str, now: datetime) -> None:
        """Raise `IdempotencyKeyReused` if the key was already used on another route."""
        if self.kept_on(route, now=now) is not None:
            raise IdempotencyKeyReused

    def kept_on(self, route: str, *, now: datetime) -> IdempotencyRecord | None:
        """Return the key's record on a route, or None. Deletes an expired record."""
        if not self.key:
            return None
        row = statements.STORED_RESPONSE.first(owner=self.owner_id, route=route, key=self.key)
        if row is not None and row.created_at < now - KEY_LIFETIME:
            row.delete()
            return None
        return row

    def remember(self, *, result: dict[str, Any], now: datetime) -> None:
        """Store the result, in the transaction of its changes."""
        if self.key:
            self.kept(result=result, now=now)

    def replace(self, *, result: dict[str, Any], now: datetime) -> None:
        """Replace the stored result of a known key."""
        if self.key:
            IdempotencyRecord.objects.filter(
                owner_id=self.owner_id, route=self.route, key=self.key
            ).delete()
            self.kept(result=result, now=now)

    def count_repeat(self) -> int:
        """Count a repetition of a known key, and return its number, from 1."""
        rows = IdempotencyRecord.objects.filter(
            owner_id=self.owner_id, route=self.route, key=self.key
        )
        row = rows.select_for_update().get()
        row.result["repeats"] = number = row.result.get("repeats", 0) + 1
        row.save(update_fields=["result"])
        return int(number)

    def is_repeated(self, *, after: int, now: datetime) -> bool:
        """Return True if the request was repeated again after repetition number `after`."""
        row = self.kept_on(self.route, now=now)
        return row is not None and row.result.get("repeats", 0) > after

    def kept(self, *, result: dict[str, Any], now: datetime) -> IdempotencyRecord:
        """Store the result and return its row. The key must not be empty."""
        salt = new_salt()
        row = IdempotencyRecord(
            owner_id=self.owner_id,
            route=self.route,
            key=self.key,
            salt=salt,
            body_commitment=compute_commitment(self.digest, salt=salt),
            result=result,
            created_at=now,
        )
        prepared.insert_row(row)
        return row


# A gateway request contains its whole conversation, so its body has all of the chat's text.
GATEWAY = "gateway"


def forget_client_responses(*, chat_id: uuid.UUID) -> int:
    """Delete the body hashes of API clients' requests to a chat."""
    rows = IdempotencyRecord.objects.filter(route=GATEWAY, result__chat=str(chat_id))
    return rows.exclude(salt="").update(salt="", body_commitment="")


# An import request contains the text of all chats in the file.
FILES = "/api/v1/imports"


def forget_of_files(*, owner_id: int) -> int:
    """Delete the body hashes of a user's uploaded import files."""
    rows = IdempotencyRecord.objects.filter(owner=owner_id, route=FILES)
    return rows.exclude(salt="").update(salt="", body_commitment="")


def delete_expired_records(*, now: datetime) -> int:
    """Delete the records of keys that have expired, with their responses. Return the count.

    Deletes up to 20,000 of them; the next run continues. Never waits for a request that deletes or
    replaces one of them: it could wait for a lock of this transaction.
    """
    deleted = 0
    old = IdempotencyRecord.objects.filter(created_at__lt=now - KEY_LIFETIME)
    free = old.select_for_update(skip_locked=True).order_by("created_at")
    for _ in range(MOST_STATEMENTS):
        with transaction.atomic():
            found = list(free.values_list("pk", flat=True)[:DELETED_AT_ONCE])
            deleted += IdempotencyRecord.objects.filter(pk__in=found).delete()[0]
        if len(found) < DELETED_AT_ONCE:
            break
    return deleted


def delete_request_hashes(
    *,
    messages: Collection[uuid.UUID],
    chat_id: uuid.UUID | None,
    now: datetime,
    answers_of: uuid.UUID | None = None,
) -> int:
    """Delete the body hashes of requests with erased messages, or with a whole chat.

    `answers_of`: also delete the stored responses of this chat. The records stay, and further use
    of their keys is refused. Expired records are deleted. Returns the number of changed records.
    """
    delete_expired_records(now=now)
    named = Q(result__message__in=[str(pk) for pk in messages])
    if chat_id is not None:
        named |= Q(result__chat=str(chat_id))
    rows = IdempotencyRecord.objects.filter(named).exclude(salt="")
    lost = rows.update(salt="", body_commitment="")
    answered = IdempotencyRecord.objects.filter(result__answer_of=str(answers_of))
    return lost + answered.exclude(salt="").update(salt="", body_commitment="", result={})
