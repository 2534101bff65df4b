"""Checks and saves the preferences that a model inferred. The user decides about them.

An inferred preference never replaces a stated or written one. It stays a suggestion until the
user accepts it, or until a second chat confirms it while its slot is free. Changes to rows
require the lock of `preferences`.
"""

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from chats.memory.preferences import inference_checks, memory_settings, preferences
from chats.memory.preferences.inference_checks import PreferenceProposal
from chats.memory.preferences.preference_changes import build_preference_data, record_change
from chats.memory.preferences.preference_patterns import Telling
from chats.memory.preferences.preference_texts import hash_preference_text, normalise_for_comparison
from chats.memory.preferences.preferences import (
    OF_THE_PERSON,
    activate_preference,
    add_preference_evidence,
    build_replacement_filter,
    confirm_preference,
    select_current_preferences,
)
from chats.models import ForgottenPreference, MemorySettings, Message, Preference
from chats.record.holds import UnderHold

CONFIDENCE = 60
# Maximum open suggestions of a user; another one closes the oldest.
MOST_SUGGESTED = 30
ENOUGH_CHATS = 2


def save_proposals(
    found: Sequence[PreferenceProposal],
    *,
    read: Sequence[Message],
    owner_id: int,
    folder_id: uuid.UUID | None,
    now: datetime,
) -> Counter[str]:
    """Save the valid proposals of a response, in the caller's transaction.

    Returns counts by result. `read`: the user's messages in their current state, in the
    order of the numbers that the model saw. The caller has checked that none of them was erased or
    excluded in the meantime. Empty if the user does not allow inference.
    """
    counts: Counter[str] = Counter()
    settings = memory_settings.lock_memory_settings(owner_id)
    if not memory_settings.is_inferring(settings):
        return counts
    numbered = dict(enumerate(read, start=1))
    for proposal in found:
        message = numbered.get(proposal.message)
        place = inference_checks.locate_quotation(proposal, text=message.text) if message else None
        if message is None or place is None:
            counts["not_literal"] += 1
            continue
        outcome = inference_checks.find_refusal_reason(place.text) or _save_suggestion(
            place, settings=settings, message=message, folder_id=folder_id, now=now
        )
        counts[outcome] += 1
    return counts


def _save_suggestion(
    place: Telling,
    *,
    settings: MemorySettings,
    message: Message,
    folder_id: uuid.UUID | None,
    now: datetime,
) -> str:
    """Save one suggestion, or confirm it if it exists. Returns the result's name."""
    owner_id = settings.owner_id
    digest = hash_preference_text(place.text, settings=settings)
    if ForgottenPreference.objects.filter(owner=owner_id, digest=digest).exists():
        return "deleted_before"
    row = Preference(
        owner_id=owner_id,
        folder_id=None if place.slot in OF_THE_PERSON else folder_id,
        slot=place.slot,
        text=place.text,
        kind=Preference.Kind.INFERRED,
        status=Preference.Status.PROPOSED,
        confidence=CONFIDENCE,
        valid_from=message.created_at,
        learned_at=now,
    )
    known = _find_known(row)
    if known is not None:
        confirm_preference(known, statement=place, message=message, now=now)
        return "confirmed" if not _counts_now(known, message=message, now=now) else "in_use"
    if (
        select_current_preferences(row)
        .filter(build_replacement_filter(row), valid_from__gt=row.valid_from)
        .exists()
    ):
        return "older"
    if preferences.is_limit_reached(owner_id):
        return "no_room"
    expire_oldest(owner_id, now=now)
    row.save(force_insert=True)
    add_preference_evidence(row, statement=place, message=message)
    data = build_preference_data(row)
    record_change("preference.noted", owner_id=owner_id, now=now, data=data, message=message)
    return "proposed"


def expire_oldest(owner_id: int, *, now: datetime) -> None:
    """Delete the oldest suggestions, so that at most 30 are open after adding one.

    Undecided suggestions must not block newer ones. No prompt contained them. Those under a legal
    hold become superseded.
    """
    open_ones = Preference.objects.filter(
        owner=owner_id, status=Preference.Status.PROPOSED, kind=Preference.Kind.INFERRED
    )
    over = open_ones.count() - MOST_SUGGESTED + 1
    for row in open_ones.order_by("learned_at", "pk")[: max(over, 0)]:
        try:
            preferences.check_preference_holds([row], now=now)
        except UnderHold:
            row.status, row.valid_to, row.closed_at = Preference.Status.SUPERSEDED, now, now
            row.save(update_fields=["status", "valid_to", "closed_at"])
        else:
            preferences.remove_preferences([row], reopen=False)


def _find_known(row: Preference) -> Preference | None:
    """Return an active or suggested preference with the same slot, scope and content, or None."""
    rows = Preference.objects.filter(
        owner=row.owner_id, folder=row.folder_id, slot=row.slot, closed_at=None
    )
    found = sorted(rows, key=lambda old: (old.status != Preference.Status.CURRENT, str(old.pk)))
    same = (
        old
        for old in found
        if normalise_for_comparison(old.text) == normalise_for_comparison(row.text)
    )
    alike = (old for old in found if inference_checks.is_same_statement(old.text, row.text))
    return next(same, None) or next(alike, None)


def _counts_now(row: Preference, *, message: Message, now: datetime) -> bool:
    """Activate a suggestion that a second chat confirms, if its slot is free.

    Returns True if it was activated.
    """
    is_waiting = (row.status, row.kind) == (Preference.Status.PROPOSED, Preference.Kind.INFERRED)
    alive = row.evidence.filter(message__branch__chat__deleted_at=None)
    chats = set(alive.values_list("message__branch__chat", flat=True))
    if (
        not is_waiting
        or len(chats) < ENOUGH_CHATS
        or not inference_checks.is_read_by_rules(row.text)
    ):
        return False
    row.valid_from = max(row.valid_from, message.created_at)
    closes = select_current_preferences(row).filter(build_replacement_filter(row))
    learned = closes.filter(kind=Preference.Kind.INFERRED, valid_from__lte=row.valid_from)
    if closes.count() > learned.count():
        return False
    row.status, row.learned_at = Preference.Status.CURRENT, now
    activate_preference(row, closes=learned)
    data = {**build_preference_data(row), "chats": len(chats)}
    record_change(
        "preference.confirmed", owner_id=row.owner_id, now=now, data=data, message=message
    )
    return True
