"""Reading other people's chats: for auditors, with a reason, one chat for half an hour.

The ledger row with the reason is the permission itself: nobody can read without having left it.
Where the instance asks for two persons, an auditor asks, and the row of another one who grants it
is the permission; one that nobody answers is forgotten after a day.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q, QuerySet

from chats.ground.refusals import NotFound, Refusal
from chats.models import Chat
from chats.record import access, locking
from chats.record.messages import UNSTORABLE, InvalidCharacter
from contextpolicy import ledger
from contextpolicy.models import AuditEvent
from contextpolicy.reasons import says_something

HALF_AN_HOUR = timedelta(minutes=30)
# So long another auditor may grant what one asked for.
A_DAY = timedelta(days=1)
SHORTEST, LONGEST = 10, 300
# Of the letters or digits of a reason, half of the shortest length at least, so many differ.
DIFFERENT = 3
OPENED = "content.opened"
# All that the ledger says of readings.
CONTENT = (
    "content.asked",
    "content.closed",
    "content.downloaded",
    "content.granted",
    OPENED,
    "content.read",
    "content.refused",
)


class ReasonNeeded(Refusal):
    """The reason for reading a chat is missing, too short or too long."""

    code = "reason_needed"
    sentence = (
        "Say why you read this chat, in {shortest} to {longest} characters: a case, a complaint, "
        "an order. The reason stands in the ledger before anything is shown."
    )

    def __init__(self) -> None:
        super().__init__(shortest=SHORTEST, longest=LONGEST)


class ReadingNotOpen(Refusal):
    """A chat is to be read, and nobody said why, or the half hour is over."""

    code = "reading_not_open"
    status = 403
    sentence = (
        "You have not opened this chat for reading, or its half hour is over. Say why you read it "
        "first: with POST /api/v1/audit/readings, or on the page of one of its calls. Where the "
        "instance asks for two persons, another auditor then grants it."
    )


class SecondAuditorNeeded(Refusal):
    """An auditor was about to grant or refuse what they asked for themselves."""

    code = "second_auditor_needed"
    status = 409
    sentence = (
        "This instance asks for two persons: you asked to read this chat, so another auditor "
        "grants or refuses it."
    )


def open_chat(*, chat_id: uuid.UUID, actor: str, reason: str, now: datetime) -> datetime | None:
    """Write the reason into the chat's chain and return until when the chat may be read.

    None where the instance asks for two persons: then it is asked for, and waits for another one.
    Raises `ReasonNeeded`, `InvalidCharacter`, and Chat.DoesNotExist where the chat is gone.
    """
    words = " ".join(reason.split())
    is_said = says_something(words, letters=SHORTEST // 2, different=DIFFERENT)
    if not (SHORTEST <= len(words) <= LONGEST and is_said):
        raise ReasonNeeded
    if found := UNSTORABLE.search(words):
        raise InvalidCharacter(position=found.start())
    kind, period = ("content.asked", A_DAY) if settings.TWO_PERSONS else (OPENED, HALF_AN_HOUR)
    until = now + period
    with transaction.atomic():
        locking.locked_chat(chat_id)
        data = {"reason": words, "until": until.isoformat(timespec="seconds")}
        ledger.record(kind, actor=actor, now=now, chat_id=chat_id, data=data)
    return until if kind == OPENED else None


def end(*, chat_id: uuid.UUID, actor: str, now: datetime) -> None:
    """End somebody's reading of a chat before its time.

    Raises `ReadingNotOpen`, and Chat.DoesNotExist where the chat goes meanwhile.
    """
    require_open(chat_id=chat_id, actor=actor, now=now)
    with transaction.atomic():
        locking.locked_chat(chat_id)
        # Of two that end it at once, one does.
        require_open(chat_id=chat_id, actor=actor, now=now)
        ledger.record("content.closed", actor=actor, now=now, chat_id=chat_id)


@dataclass(frozen=True, slots=True)
class Reading:
    """The permission to read one chat, as the ledger has it."""

    chat_id: uuid.UUID
    reason: str
    opened_at: datetime

    @property
    def until(self) -> datetime:
        """The time at which it ends by itself."""
        return self.opened_at + HALF_AN_HOUR


def readings(*, actor: str, now: datetime, chat_id: uuid.UUID | None = None) -> list[Reading]:
    """Return what somebody may read now, the newest first: of one chat, or of all."""
    own = Q(type__in=(OPENED, "content.closed"), actor=actor)
    granted = Q(type="content.granted", data__user=number_of(actor))
    rows = AuditEvent.objects.filter(own | granted, at__gt=now - HALF_AN_HOUR, at__lte=now)
    if chat_id is not None:
        rows = rows.filter(chat_id=chat_id)
    newest: dict[uuid.UUID, AuditEvent] = {}
    for row in rows.order_by("-pk"):
        if row.chat_id is not None:
            newest.setdefault(row.chat_id, row)
    there = existing(newest)
    return [
        Reading(chat, row.data["reason"], row.at)
        for chat, row in newest.items()
        if row.type != "content.closed" and chat in there
    ]


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """The wish of an auditor to read a chat, which another one has not answered yet."""

    # Made of the row's hash: nothing with an address of its own can be counted through.
    id: uuid.UUID
    chat_id: uuid.UUID
    # The id of who asks.
    user: int
    reason: str
    asked_at: datetime

    @property
    def until(self) -> datetime:
        """The time at which it is forgotten."""
        return self.asked_at + A_DAY


def asked(*, now: datetime, chat_id: uuid.UUID | None = None) -> list[ReadingRequest]:
    """Return what waits for a second auditor, the newest first: of one chat, or of all.

    Who asks for the same chat again says anew why.
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
            asker = row.data.get("user") or number_of(row.actor)
            newest.setdefault((row.chat_id, asker), row)
    there = existing({chat for chat, _asker in newest})
    return [
        ReadingRequest(id_of(row), chat, asker, row.data["reason"], row.at)
        for (chat, asker), row in newest.items()
        if row.type == "content.asked" and chat in there
    ]


