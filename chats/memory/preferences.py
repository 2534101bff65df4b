"""A person's memory: what they agreed to, what they wrote, and what is kept of them.

The owner is an argument of every function, and each row is asked for with them: nobody's rows can
be reached by an id alone. The row of their settings is the lock under which rows change.
"""

import unicodedata
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from chats.ground.refusals import NotFound, Refusal
from chats.ground.seals import commitment
from chats.memory.sensitive import is_secret
from chats.memory.told import LONGEST_TEXT, Telling, is_span
from chats.models import (
    Folder,
    ForgottenPreference,
    MemorySettings,
    Message,
    Preference,
    PreferenceEvidence,
)
from chats.record import holds
from chats.record.holds import UnderHold
from chats.record.messages import UNSTORABLE
from contextpolicy import ledger
from contextpolicy.engine import names

LONGEST_INSTRUCTIONS = 2_000
MOST_PREFERENCES = 300
MOST_EVIDENCE = 50
# In percent: what was told at first, and by how much each further time raises it.
TOLD_CONFIDENCE = 80
AGAIN = 5
HIGHEST = 99
# Of the person themselves, wherever they write; other slots belong to the folder of their chat.
OF_THE_PERSON = frozenset({"name", "place", "job", "diet", "timezone"})
SLOTS = tuple(Preference.Slot.values)


class NoConsent(Refusal):
    """The person has not agreed that anything is kept of them."""

    code = "memory_off"
    status = 409
    sentence = "Memory is off. Turn it on under Settings, Memory."


class TooManyPreferences(Refusal):
    """The person has as many preferences as can be kept."""

    code = "preferences_full"
    status = 409
    sentence = "You have {limit:,} preferences and cannot add another. Delete some first."


class PreferenceInvalid(Refusal):
    """The text is empty, too long, has a line end, or cannot be stored."""

    code = "preference_invalid"
    status = 422
    sentence = (
        "A preference has 1 to {limit} characters in one line. Control characters and direction"
        " overrides are not allowed."
    )
    param = "text"


class UnknownSlot(Refusal):
    """There is no such kind of preference."""

    code = "unknown_slot"
    status = 422
    sentence = "There is no kind of preference called “{slot}”. Use one of {slots}."
    param = "slot"


class InstructionsTooLong(Refusal):
    """The instructions are over their limit. Refused, never cut."""

    code = "too_long"
    status = 422
    sentence = (
        "Your instructions have {length:,} characters; {limit:,} are allowed. Shorten them by"
        " {over:,}."
    )
    param = "instructions"


class InvalidInstructions(Refusal):
    """The instructions have a character that no store keeps."""

    code = "invalid_character"
    status = 422
    sentence = "The instructions have a character that cannot be stored, at position {position}."
    param = "instructions"


def settings_of(owner_id: int) -> MemorySettings:
    """Return a person's settings; those of a person who never had any are not stored."""
    found = MemorySettings.objects.filter(owner=owner_id).first()
    return found or MemorySettings(owner_id=owner_id)


def locked(owner_id: int) -> MemorySettings:
    """Return a person's settings, locked for the transaction; made where there are none."""
    return stored_settings(owner_id).select_for_update().get()


def stored_settings(owner_id: int) -> QuerySet[MemorySettings]:
    """Return a person's settings as stored; made where there are none."""
    MemorySettings.objects.get_or_create(owner_id=owner_id)
    return MemorySettings.objects.filter(owner=owner_id)


def is_noting(settings: MemorySettings) -> bool:
    """Tell whether something may be noted of the person."""
    return settings.consented_at is not None and not settings.paused


