"""A person's memory: consent, instructions and preferences.

Every function takes the owner and filters by it, so knowing an id gives no access. Changes lock the
person's settings row.
"""

import re
import unicodedata
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop

from chats.ground.commitments import compute_commitment
from chats.ground.refusals import NotFound, Refusal
from chats.ground.texts import UNSTORABLE
from chats.memory.preferences.preference_patterns import LONGEST_TEXT, Telling, is_quotable_span
from chats.memory.preferences.sensitive import is_secret
from chats.models import (
    Folder,
    ForgottenPreference,
    MemorySettings,
    Message,
    Preference,
    PreferenceEvidence,
)
from chats.record import holds, kept_texts
from chats.record.holds import UnderHold
from contextpolicy import ledger
from contextpolicy.engine.text import names

LONGEST_INSTRUCTIONS = 2_000
MOST_PREFERENCES = 300
MOST_EVIDENCE = 50
# In percent: initial confidence of a stated preference, increase per repetition, and maximum.
TOLD_CONFIDENCE = 80
AGAIN = 5
HIGHEST = 99
# In characters: a shorter part of a preference in a script without spaces may be a common word.
SHORTEST_PART = 4
# The first letter of the scripts of East Asia.
FIRST_WIDE_LETTER = 0x2E80
# Slots that apply to the person everywhere; others belong to the folder of their chat.
OF_THE_PERSON = frozenset({"name", "place", "job", "diet", "timezone"})
SLOTS = tuple(Preference.Slot.values)


class NoConsent(Refusal):
    """Your memory is off. Turn it on first."""

    code = "memory_off"
    status = 409
    sentence = gettext_noop("Memory is off. Turn it on under Settings, Memory.")


class TooManyPreferences(Refusal):
    """You have reached the limit of 300 preferences. Delete some first."""

    code = "preferences_full"
    status = 409
    sentence = gettext_noop(
        "You have reached the limit of {limit:,} preferences. Delete some first."
    )


class PreferenceInvalid(Refusal):
    """The text does not have 1 to 200 characters, has a line break, or cannot be stored."""

    code = "preference_invalid"
    status = 422
    sentence = gettext_noop(
        "This preference is not valid. Enter 1 to {limit} characters on one line, without control "
        "characters or direction overrides."
    )
    param = "text"


class UnknownSlot(Refusal):
    """The slot does not exist. The error message lists the valid slots."""

    code = "unknown_slot"
    status = 422
    sentence = gettext_noop("“{slot}” is not a kind of preference. Use one of {slots}.")
    param = "slot"


class InstructionsTooLong(Refusal):
    """The instructions have more than 2,000 characters. They are never truncated."""

    code = "too_long"
    status = 422
    sentence = gettext_noop(
        "Your instructions have {length:,} characters. The limit is {limit:,}. Shorten them by"
        " {over:,}."
    )
    param = "instructions"


class InvalidInstructions(Refusal):
    """The instructions contain a character that cannot be stored.

    The message gives its position.
    """

    code = "invalid_character"
    status = 422
    sentence = gettext_noop(
        "The instructions contain a character that cannot be stored, at position {position}. "
        "Remove it."
    )
    param = "instructions"


def get_memory_settings(owner_id: int) -> MemorySettings:
    """Return a person's settings, or unsaved defaults."""
    found = MemorySettings.objects.filter(owner=owner_id).first()
    return found or MemorySettings(owner_id=owner_id)


def lock_memory_settings(owner_id: int) -> MemorySettings:
    """Return a person's settings, locked for the transaction and created if missing."""
    return select_stored_settings(owner_id).select_for_update().get()


def select_stored_settings(owner_id: int) -> QuerySet[MemorySettings]:
    """Return a person's stored settings, created if missing."""
    MemorySettings.objects.get_or_create(owner_id=owner_id)
    return MemorySettings.objects.filter(owner=owner_id)


def is_noting(settings: MemorySettings) -> bool:
    """Return True if the person's memory is on and not paused."""
    return settings.consented_at is not None and not settings.paused


