"""Auditors' access to other people's chats: with a reason, one chat at a time, for 30 minutes.

The ledger entry with the reason is the permission, so no reading goes unrecorded. If the instance
requires two people, the permission is the entry of a second auditor who grants the request.
Unanswered requests expire after a day.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_noop

from chats.ground.refusals import NotFound, Refusal
from chats.models import Chat
from chats.record import access, locking
from chats.record.message_text import check_characters
from contextpolicy import ledger
from contextpolicy.models import AuditEvent
from contextpolicy.reasons import is_meaningful_text
from contextpolicy.roles import ROLES

HALF_AN_HOUR = timedelta(minutes=30)
# The time within which another auditor can grant a request.
A_DAY = timedelta(days=1)
SHORTEST, LONGEST = 10, 300
# Reasons need at least half of the shortest length in letters or digits, with this many different
# ones.
DIFFERENT = 3
OPENED = "content.opened"
# All ledger events about reading.
CONTENT = (
    "content.asked",
    "content.closed",
    "content.downloaded",
    "content.granted",
    OPENED,
    "content.read",
    "content.refused",
    "kept_text.read",
)


class ReasonNeeded(Refusal):
    """The reason is shorter than 10 or longer than 300 characters, or contains fewer than five
    letters or digits, or fewer than three different ones."""

    code = "reason_needed"
    sentence = gettext_noop(
        "Enter a reason for reading this chat, such as a case or a complaint, in {shortest} to "
        "{longest} characters. The audit log records the reason first."
    )

    def __init__(self) -> None:
        super().__init__(shortest=SHORTEST, longest=LONGEST)


class ReadingNotOpen(Refusal):
    """You gave no reason to read this chat in the last 30 minutes. Send a `reason`."""

    code = "reading_not_open"
    status = 403
    sentence = gettext_noop(
        "You have not opened this chat for reading, or your 30-minute access has ended. "
        "Give a reason first, with POST /api/v1/audit/readings or on the page of any call "
        "in this chat. If this instance requires a second auditor, another auditor must "
        "approve the request."
    )


class SecondAuditorNeeded(Refusal):
    """You made this request yourself. Another auditor must grant or refuse it."""

    code = "second_auditor_needed"
    status = 409
    sentence = gettext_noop(
        "You cannot answer this request, because you made it. Another auditor must grant or "
        "refuse it."
    )


def open_reading(*, chat_id: uuid.UUID, actor: str, reason: str, now: datetime) -> datetime | None:
    """Record the reason in the chat's chain. Return the time at which the access ends.

    None if the instance requires two people: the request then waits for another auditor. Raises
    `ReasonNeeded`, `InvalidCharacter`, and Chat.DoesNotExist if the chat was erased.
    """
    words = clean_reason(reason)
    kind, period = ("content.asked", A_DAY) if settings.TWO_PERSONS else (OPENED, HALF_AN_HOUR)
    until = now + period
    with transaction.atomic():
        locking.lock_chat(chat_id)
        data = {"reason": words, "until": until.isoformat(timespec="seconds")}
        ledger.record_event(kind, actor=actor, now=now, chat_id=chat_id, data=data)
    return until if kind == OPENED else None


def clean_reason(reason: str) -> str:
    """Return a reason with single spaces. Raises `ReasonNeeded` and `InvalidCharacter`."""
    words = " ".join(reason.split())
    is_said = is_meaningful_text(words, letters=SHORTEST // 2, different=DIFFERENT)
    if not (SHORTEST <= len(words) <= LONGEST and is_said):
        raise ReasonNeeded
    check_characters(words)
    return words


def close_reading(*, chat_id: uuid.UUID, actor: str, now: datetime) -> None:
    """End an auditor's access to a chat early.

    Raises `ReadingNotOpen`, and Chat.DoesNotExist if the chat is erased concurrently.
    """
    require_open(chat_id=chat_id, actor=actor, now=now)
    with transaction.atomic():
        locking.lock_chat(chat_id)
        # Checked again under the lock, so that only one of two concurrent requests succeeds.
        require_open(chat_id=chat_id, actor=actor, now=now)
        ledger.record_event("content.closed", actor=actor, now=now, chat_id=chat_id)


@dataclass(frozen=True, slots=True)
class Reading:
    """An auditor's permission to read one chat, derived from the ledger."""

    chat_id: uuid.UUID
    reason: str
    opened_at: datetime

    @property
    def until(self) -> datetime:
        return self.opened_at + HALF_AN_HOUR


def list_open_readings(
    *, actor: str, now: datetime, chat_id: uuid.UUID | None = None
) -> list[Reading]:
    """Return the auditor's open readings, newest first: of one chat, or of all."""
    own = Q(type__in=(OPENED, "content.closed"), actor=actor)
    granted = Q(type="content.granted", data__user=parse_actor_id(actor))
    rows = AuditEvent.objects.filter(own | granted, at__gt=now - HALF_AN_HOUR, at__lte=now)
    rows = rows.filter(pk__gt=find_last_role_loss(user=parse_actor_id(actor), now=now))
    if chat_id is not None:
        rows = rows.filter(chat_id=chat_id)
    newest: dict[uuid.UUID, AuditEvent] = {}
    for row in rows.order_by("-pk"):
        if row.chat_id is not None:
            newest.setdefault(row.chat_id, row)
    there = filter_existing_chats(newest)
    return [
        Reading(chat, row.data["reason"], row.at)
        for chat, row in newest.items()
        if row.type != "content.closed" and chat in there
    ]


