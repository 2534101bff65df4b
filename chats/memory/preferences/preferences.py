"""A user's memory: consent, instructions and preferences.

Every function takes the owner and filters by it, so knowing an id gives no access. Changes lock the
user's settings row.
"""

import uuid
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext_noop

from chats.ground.refusals import NotFound, Refusal
from chats.memory.preferences.memory_settings import (
    NoConsent,
    lock_memory_settings,
)
from chats.memory.preferences.preference_changes import (
    build_preference_data,
    record_change,
)
from chats.memory.preferences.preference_patterns import Telling
from chats.memory.preferences.preference_texts import (
    SLOTS,
    hash_preference_text,
    validate_preference_text,
)
from chats.models import (
    Folder,
    ForgottenPreference,
    MemorySettings,
    Message,
    PendingErasure,
    Preference,
    PreferenceEvidence,
)
from chats.record import holds
from chats.record.holds import UnderHold

MOST_PREFERENCES = 300
MOST_EVIDENCE = 50
# In percent: initial confidence of a stated preference, increase per repetition, and maximum.
STATED_CONFIDENCE = 80
AGAIN = 5
HIGHEST = 99
# Slots that apply to the user everywhere; others belong to the folder of their chat.
OF_THE_PERSON = frozenset({"name", "place", "job", "diet", "timezone"})


class TooManyPreferences(Refusal):
    """You have reached the limit of 300 preferences. Delete some first."""

    code = "preferences_full"
    status = 409
    sentence = gettext_noop(
        "You have reached the limit of {limit:,} preferences. Delete some first."
    )


def select_visible_preferences(owner_id: int) -> QuerySet[Preference]:
    """Return a user's preferences, except those whose only evidence is in deleted chats."""
    alive = PreferenceEvidence.objects.filter(
        preference=OuterRef("pk"), message__branch__chat__deleted_at=None
    )
    rows = Preference.objects.filter(owner=owner_id)
    return rows.filter(Q(kind=Preference.Kind.WRITTEN) | Exists(alive))


def select_kept_preferences(owner_id: int) -> QuerySet[Preference]:
    """Return a user's preferences, except those only from temporary chats that were deleted."""
    evidence = PreferenceEvidence.objects.filter(preference=OuterRef("pk"))
    chat = "message__branch__chat"
    kept = evidence.filter(Q(**{f"{chat}__deleted_at": None}) | Q(**{f"{chat}__temporary": False}))
    return Preference.objects.filter(Exists(kept) | ~Exists(evidence), owner=owner_id)


def list_preferences(owner_id: int) -> list[Preference]:
    """Return a user's preferences with evidence: active ones first, then by slot."""
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
    """Return a preference if it belongs to the user. Raises `NotFound`."""
    row = Preference.objects.filter(owner=owner_id, pk=preference_id).first()
    if row is None:
        raise NotFound
    return row


@transaction.atomic
def write_preference(
    *, owner_id: int, slot: str, text: str, now: datetime, folder: Folder | None = None
) -> Preference:
    """Save a preference written by the user. It replaces the active ones in its slot and folder.

    A note replaces only an active note with the same text. If the user already wrote this text,
    that preference is returned. `folder` must be their own. Raises `NoConsent`, `UnknownSlot`,
    `PreferenceInvalid` and `TooManyPreferences`.
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
    """Change the text of a preference: a new row, written by the user, replaces the old one.

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
        _drop_suggestion(old, now=now)
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
    """Delete a preference. It is not learned again until the user writes it.

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

    They no longer belong to a folder. The caller has deleted the others. Runs in the caller's
    transaction.
    """
    for row in Preference.objects.filter(folder=folder):
        try:
            check_preference_holds([row], now=now)
        except UnderHold:
            deactivate_held_preference(row, now=now)
            row.folder = None
            row.save(update_fields=["folder"])


def confirm_preference(
    row: Preference, *, statement: Telling, message: Message, now: datetime
) -> Preference:
    """Add evidence to a preference that was stated again.

    New evidence raises its confidence, unless the user wrote the preference.
    """
    if add_preference_evidence(row, statement=statement, message=message):
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

    A preference that the user did not write is deleted with its last evidence. The preferences
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

    `reopen`: preferences that the active ones replaced become active again if their slot is free
    and their own erasure is not pending. Returns the deleted rows.
    """
    removed = list(rows)
    ids = [row.pk for row in removed]
    closed = list_replaced_preferences(removed)
    Preference.objects.filter(pk__in=ids).delete()
    for row in sorted(closed, key=lambda row: row.valid_from, reverse=True) if reopen else ():
        row.status, row.superseded_by = Preference.Status.CURRENT, None
        row.valid_to = row.closed_at = None
        if not select_current_preferences(row).filter(build_replacement_filter(row)).exists():
            row.save(update_fields=["status", "superseded_by", "valid_to", "closed_at"])
    return removed


def list_replaced_preferences(removed: Iterable[Preference]) -> list[Preference]:
    """Return the remaining preferences that the active ones of `removed` replaced.

    This includes those replaced by others of `removed` that the active ones replaced. Without an
    active one, nothing was in use, for example because the user deleted the successor.
    """
    rows = {row.pk: row for row in removed}
    active = {pk for pk, row in rows.items() if row.status == Preference.Status.CURRENT}
    while replaced := {
        pk for pk, row in rows.items() if row.superseded_by_id in active and pk not in active
    }:
        active |= replaced
    pending = PendingErasure.objects.exclude(preference=None).values("preference")
    left = Preference.objects.filter(superseded_by__in=active).exclude(pk__in=rows)
    return list(left.exclude(pk__in=pending))


def check_preference_limit(owner_id: int) -> None:
    """Raise `TooManyPreferences` if a user has reached the limit."""
    if is_limit_reached(owner_id):
        raise TooManyPreferences(limit=MOST_PREFERENCES)


def is_limit_reached(owner_id: int) -> bool:
    """Return True if a user has `MOST_PREFERENCES` active and suggested preferences.

    Superseded ones do not count. Otherwise, suggestions that a user ignores would stop new ones.
    """
    return Preference.objects.filter(owner=owner_id, closed_at=None).count() >= MOST_PREFERENCES


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


def add_preference_evidence(row: Preference, *, statement: Telling, message: Message) -> bool:
    """Add evidence. Return False if it is already stored or the limit is reached."""
    if row.evidence.count() >= MOST_EVIDENCE:
        return False
    _, is_new = PreferenceEvidence.objects.get_or_create(
        preference=row, message=message, defaults={"start": statement.start, "end": statement.end}
    )
    return is_new


def _drop_suggestion(row: Preference, *, now: datetime) -> None:
    """Delete a suggestion that was reworded; deactivate it if it is held."""
    try:
        check_preference_holds([row], now=now)
    except UnderHold:
        deactivate_held_preference(row, now=now)
    else:
        remove_preferences([row], reopen=False)


def _forget_text(settings: MemorySettings, text: str) -> None:
    """Store a keyed hash of the text, so that it is not learned again."""
    ForgottenPreference.objects.get_or_create(
        owner_id=settings.owner_id, digest=hash_preference_text(text, settings=settings)
    )


def _remember(settings: MemorySettings, *, text: str) -> None:
    """Remove the hash of a deleted text, because the user writes the text again."""
    digest = hash_preference_text(text, settings=settings)
    ForgottenPreference.objects.filter(owner=settings.owner_id, digest=digest).delete()