@transaction.atomic
def write_instructions(*, owner_id: int, text: str, now: datetime) -> MemorySettings:
    """Store a person's instructions for all chats; an empty string removes them.

    Raises `InstructionsTooLong` and `InvalidInstructions`.
    """
    if len(text) > LONGEST_INSTRUCTIONS:
        over = len(text) - LONGEST_INSTRUCTIONS
        raise InstructionsTooLong(length=len(text), limit=LONGEST_INSTRUCTIONS, over=over)
    if found := UNSTORABLE.search(text):
        raise InvalidInstructions(position=found.start() + 1)
    row = lock_memory_settings(owner_id)
    if row.instructions != text:
        data = {"from_characters": len(row.instructions), "to_characters": len(text)}
        actor = f"user:{owner_id}"
        kept_texts.keep_personal_text(owner_id, row.instructions, actor=actor, now=now)
        row.instructions = text
        row.save(update_fields=["instructions"])
        record_change("memory.instructions_changed", owner_id=owner_id, now=now, data=data)
    return row


@transaction.atomic
def set_consent(*, owner_id: int, agrees: bool, now: datetime) -> MemorySettings:
    """Turn a person's memory on or off. Saved preferences stay until they are deleted."""
    row = lock_memory_settings(owner_id)
    if (row.consented_at is not None) != agrees:
        row.consented_at, row.paused, row.inferring_since = (now if agrees else None), False, None
        row.save(update_fields=["consented_at", "paused", "inferring_since"])
        record_change(
            "memory.consented" if agrees else "memory.withdrawn", owner_id=owner_id, now=now
        )
    return row


def is_inferring(settings: MemorySettings) -> bool:
    """Return True if a model may read the person's messages and suggest preferences."""
    return is_noting(settings) and settings.inferring_since is not None


@transaction.atomic
def set_inferring(*, owner_id: int, agrees: bool, now: datetime) -> MemorySettings:
    """Turn suggestions from the person's future messages on or off.

    Raises `NoConsent`.
    """
    row = lock_memory_settings(owner_id)
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
    """Pause or resume a person's memory. While paused, no preferences are saved or sent."""
    row = lock_memory_settings(owner_id)
    if row.paused != paused:
        row.paused = paused
        row.save(update_fields=["paused"])
        record_change("memory.paused" if paused else "memory.resumed", owner_id=owner_id, now=now)
    return row


def select_visible_preferences(owner_id: int) -> QuerySet[Preference]:
    """Return a person's preferences, except those whose only evidence is in deleted chats."""
    alive = PreferenceEvidence.objects.filter(
        preference=OuterRef("pk"), message__branch__chat__deleted_at=None
    )
    rows = Preference.objects.filter(owner=owner_id)
    return rows.filter(Q(kind=Preference.Kind.WRITTEN) | Exists(alive))


def list_preferences(owner_id: int) -> list[Preference]:
    """Return a person's preferences with evidence: active ones first, then by slot."""
    rows = (
        select_visible_preferences(owner_id)
        .select_related("folder")
        .prefetch_related("evidence__message__branch__chat")
    )
    order = {status: place for place, status in enumerate(Preference.Status.values[1::-1])}
    return sorted(rows, key=lambda row: (order.get(row.status, 2), *build_preference_sort_key(row)))


def build_preference_sort_key(row: Preference) -> tuple[int, datetime, str]:
    """Return the sort key of a preference: by slot, then by age."""
    return SLOTS.index(row.slot), row.learned_at, str(row.pk)


def get_preference(*, owner_id: int, preference_id: uuid.UUID) -> Preference:
    """Return a preference if it belongs to the person. Raises `NotFound`."""
    row = Preference.objects.filter(owner=owner_id, pk=preference_id).first()
    if row is None:
        raise NotFound
    return row