@transaction.atomic
def write_instructions(*, owner_id: int, text: str, now: datetime) -> MemorySettings:
    """Store what a person wrote for all of their chats; an empty text takes it away.

    Raises `InstructionsTooLong` and `InvalidInstructions`.
    """
    if len(text) > LONGEST_INSTRUCTIONS:
        over = len(text) - LONGEST_INSTRUCTIONS
        raise InstructionsTooLong(length=len(text), limit=LONGEST_INSTRUCTIONS, over=over)
    if found := UNSTORABLE.search(text):
        raise InvalidInstructions(position=found.start() + 1)
    row = locked(owner_id)
    if row.instructions != text:
        data = {"from_characters": len(row.instructions), "to_characters": len(text)}
        row.instructions = text
        row.save(update_fields=["instructions"])
        record_change("memory.instructions_changed", owner_id=owner_id, now=now, data=data)
    return row


@transaction.atomic
def set_consent(*, owner_id: int, agrees: bool, now: datetime) -> MemorySettings:
    """Turn a person's memory on or off. What is kept stays until they delete it."""
    row = locked(owner_id)
    if (row.consented_at is not None) != agrees:
        row.consented_at, row.paused, row.inferring_since = (now if agrees else None), False, None
        row.save(update_fields=["consented_at", "paused", "inferring_since"])
        record_change(
            "memory.consented" if agrees else "memory.withdrawn", owner_id=owner_id, now=now
        )
    return row


def is_inferring(settings: MemorySettings) -> bool:
    """Tell whether a model may read what the person says, and propose preferences."""
    return is_noting(settings) and settings.inferring_since is not None


@transaction.atomic
def set_inferring(*, owner_id: int, agrees: bool, now: datetime) -> MemorySettings:
    """Let a model propose preferences of what the person says from now on, or no longer.

    Raises `NoConsent`.
    """
    row = locked(owner_id)
    if agrees and row.consented_at is None:
        raise NoConsent
    if (row.inferring_since is not None) != agrees:
        row.inferring_since = now if agrees else None
        row.save(update_fields=["inferring_since"])
        event = "memory.inferring_agreed" if agrees else "memory.inferring_withdrawn"
        record_change(event, owner_id=owner_id, now=now)
    return row


@transaction.atomic
def set_paused(*, owner_id: int, paused: bool, now: datetime) -> MemorySettings:
    """Pause a person's memory, or go on with it: meanwhile nothing is noted and nothing is sent."""
    row = locked(owner_id)
    if row.paused != paused:
        row.paused = paused
        row.save(update_fields=["paused"])
        record_change("memory.paused" if paused else "memory.resumed", owner_id=owner_id, now=now)
    return row


def living(owner_id: int) -> QuerySet[Preference]:
    """Return a person's preferences, but not those whose evidence lies in deleted chats alone."""
    alive = PreferenceEvidence.objects.filter(
        preference=OuterRef("pk"), message__branch__chat__deleted_at=None
    )
    rows = Preference.objects.filter(owner=owner_id)
    return rows.filter(Q(kind=Preference.Kind.WRITTEN) | Exists(alive))


def listed(owner_id: int) -> list[Preference]:
    """Return a person's preferences by slot, each with its evidence; what is in use first."""
    rows = (
        living(owner_id)
        .select_related("folder")
        .prefetch_related("evidence__message__branch__chat")
    )
    order = {status: place for place, status in enumerate(Preference.Status.values[1::-1])}
    return sorted(rows, key=lambda row: (order.get(row.status, 2), *place_of(row)))


def place_of(row: Preference) -> tuple[int, datetime, str]:
    """Return where a preference stands among others: by slot, then by age."""
    return SLOTS.index(row.slot), row.learned_at, str(row.pk)


def preference_for(*, owner_id: int, preference_id: uuid.UUID) -> Preference:
    """Return a preference, if it is the person's. Raises `NotFound`."""
    row = Preference.objects.filter(owner=owner_id, pk=preference_id).first()
    if row is None:
        raise NotFound
    return row