def waiting_of(*, chat_id: uuid.UUID, actor: str, now: datetime) -> ReadingRequest | None:
    """Return what somebody asked for in a chat and waits for; None where they do not."""
    waiting = asked(now=now, chat_id=chat_id)
    return next((each for each in waiting if each.user == number_of(actor)), None)


def id_of(row: AuditEvent) -> uuid.UUID:
    """Return the id of what a row asks for."""
    return uuid.UUID(hex=row.hash[:32])


def answer(asked_id: uuid.UUID, *, is_granted: bool, actor: str, now: datetime) -> ReadingRequest:
    """Grant or refuse what another auditor asked to read; their half hour begins with it.

    Raises `NotFound` where nothing of this id waits (any more), and `SecondAuditorNeeded`.
    """
    lately = AuditEvent.objects.filter(type="content.asked", at__gt=now - A_DAY, at__lte=now)
    row = lately.filter(hash__startswith=asked_id.hex).first()
    if row is None or row.chat_id is None:
        raise NotFound
    with transaction.atomic():
        try:
            locking.locked_chat(row.chat_id)
        except Chat.DoesNotExist:
            raise NotFound from None
        # Of two that answer it at once, one does.
        waiting = {each.id: each for each in asked(now=now, chat_id=row.chat_id)}
        if asked_id not in waiting:
            raise NotFound
        if row.actor == actor:
            raise SecondAuditorNeeded
        data = {"user": number_of(row.actor), "reason": row.data["reason"], "asked": row.seq}
        kind = "content.granted" if is_granted else "content.refused"
        ledger.record(kind, actor=actor, now=now, chat_id=row.chat_id, data=data)
    return waiting[asked_id]


def told_to(user: AbstractBaseUser) -> QuerySet[AuditEvent]:
    """Return who read what in a person's chats, the newest first.

    None where the instance does not tell (`OWNERS_SEE_READINGS`).
    """
    if not settings.OWNERS_SEE_READINGS:
        return AuditEvent.objects.none()
    own = access.chats_visible_to(user=user).values("pk")
    return AuditEvent.objects.filter(type__in=CONTENT, chat_id__in=own).order_by("-pk")


def number_of(actor: str) -> int:
    """Return the id of a person whom the ledger names."""
    return int(actor.removeprefix("user:"))


def existing(chats: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Return those of the chats that are there."""
    return set(Chat.objects.filter(pk__in=list(chats)).values_list("pk", flat=True))


def open_until(*, chat_id: uuid.UUID, actor: str, now: datetime) -> datetime | None:
    """Return until when somebody may read a chat; None if they have to say why first."""
    found = readings(actor=actor, now=now, chat_id=chat_id)
    return found[0].until if found else None


def require_open(*, chat_id: uuid.UUID, actor: str, now: datetime) -> datetime:
    """Return until when somebody may read a chat. Raises `ReadingNotOpen`."""
    until = open_until(chat_id=chat_id, actor=actor, now=now)
    if until is None:
        raise ReadingNotOpen
    return until


def note_read(
    *, chat_id: uuid.UUID, call: Mapping[str, str], actor: str, now: datetime, form: str = ""
) -> None:
    """Record that a prompt is shown, or goes out as a file, before it does.

    `call`: the receipt, or the compaction, whose prompt it is.
    """
    kind = "content.downloaded" if form else "content.read"
    data = {**call, **({"form": form} if form else {})}
    with transaction.atomic():
        ledger.record(kind, actor=actor, now=now, chat_id=chat_id, data=data)