@transaction.atomic
def write_preference(
    *, owner_id: int, slot: str, text: str, now: datetime, folder: Folder | None = None
) -> Preference:
    """Save a preference written by the person. It replaces the one in its slot.

    `folder` must be their own. Raises `NoConsent`, `UnknownSlot`, `PreferenceInvalid` and
    `TooManyPreferences`.
    """
    text = validate_preference_text(slot=slot, text=text)
    settings = lock_memory_settings(owner_id)
    if settings.consented_at is None:
        raise NoConsent
    check_preference_limit(owner_id)
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
    same = select_current_preferences(row).filter(text=text).first()
    if same is not None and same.kind == Preference.Kind.WRITTEN:
        return same
    activate_preference(
        row,
        closes=select_current_preferences(row).filter(
            Q(pk=same.pk) if same else build_replacement_filter(row)
        ),
    )
    record_change("preference.written", owner_id=owner_id, now=now, data=build_preference_data(row))
    return row


@transaction.atomic
def rewrite_preference(
    *, owner_id: int, preference_id: uuid.UUID, text: str, now: datetime
) -> Preference:
    """Change the text of a preference: a new row, written by the person, replaces the old one.

    Raises `NotFound`, `NoConsent`, `PreferenceInvalid` and `TooManyPreferences`.
    """
    settings = lock_memory_settings(owner_id)
    old = get_preference(owner_id=owner_id, preference_id=preference_id)
    text = validate_preference_text(slot=old.slot, text=text)
    if settings.consented_at is None:
        raise NoConsent
    if text == old.text:
        return old
    check_preference_limit(owner_id)
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
    activate_preference(
        row,
        closes=select_current_preferences(row).filter(Q(pk=old.pk) | build_replacement_filter(row)),
    )
    if old.status == Preference.Status.PROPOSED:
        _drop_proposed(old, now=now)
    record_change("preference.written", owner_id=owner_id, now=now, data=build_preference_data(row))
    return row


@transaction.atomic
def accept_preference(*, owner_id: int, preference_id: uuid.UUID, now: datetime) -> Preference:
    """Activate a suggested preference. Raises `NotFound` and `NoConsent`."""
    settings = lock_memory_settings(owner_id)
    row = get_preference(owner_id=owner_id, preference_id=preference_id)
    if settings.consented_at is None:
        raise NoConsent
    if row.status == Preference.Status.PROPOSED:
        row.status, row.confidence, row.learned_at = Preference.Status.CURRENT, 100, now
        activate_preference(
            row, closes=select_current_preferences(row).filter(build_replacement_filter(row))
        )
        record_change(
            "preference.accepted", owner_id=owner_id, now=now, data=build_preference_data(row)
        )
    return row


@transaction.atomic
def delete_preference(
    *, owner_id: int, preference_id: uuid.UUID, now: datetime, reopen: bool = False
) -> list[Preference]:
    """Delete a preference. It is not learned again until the person writes it.

    Only a keyed hash of the text is stored, to recognise it later. `reopen`: preferences that it
    replaced become active again. Returns the deleted rows, so that the caller can delete copies
    elsewhere. Raises `NotFound` and `UnderHold`.
    """
    settings = lock_memory_settings(owner_id)
    row = get_preference(owner_id=owner_id, preference_id=preference_id)
    check_preference_holds([row], now=now)
    _forget_text(settings, row.text)
    record_change("preference.deleted", owner_id=owner_id, now=now, data=build_preference_data(row))
    remove_preferences([row], reopen=reopen)
    return [row]


def check_preference_holds(rows: Iterable[Preference], *, now: datetime) -> None:
    """Raise `UnderHold` if a hold covers a preference's owner or one of its chats."""
    for row in rows:
        evidence = PreferenceEvidence.objects.filter(preference=row)
        chats = evidence.values_list("message__branch__chat", flat=True)
        holds.check_legal_hold(owner_id=row.owner_id, chats=chats, now=now)


