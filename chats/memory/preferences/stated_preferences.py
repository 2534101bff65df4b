"""Stores preferences that a user states in messages, and withdraws them."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from chats.memory.preferences.memory_settings import is_noting, lock_memory_settings
from chats.memory.preferences.preference_changes import build_preference_data, record_change
from chats.memory.preferences.preference_patterns import Telling, is_quotable_span
from chats.memory.preferences.preference_texts import hash_preference_text, normalise_for_comparison
from chats.memory.preferences.preferences import (
    OF_THE_PERSON,
    STATED_CONFIDENCE,
    activate_preference,
    add_preference_evidence,
    build_replacement_filter,
    confirm_preference,
    is_limit_reached,
    select_current_preferences,
    select_visible_preferences,
)
from chats.memory.preferences.sensitive import is_secret
from chats.models import (
    ForgottenPreference,
    MemorySettings,
    Message,
    Preference,
)

# In characters: a shorter part of a preference in a script without spaces may be a common word.
SHORTEST_PART = 4


# The first letter of the scripts of East Asia.
FIRST_WIDE_LETTER = 0x2E80


def store_stated_preferences(
    statements: Sequence[Telling], *, message: Message, owner_id: int, folder_id: Any, now: datetime
) -> list[Preference]:
    """Save preferences that a user stated in a message, in the caller's transaction.

    Returns the created or confirmed rows. Skips deleted preferences, secrets, text that is not a
    literal part of the message, and statements over a limit. A preference that the user wrote is
    not replaced: the new one is suggested instead. A preference older than the active one is stored
    as superseded. Saves nothing while the user's memory is off or paused.
    """
    if not statements:
        return []
    settings = lock_memory_settings(owner_id)
    if not is_noting(settings):
        return []
    rows = []
    for one in statements:
        row = _save_statement(
            one, settings=settings, message=message, folder_id=folder_id, owner_id=owner_id, now=now
        )
        rows += [row] if row else []
    return rows


def withdraw_preferences(
    texts: Sequence[str], *, message: Message, owner_id: int, now: datetime
) -> list[Preference]:
    """Deactivate preferences that a user asks to forget, in the caller's transaction.

    `is_preference_named` decides which preferences match. Returns the deactivated rows; the memory
    page still lists them as superseded.
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
    """Return True if the text that a user asks to forget matches a preference.

    The text contains the preference, or all of its words, at least two, are in the preference. One
    word is enough in a script without spaces.
    """
    one, other = normalise_for_comparison(said), normalise_for_comparison(text)
    if _is_part_of(other, one):
        return True
    asked, known = set(one.split()), set(other.split())
    if len(asked) > 1:
        return asked <= known
    # A script without spaces has one word for each sentence.
    return len(one) >= SHORTEST_PART and is_wide_script(one) and one in other


def _is_part_of(part: str, text: str) -> bool:
    """Return True if the text contains the part as whole words."""
    before = r"" if is_wide_script(part[:1]) else r"(?<!\w)"
    after = r"" if is_wide_script(part[-1:]) else r"(?!\w)"
    return re.search(f"{before}{re.escape(part)}{after}", text) is not None


def is_wide_script(text: str) -> bool:
    """Return True if the text has letters of a script that uses no spaces between words."""
    return any(ord(letter) >= FIRST_WIDE_LETTER for letter in text)


def _save_statement(
    statement: Telling,
    *,
    settings: MemorySettings,
    message: Message,
    owner_id: int,
    folder_id: Any,
    now: datetime,
) -> Preference | None:
    """Save one stated preference, or confirm it if it exists. None if it was not saved."""
    digest = hash_preference_text(statement.text, settings=settings)
    forgotten = ForgottenPreference.objects.filter(owner=owner_id, digest=digest)
    if (
        not is_quotable_span(statement, text=message.text)
        or is_secret(statement.text)
        or forgotten.exists()
    ):
        return None
    row = Preference(
        owner_id=owner_id,
        folder_id=None if statement.slot in OF_THE_PERSON else folder_id,
        slot=statement.slot,
        text=statement.text,
        kind=Preference.Kind.TOLD,
        status=Preference.Status.CURRENT,
        confidence=STATED_CONFIDENCE,
        valid_from=message.created_at,
        learned_at=now,
    )
    known = next(
        (
            old
            for old in select_current_preferences(row)
            if normalise_for_comparison(old.text) == normalise_for_comparison(statement.text)
        ),
        None,
    )
    if known is not None:
        return confirm_preference(known, statement=statement, message=message, now=now)
    if is_limit_reached(owner_id):
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
    add_preference_evidence(row, statement=statement, message=message)
    record_change(
        "preference.noted",
        owner_id=owner_id,
        now=now,
        data=build_preference_data(row),
        message=message,
    )
    return row