@transaction.atomic
def write(
    *, owner_id: int, slot: str, text: str, now: datetime, folder: Folder | None = None
) -> Preference:
    """Store a preference in the person's own words; it takes the place of what is in its slot.

    `folder` is their own. Raises `NoConsent`, `UnknownSlot`, `PreferenceInvalid` and
    `TooManyPreferences`.
    """
    text = check(slot=slot, text=text)
    settings = locked(owner_id)
    if settings.consented_at is None:
        raise NoConsent
    check_room(owner_id)
    _remember(settings, text=text)
    row = Preference(
        owner_id=owner_id,
        folder=folder,
        slot=slot,
        text=text,
        kind=Preference.Kind.WRITTEN,
        status=Preference.Status.CURRENT,
        valid_from=now,
        learned_at=now,
    )
    same = current_beside(row).filter(text=text).first()
    if same is not None and same.kind == Preference.Kind.WRITTEN:
        return same
    put(row, closes=current_beside(row).filter(Q(pk=same.pk) if same else has_one_value(row)))
    record_change("preference.written", owner_id=owner_id, now=now, data=data_of(row))
    return row


@transaction.atomic
def rewrite(*, owner_id: int, preference_id: uuid.UUID, text: str, now: datetime) -> Preference:
    """Put a preference in other words: a new row, written by the person, closes the old one.

    Raises `NotFound`, `NoConsent`, `PreferenceInvalid` and `TooManyPreferences`.
    """
    settings = locked(owner_id)
    old = preference_for(owner_id=owner_id, preference_id=preference_id)
    text = check(slot=old.slot, text=text)
    if settings.consented_at is None:
        raise NoConsent
    if text == old.text:
        return old
    check_room(owner_id)
    _remember(settings, text=text)
    row = Preference(
        owner_id=owner_id,
        folder_id=old.folder_id,
        slot=old.slot,
        text=text,
        kind=Preference.Kind.WRITTEN,
        status=Preference.Status.CURRENT,
        valid_from=now,
        learned_at=now,
    )
    put(row, closes=current_beside(row).filter(Q(pk=old.pk) | has_one_value(row)))
    if old.status == Preference.Status.PROPOSED:
        _drop_proposed(old, now=now)
    record_change("preference.written", owner_id=owner_id, now=now, data=data_of(row))
    return row


@transaction.atomic
def accept(*, owner_id: int, preference_id: uuid.UUID, now: datetime) -> Preference:
    """Let a proposed preference count. Raises `NotFound` and `NoConsent`."""
    settings = locked(owner_id)
    row = preference_for(owner_id=owner_id, preference_id=preference_id)
    if settings.consented_at is None:
        raise NoConsent
    if row.status == Preference.Status.PROPOSED:
        row.status, row.confidence, row.learned_at = Preference.Status.CURRENT, 100, now
        put(row, closes=current_beside(row).filter(has_one_value(row)))
        record_change("preference.accepted", owner_id=owner_id, now=now, data=data_of(row))
    return row


@transaction.atomic
def delete(
    *, owner_id: int, preference_id: uuid.UUID, now: datetime, reopen: bool = False
) -> list[Preference]:
    """Delete a preference; it is not learned again until the person writes it.

    Its words stay in no row; a keyed hash knows them again. `reopen`: what it had closed is in use
    again, as if it had never been noted. Returns what was deleted, for copies of it elsewhere.
    Raises `NotFound` and `UnderHold`.
    """
    settings = locked(owner_id)
    row = preference_for(owner_id=owner_id, preference_id=preference_id)
    check_free([row], now=now)
    _forget_text(settings, row.text)
    record_change("preference.deleted", owner_id=owner_id, now=now, data=data_of(row))
    remove([row], reopen=reopen)
    return [row]


def check_free(rows: Iterable[Preference], *, now: datetime) -> None:
    """Raise `UnderHold` where a hold covers a preference's person, or a chat that it is from."""
    for row in rows:
        evidence = PreferenceEvidence.objects.filter(preference=row)
        chats = evidence.values_list("message__branch__chat", flat=True)
        holds.check_free(owner_id=row.owner_id, chats=chats, now=now)