def deactivate_held_preference(row: Preference, *, now: datetime) -> None:
    """Deactivate a held preference and store a pending erasure.

    The preference is not learned again. Runs in the caller's transaction.
    """
    _forget_text(lock_memory_settings(row.owner_id), row.text)
    if row.status != Preference.Status.SUPERSEDED:
        row.status, row.valid_to, row.closed_at = Preference.Status.SUPERSEDED, now, now
        row.save(update_fields=["status", "valid_to", "closed_at"])
    holds.keep_pending_erasure(owner_id=row.owner_id, preference=row, now=now)


def deactivate_folder_preferences(folder: Folder, *, now: datetime) -> None:
    """Deactivate the held preferences of a folder before its deletion.

    They no longer belong to a folder. The folder's other preferences are deleted with it.
    Runs in the caller's transaction.
    """
    for row in Preference.objects.filter(folder=folder):
        try:
            check_preference_holds([row], now=now)
        except UnderHold:
            deactivate_held_preference(row, now=now)
            row.folder = None
            row.save(update_fields=["folder"])


def store_stated_preferences(
    told: Sequence[Telling], *, message: Message, owner_id: int, folder_id: Any, now: datetime
) -> list[Preference]:
    """Save preferences that a person stated in a message, in the caller's transaction.

    Returns the created or confirmed rows. Skips deleted preferences, texts that are not literal
    parts of the message, and those over a limit. A preference that the person wrote is not
    replaced: the new one is suggested instead.
    """
    if not told:
        return []
    settings = lock_memory_settings(owner_id)
    if not is_noting(settings):
        return []
    rows = []
    for one in told:
        row = _noted(
            one, settings=settings, message=message, folder_id=folder_id, owner_id=owner_id, now=now
        )
        rows += [row] if row else []
    return rows


def withdraw_preferences(
    texts: Sequence[str], *, message: Message, owner_id: int, now: datetime
) -> list[Preference]:
    """Deactivate preferences that a person asks to forget, in the caller's transaction.

    A text matches a preference if it contains the preference, or if all of its words are in the
    preference. Returns the deactivated rows; the memory page still lists them as superseded.
    """
    if not texts or not is_noting(lock_memory_settings(owner_id)):
        return []
    rows = select_visible_preferences(owner_id).filter(closed_at=None)
    named = [row for row in rows if any(is_preference_named(text, row.text) for text in texts)]
    for row in named:
        row.status, row.valid_to, row.closed_at = Preference.Status.SUPERSEDED, now, now
        row.save(update_fields=["status", "valid_to", "closed_at"])
        record_change(
            "preference.withdrawn",
            owner_id=owner_id,
            now=now,
            data=build_preference_data(row),
            message=message,
        )
    return named


def is_preference_named(said: str, text: str) -> bool:
    """Return True if a text that a person asks to forget matches a preference."""
    one, other = normalise_for_comparison(said), normalise_for_comparison(text)
    if _is_part_of(other, one):
        return True
    asked, known = set(one.split()), set(other.split())
    if len(asked) > 1:
        return asked <= known
    # A script without spaces has one word for each sentence.
    return len(one) >= SHORTEST_PART and is_wide_script(one) and one in other


def _is_part_of(part: str, text: str) -> bool:
    """Return True if a text contains the part as whole words."""
    before = r"" if is_wide_script(part[:1]) else r"(?<!\w)"
    after = r"" if is_wide_script(part[-1:]) else r"(?!\w)"
    return re.search(f"{before}{re.escape(part)}{after}", text) is not None


def is_wide_script(text: str) -> bool:
    """Return True if a text has letters of a script that uses no spaces between words."""
    return any(ord(letter) >= FIRST_WIDE_LETTER for letter in text)