def find_last_role_loss(*, user: int, now: datetime) -> int:
    """Return the id of the ledger entry of a user's last role loss within 30 minutes.

    0 if there is none. Deactivation and the loss of superuser status count too. Such a loss ends
    all open readings; regaining the role does not restore them.
    """
    rows = AuditEvent.objects.filter(
        type__in=("role.changed", "user.changed"),
        data__user=user,
        at__gt=now - HALF_AN_HOUR,
        at__lte=now,
    )
    for row in rows.order_by("-pk"):
        groups = row.data.get("groups", {"from": [], "to": []})
        lost = set(groups["from"]) - set(groups["to"])
        flags = [row.data.get(name) for name in ("is_active", "is_superuser")]
        if lost & set(ROLES) or False in flags:
            return row.pk
    return 0


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """An auditor's request to read a chat, which no other auditor has answered yet."""

    # Derived from the entry's hash, so that ids in URLs cannot be enumerated.
    id: uuid.UUID
    chat_id: uuid.UUID
    # The id of the requesting auditor.
    user: int
    reason: str
    asked_at: datetime

    @property
    def until(self) -> datetime:
        return self.asked_at + A_DAY


def list_reading_requests(
    *, now: datetime, chat_id: uuid.UUID | None = None
) -> list[ReadingRequest]:
    """Return the requests that wait for a second auditor, newest first: of one chat, or of all.

    A repeated request for the same chat replaces the earlier one. Empty unless the instance
    requires two people.
    """
    if not settings.TWO_PERSONS:
        return []
    rows = AuditEvent.objects.filter(
        type__in=("content.asked", "content.granted", "content.refused"),
        at__gt=now - A_DAY,
        at__lte=now,
    )
    if chat_id is not None:
        rows = rows.filter(chat_id=chat_id)
    newest: dict[tuple[uuid.UUID, int], AuditEvent] = {}
    for row in rows.order_by("-pk"):
        if row.chat_id is not None:
            asker = row.data.get("user") or parse_actor_id(row.actor)
            newest.setdefault((row.chat_id, asker), row)
    there = filter_existing_chats({chat for chat, _asker in newest})
    return [
        ReadingRequest(derive_request_id(row), chat, asker, row.data["reason"], row.at)
        for (chat, asker), row in newest.items()
        if row.type == "content.asked" and chat in there
    ]


def find_waiting_request(*, chat_id: uuid.UUID, actor: str, now: datetime) -> ReadingRequest | None:
    waiting = list_reading_requests(now=now, chat_id=chat_id)
    return next((each for each in waiting if each.user == parse_actor_id(actor)), None)


def derive_request_id(row: AuditEvent) -> uuid.UUID:
    """Return the id of a reading request, derived from the hash of its ledger entry."""
    return uuid.UUID(hex=row.hash[:32])


def decide_reading_request(
    asked_id: uuid.UUID, *, is_granted: bool, actor: str, now: datetime
) -> ReadingRequest:
    """Grant or refuse another auditor's request. A grant allows 30 minutes of reading.

    Raises `NotFound` if no request with this id is waiting, and `SecondAuditorNeeded`.
    """
    lately = AuditEvent.objects.filter(type="content.asked", at__gt=now - A_DAY, at__lte=now)
    row = lately.filter(hash__startswith=asked_id.hex).first()
    if row is None or row.chat_id is None:
        raise NotFound
    with transaction.atomic():
        try:
            locking.lock_chat(row.chat_id)
        except Chat.DoesNotExist:
            raise NotFound from None
        # Only one of two concurrent answers succeeds.
        waiting = {each.id: each for each in list_reading_requests(now=now, chat_id=row.chat_id)}
        if asked_id not in waiting:
            raise NotFound
        if row.actor == actor:
            raise SecondAuditorNeeded
        data = {"user": parse_actor_id(row.actor), "reason": row.data["reason"], "asked": row.seq}
        kind = "content.granted" if is_granted else "content.refused"
        ledger.record_event(kind, actor=actor, now=now, chat_id=row.chat_id, data=data)
    return waiting[asked_id]


def list_readings_by_others(user: AbstractBaseUser) -> QuerySet[AuditEvent]:
    """Return the ledger events about reading a user's chats, newest first.

    Empty if the instance does not show them (`OWNERS_SEE_READINGS`).
    """
    if not settings.OWNERS_SEE_READINGS:
        return AuditEvent.objects.none()
    own = access.get_visible_chats(user=user).values("pk")
    return AuditEvent.objects.filter(type__in=CONTENT, chat_id__in=own).order_by("-pk")


def parse_actor_id(actor: str) -> int:
    """Return the user id of a ledger actor."""
    return int(actor.removeprefix("user:"))


def filter_existing_chats(chats: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    return set(Chat.objects.filter(pk__in=list(chats)).values_list("pk", flat=True))


def get_reading_expiry(*, chat_id: uuid.UUID, actor: str, now: datetime) -> datetime | None:
    """Return the time at which an auditor's access to a chat ends; None if there is no access."""
    found = list_open_readings(actor=actor, now=now, chat_id=chat_id)
    return found[0].until if found else None


def require_open(*, chat_id: uuid.UUID, actor: str, now: datetime) -> datetime:
    """Return the time at which an auditor's access to a chat ends. Raises `ReadingNotOpen`."""
    until = get_reading_expiry(chat_id=chat_id, actor=actor, now=now)
    if until is None:
        raise ReadingNotOpen
    return until


def note_read(
    *, chat_id: uuid.UUID, call: Mapping[str, str], actor: str, now: datetime, form: str = ""
) -> None:
    """Record that a prompt is about to be displayed or downloaded.

    `call` identifies the receipt or the compaction of the prompt; `form` is the file format, empty
    for display.
    """
    kind = "content.downloaded" if form else "content.read"
    data = {**call, **({"form": form} if form else {})}
    with transaction.atomic():
        ledger.record_event(kind, actor=actor, now=now, chat_id=chat_id, data=data)