def put_aside(row: Preference, *, now: datetime) -> None:
    """Take a held preference out of use and keep the wish to erase it.

    It is not learned again. Runs in the caller's transaction.
    """
    _forget_text(locked(row.owner_id), row.text)
    if row.status != Preference.Status.SUPERSEDED:
        row.status, row.valid_to, row.closed_at = Preference.Status.SUPERSEDED, now, now
        row.save(update_fields=["status", "valid_to", "closed_at"])
    holds.keep_wish(owner_id=row.owner_id, preference=row, now=now)


def put_aside_in(folder: Folder, *, now: datetime) -> None:
    """Keep the held preferences of a folder that is about to go, out of use and in no folder.

    The others go with it. Runs in the caller's transaction.
    """
    for row in Preference.objects.filter(folder=folder):
        try:
            check_free([row], now=now)
        except UnderHold:
            put_aside(row, now=now)
            row.folder = None
            row.save(update_fields=["folder"])


def note(
    told: Sequence[Telling], *, message: Message, owner_id: int, folder_id: Any, now: datetime
) -> list[Preference]:
    """Keep what a person told in a message of their own, in the caller's transaction.

    Returns the rows that it made or confirmed. What was deleted, what is no literal part of the
    message, and what is over a limit is left out. A row that the person wrote is not replaced: then
    the new one is proposed.
    """
    if not told:
        return []
    settings = locked(owner_id)
    if not is_noting(settings):
        return []
    rows = []
    for one in told:
        row = _noted(
            one, settings=settings, message=message, folder_id=folder_id, owner_id=owner_id, now=now
        )
        rows += [row] if row else []
    return rows


def withdraw(
    texts: Sequence[str], *, message: Message, owner_id: int, now: datetime
) -> list[Preference]:
    """Take preferences out of use that a person asks to forget, in the caller's transaction.

    A text names a preference if it says the same, or if all words of the one are in the other.
    Returns the rows that are no longer used; their page still lists them as superseded.
    """
    if not texts or not is_noting(locked(owner_id)):
        return []
    rows = living(owner_id).filter(closed_at=None)
    named = [row for row in rows if any(is_named(text, row.text) for text in texts)]
    for row in named:
        row.status, row.valid_to, row.closed_at = Preference.Status.SUPERSEDED, now, now
        row.save(update_fields=["status", "valid_to", "closed_at"])
        record_change(
            "preference.withdrawn", owner_id=owner_id, now=now, data=data_of(row), message=message
        )
    return named


def is_named(said: str, text: str) -> bool:
    """Return True if what a person said names a preference by its words."""
    one, other = folded(said), folded(text)
    if other in one:
        return True
    asked, known = set(one.split()), set(other.split())
    return len(asked) > 1 and asked <= known


def _noted(
    told: Telling,
    *,
    settings: MemorySettings,
    message: Message,
    owner_id: int,
    folder_id: Any,
    now: datetime,
) -> Preference | None:
    """Keep one thing told, or confirm it where it is known already."""
    digest = digest_of(told.text, settings=settings)
    forgotten = ForgottenPreference.objects.filter(owner=owner_id, digest=digest)
    if not is_span(told, text=message.text) or is_secret(told.text) or forgotten.exists():
        return None
    row = Preference(
        owner_id=owner_id,
        folder_id=None if told.slot in OF_THE_PERSON else folder_id,
        slot=told.slot,
        text=told.text,
        kind=Preference.Kind.TOLD,
        status=Preference.Status.CURRENT,
        confidence=TOLD_CONFIDENCE,
        valid_from=message.created_at,
        learned_at=now,
    )
    known = next(
        (old for old in current_beside(row) if folded(old.text) == folded(told.text)), None
    )
    if known is not None:
        return confirm(known, told=told, message=message, now=now)
    if Preference.objects.filter(owner=owner_id).count() >= MOST_PREFERENCES:
        return None
    closes = current_beside(row).filter(has_one_value(row))
    newer = closes.filter(valid_from__gt=row.valid_from).first()
    if newer is not None:
        # Said before what is in use now, and read after it: it closes nothing.
        row.status, row.superseded_by = Preference.Status.SUPERSEDED, newer
        row.valid_to, row.closed_at = newer.valid_from, now
        row.save(force_insert=True)
    elif closes.filter(kind=Preference.Kind.WRITTEN).exists():
        row.status = Preference.Status.PROPOSED
        row.save(force_insert=True)
    else:
        put(row, closes=closes)
    give(row, told=told, message=message)
    record_change(
        "preference.noted", owner_id=owner_id, now=now, data=data_of(row), message=message
    )
    return row


