"""A user's memory settings: instructions, consent to saved preferences, and the pause."""

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.ground.texts import UNSTORABLE
from chats.memory.preferences.preference_changes import record_change
from chats.models import MemorySettings
from chats.record import kept_texts

LONGEST_INSTRUCTIONS = 2_000


class NoConsent(Refusal):
    """Your memory is off. Turn it on first."""

    code = "memory_off"
    status = 409
    sentence = gettext_noop("Memory is off. Turn it on under Settings, Memory.")


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
    """Return a user's settings, or unsaved defaults."""
    found = MemorySettings.objects.filter(owner=owner_id).first()
    return found or MemorySettings(owner_id=owner_id)


def lock_memory_settings(owner_id: int) -> MemorySettings:
    """Return a user's settings, locked for the transaction and created if missing."""
    return select_stored_settings(owner_id).select_for_update().get()


def select_stored_settings(owner_id: int) -> QuerySet[MemorySettings]:
    """Return a user's stored settings, created if missing."""
    MemorySettings.objects.get_or_create(owner_id=owner_id)
    return MemorySettings.objects.filter(owner=owner_id)


def is_noting(settings: MemorySettings) -> bool:
    """Return True if the user's memory is on and not paused."""
    return settings.consented_at is not None and not settings.paused


@transaction.atomic
def write_instructions(*, owner_id: int, text: str, now: datetime) -> MemorySettings:
    """Store a user's instructions for all chats; an empty string removes them.

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
    """Turn a user's memory on or off. Saved preferences stay until they are deleted.

    A change also ends a pause and turns inferred suggestions off.
    """
    row = lock_memory_settings(owner_id)
    if (row.consented_at is not None) != agrees:
        row.consented_at, row.paused, row.inferring_since = (now if agrees else None), False, None
        row.save(update_fields=["consented_at", "paused", "inferring_since"])
        record_change(
            "memory.consented" if agrees else "memory.withdrawn", owner_id=owner_id, now=now
        )
    return row


def is_inferring(settings: MemorySettings) -> bool:
    """Return True if a model may read the user's messages and suggest preferences."""
    return is_noting(settings) and settings.inferring_since is not None


@transaction.atomic
def set_inferring(*, owner_id: int, agrees: bool, now: datetime) -> MemorySettings:
    """Turn suggestions from the user's future messages on or off.

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
    """Pause or resume a user's memory.

    While paused, no preferences are saved. Prompts contain no preferences, instructions or recent
    messages from other chats.
    """
    row = lock_memory_settings(owner_id)
    if row.paused != paused:
        row.paused = paused
        row.save(update_fields=["paused"])
        record_change("memory.paused" if paused else "memory.resumed", owner_id=owner_id, now=now)
    return row