def _noted(
    told: Telling,
    *,
    settings: MemorySettings,
    message: Message,
    owner_id: int,
    folder_id: Any,
    now: datetime,
) -> Preference | None:
    """Save one stated preference, or confirm it if it exists. None if it was not saved."""
    digest = hash_preference_text(told.text, settings=settings)
    forgotten = ForgottenPreference.objects.filter(owner=owner_id, digest=digest)
    if not is_quotable_span(told, text=message.text) or is_secret(told.text) or forgotten.exists():
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
        (
            old
            for old in select_current_preferences(row)
            if normalise_for_comparison(old.text) == normalise_for_comparison(told.text)
        ),
        None,
    )
    if known is not None:
        return confirm_preference(known, told=told, message=message, now=now)
    if Preference.objects.filter(owner=owner_id).count() >= MOST_PREFERENCES:
        return None
    closes = select_current_preferences(row).filter(build_replacement_filter(row))
    newer = closes.filter(valid_from__gt=row.valid_from).first()
    if newer is not None:
        # This preference was stated before the active one but read later, so it replaces nothing.
        row.status, row.superseded_by = Preference.Status.SUPERSEDED, newer
        row.valid_to, row.closed_at = newer.valid_from, now
        row.save(force_insert=True)
    elif closes.filter(kind=Preference.Kind.WRITTEN).exists():
        row.status = Preference.Status.PROPOSED
        row.save(force_insert=True)
    else:
        activate_preference(row, closes=closes)
    add_preference_evidence(row, told=told, message=message)
    record_change(
        "preference.noted",
        owner_id=owner_id,
        now=now,
        data=build_preference_data(row),
        message=message,
    )
    return row


def confirm_preference(
    row: Preference, *, told: Telling, message: Message, now: datetime
) -> Preference:
    """Add evidence to a preference that was stated again, which raises its confidence."""
    if add_preference_evidence(row, told=told, message=message):
        if row.kind != Preference.Kind.WRITTEN:
            row.confidence = min(row.confidence + AGAIN, HIGHEST)
            row.save(update_fields=["confidence"])
        data = build_preference_data(row)
        record_change(
            "preference.noted", owner_id=row.owner_id, now=now, data=data, message=message
        )
    return row


def forget_messages(messages: QuerySet[Message]) -> list[Preference]:
    """Remove evidence that comes from these messages, in the caller's transaction.

    A preference that the person did not write is deleted with its last evidence. The preferences
    that it replaced become active again. Returns the deleted rows, so that the caller can delete
    copies elsewhere.
    """
    gone = PreferenceEvidence.objects.filter(message__in=messages)
    ids = list(gone.values_list("preference", flat=True).distinct())
    if not ids:
        return []
    owners = Preference.objects.filter(pk__in=ids).values_list("owner", flat=True).distinct()
    for owner_id in sorted(owners):
        lock_memory_settings(owner_id)
    gone.delete()
    rows = Preference.objects.filter(pk__in=ids).exclude(kind=Preference.Kind.WRITTEN)
    return remove_preferences(rows.annotate(left=Count("evidence")).filter(left=0), reopen=True)


def remove_preferences(rows: Iterable[Preference], *, reopen: bool) -> list[Preference]:
    """Delete preferences. The caller has locked the settings of their owners.

    `reopen`: preferences that they replaced become active again.
    """
    removed = list(rows)
    ids = [row.pk for row in removed]
    closed = list(Preference.objects.filter(superseded_by__in=ids).exclude(pk__in=ids))
    Preference.objects.filter(pk__in=ids).delete()
    for row in sorted(closed, key=lambda row: row.valid_from, reverse=True) if reopen else ():
        row.status, row.superseded_by = Preference.Status.CURRENT, None
        row.valid_to = row.closed_at = None
        if not select_current_preferences(row).filter(build_replacement_filter(row)).exists():
            row.save(update_fields=["status", "superseded_by", "valid_to", "closed_at"])
    return removed


def export_memory(owner_id: int) -> dict[str, Any]:
    """Return all memory of a person as JSON data."""
    settings = get_memory_settings(owner_id)
    return {
        "instructions": settings.instructions,
        "consented_at": _time(settings.consented_at),
        "paused": settings.paused,
        "inferring_since": _time(settings.inferring_since),
        "preferences": [serialize_preference(row) for row in list_preferences(owner_id)],
    }


def serialize_preference(row: Preference) -> dict[str, Any]:
    """Return one preference with its sources as JSON data."""
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