def confirm(row: Preference, *, told: Telling, message: Message, now: datetime) -> Preference:
    """Give a preference that is said again one more evidence, which raises its confidence."""
    if give(row, told=told, message=message):
        if row.kind != Preference.Kind.WRITTEN:
            row.confidence = min(row.confidence + AGAIN, HIGHEST)
            row.save(update_fields=["confidence"])
        data = data_of(row)
        record_change(
            "preference.noted", owner_id=row.owner_id, now=now, data=data, message=message
        )
    return row


def forget_messages(messages: QuerySet[Message]) -> list[Preference]:
    """Take the evidence of messages away, in the caller's transaction.

    What nobody wrote and has no evidence left is deleted, and what it had closed is in use again.
    Returns what was deleted, for copies of it elsewhere.
    """
    gone = PreferenceEvidence.objects.filter(message__in=messages)
    ids = list(gone.values_list("preference", flat=True).distinct())
    if not ids:
        return []
    owners = Preference.objects.filter(pk__in=ids).values_list("owner", flat=True).distinct()
    for owner_id in sorted(owners):
        locked(owner_id)
    gone.delete()
    rows = Preference.objects.filter(pk__in=ids).exclude(kind=Preference.Kind.WRITTEN)
    return remove(rows.annotate(left=Count("evidence")).filter(left=0), reopen=True)


def remove(rows: Iterable[Preference], *, reopen: bool) -> list[Preference]:
    """Delete rows of locked people; `reopen`: what each had closed is in use again."""
    removed = list(rows)
    ids = [row.pk for row in removed]
    closed = list(Preference.objects.filter(superseded_by__in=ids).exclude(pk__in=ids))
    Preference.objects.filter(pk__in=ids).delete()
    for row in sorted(closed, key=lambda row: row.valid_from, reverse=True) if reopen else ():
        row.status, row.superseded_by = Preference.Status.CURRENT, None
        row.valid_to = row.closed_at = None
        if not current_beside(row).filter(has_one_value(row)).exists():
            row.save(update_fields=["status", "superseded_by", "valid_to", "closed_at"])
    return removed


def exported(owner_id: int) -> dict[str, Any]:
    """Return everything that is kept of a person, JSON-ready."""
    settings = settings_of(owner_id)
    return {
        "instructions": settings.instructions,
        "consented_at": _time(settings.consented_at),
        "paused": settings.paused,
        "inferring_since": _time(settings.inferring_since),
        "preferences": [shown(row) for row in listed(owner_id)],
    }


def shown(row: Preference) -> dict[str, Any]:
    """Return one preference, JSON-ready, with the places it was taken from."""
    return {
        "id": str(row.pk),
        "slot": row.slot,
        "text": row.text,
        "kind": row.kind,
        "status": row.status,
        "confidence": row.confidence,
        "folder": str(row.folder_id) if row.folder_id else None,
        "valid_from": _time(row.valid_from),
        "valid_to": _time(row.valid_to),
        "learned_at": _time(row.learned_at),
        "evidence": [
            {
                "chat": str(item.message.branch.chat_id),
                "message": str(item.message_id),
                "start": item.start,
                "end": item.end,
            }
            for item in row.evidence.all()
        ],
    }


def digest_of(text: str, *, settings: MemorySettings) -> str:
    """Return the keyed hash by which a deleted preference is known again."""
    return commitment(folded(text), salt=settings.salt)


def folded(text: str) -> str:
    """Return a text as two that say the same are compared: whatever its case, width and spaces."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(plain.split()).rstrip(".!,;。！")


def check(*, slot: str, text: str) -> str:
    """Return the text without the space around it. Raises `UnknownSlot`, `PreferenceInvalid`."""
    if slot not in SLOTS:
        raise UnknownSlot(slot=slot[:40], slots=", ".join(SLOTS))
    text = text.strip()
    if len(text) > LONGEST_TEXT or not names.is_sound(text):
        raise PreferenceInvalid(limit=LONGEST_TEXT)
    return text


def check_room(owner_id: int) -> None:
    """Raise `TooManyPreferences` for a person who has as many as can be kept."""
    if Preference.objects.filter(owner=owner_id).count() >= MOST_PREFERENCES:
        raise TooManyPreferences(limit=MOST_PREFERENCES)


def current_beside(row: Preference) -> QuerySet[Preference]:
    """Return what is in use in the row's slot and scope."""
    return Preference.objects.filter(
        owner=row.owner_id,
        folder=row.folder_id,
        slot=row.slot,
        status=Preference.Status.CURRENT,
    ).exclude(pk=row.pk)


def has_one_value(row: Preference) -> Q:
    """Return which of the rows in a slot a new one closes: all of them, or no notes."""
    return Q(pk__in=[]) if row.slot == Preference.Slot.NOTE else Q()


def put(row: Preference, *, closes: QuerySet[Preference]) -> None:
    """Store a row that is in use, and close what it takes the place of."""
    closed = list(closes.values_list("pk", flat=True))
    rows = Preference.objects.filter(pk__in=closed)
    rows.update(
        status=Preference.Status.SUPERSEDED, valid_to=row.valid_from, closed_at=row.learned_at
    )
    row.save()
    rows.update(superseded_by=row)


def give(row: Preference, *, told: Telling, message: Message) -> bool:
    """Add an evidence; return False if the row has it already, or as many as can be kept."""
    if row.evidence.count() >= MOST_EVIDENCE:
        return False
    _, is_new = PreferenceEvidence.objects.get_or_create(
        preference=row, message=message, defaults={"start": told.start, "end": told.end}
    )
    return is_new


def _drop_proposed(row: Preference, *, now: datetime) -> None:
    """Delete a proposed preference that was put in other words; put it aside while it is held."""
    try:
        check_free([row], now=now)
    except UnderHold:
        put_aside(row, now=now)
    else:
        remove([row], reopen=False)


def _forget_text(settings: MemorySettings, text: str) -> None:
    """Know a text again by a keyed hash, so that it is not learned once more."""
    ForgottenPreference.objects.get_or_create(
        owner_id=settings.owner_id, digest=digest_of(text, settings=settings)
    )


def _remember(settings: MemorySettings, *, text: str) -> None:
    """Forget that a text was deleted once: the person writes it themselves now."""
    digest = digest_of(text, settings=settings)
    ForgottenPreference.objects.filter(owner=settings.owner_id, digest=digest).delete()


def data_of(row: Preference) -> dict[str, Any]:
    """Return what the ledger says of a preference: never its text."""
    return {
        "preference": str(row.pk),
        "slot": row.slot,
        "kind": row.kind,
        "status": row.status,
    }


def record_change(
    event: str,
    *,
    owner_id: int,
    now: datetime,
    data: Mapping[str, Any] | None = None,
    message: Message | None = None,
) -> None:
    """Record a change: a note in its chat's chain, an act of the person in the instance's."""
    ledger.record(
        event,
        actor="worker" if message else f"user:{owner_id}",
        now=now,
        chat_id=message.branch.chat_id if message else None,
        data={**(data or {}), **({"message": str(message.pk)} if message else {})},
    )


def _time(at: datetime | None) -> str | None:
    return at.astimezone(timezone.get_default_timezone()).isoformat() if at else None