def hash_preference_text(text: str, *, settings: MemorySettings) -> str:
    """Return the keyed hash that recognises a deleted preference."""
    return compute_commitment(normalise_for_comparison(text), salt=settings.salt)


def normalise_for_comparison(text: str) -> str:
    """Return a text normalised for comparison, without differences in case, width and spaces."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(plain.split()).rstrip(".!,;。！")


def validate_preference_text(*, slot: str, text: str) -> str:
    """Return the text without surrounding spaces. Raises `UnknownSlot`, `PreferenceInvalid`."""
    if slot not in SLOTS:
        raise UnknownSlot(slot=slot[:40], slots=", ".join(SLOTS))
    text = text.strip()
    if len(text) > LONGEST_TEXT or not names.is_allowed_name(text):
        raise PreferenceInvalid(limit=LONGEST_TEXT)
    return text


def check_preference_limit(owner_id: int) -> None:
    """Raise `TooManyPreferences` if a person has reached the limit."""
    if Preference.objects.filter(owner=owner_id).count() >= MOST_PREFERENCES:
        raise TooManyPreferences(limit=MOST_PREFERENCES)


def select_current_preferences(row: Preference) -> QuerySet[Preference]:
    """Return the active preferences in the row's slot and scope."""
    return Preference.objects.filter(
        owner=row.owner_id,
        folder=row.folder_id,
        slot=row.slot,
        status=Preference.Status.CURRENT,
    ).exclude(pk=row.pk)


def build_replacement_filter(row: Preference) -> Q:
    """Return the condition for the rows in its slot that a new row replaces.

    Notes are never replaced.
    """
    return Q(pk__in=[]) if row.slot == Preference.Slot.NOTE else Q()


def activate_preference(row: Preference, *, closes: QuerySet[Preference]) -> None:
    """Save a preference as current, and mark the rows that it replaces as superseded."""
    closed = list(closes.values_list("pk", flat=True))
    rows = Preference.objects.filter(pk__in=closed)
    rows.update(
        status=Preference.Status.SUPERSEDED, valid_to=row.valid_from, closed_at=row.learned_at
    )
    row.save()
    rows.update(superseded_by=row)


def add_preference_evidence(row: Preference, *, told: Telling, message: Message) -> bool:
    """Add evidence. Return False if it is already stored or the limit is reached."""
    if row.evidence.count() >= MOST_EVIDENCE:
        return False
    _, is_new = PreferenceEvidence.objects.get_or_create(
        preference=row, message=message, defaults={"start": told.start, "end": told.end}
    )
    return is_new


def _drop_proposed(row: Preference, *, now: datetime) -> None:
    """Delete a suggestion that was reworded; deactivate it if it is held."""
    try:
        check_preference_holds([row], now=now)
    except UnderHold:
        deactivate_held_preference(row, now=now)
    else:
        remove_preferences([row], reopen=False)


def _forget_text(settings: MemorySettings, text: str) -> None:
    """Store a keyed hash of a text, so that it is not learned again."""
    ForgottenPreference.objects.get_or_create(
        owner_id=settings.owner_id, digest=hash_preference_text(text, settings=settings)
    )


def _remember(settings: MemorySettings, *, text: str) -> None:
    """Remove the hash of a deleted text, because the person writes the text again."""
    digest = hash_preference_text(text, settings=settings)
    ForgottenPreference.objects.filter(owner=settings.owner_id, digest=digest).delete()


def build_preference_data(row: Preference) -> dict[str, Any]:
    """Return the ledger data of a preference, without its text."""
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
    """Record a change in the ledger.

    A preference from a chat is recorded in the chat's chain, others in the instance's chain.
    """
    ledger.record_event(
        event,
        actor="worker" if message else f"user:{owner_id}",
        now=now,
        chat_id=message.branch.chat_id if message else None,
        data={**(data or {}), **({"message": str(message.pk)} if message else {})},
    )


def _time(at: datetime | None) -> str | None:
    return at.astimezone(timezone.get_default_timezone()).isoformat() if at else None
