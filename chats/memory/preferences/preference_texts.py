"""Checks and compares the text of preferences."""

import unicodedata

from django.utils.translation import gettext_noop

from chats.ground.commitments import compute_commitment
from chats.ground.refusals import Refusal
from chats.memory.preferences.preference_patterns import LONGEST_TEXT
from chats.models import MemorySettings, Preference
from contextpolicy.engine.text import names

# The kinds of preferences, in their order on pages.
SLOTS = tuple(Preference.Slot.values)


class UnknownSlot(Refusal):
    """The slot does not exist. The error message lists the valid slots."""

    code = "unknown_slot"
    status = 422
    sentence = gettext_noop("“{slot}” is not a kind of preference. Use one of {slots}.")
    param = "slot"


class PreferenceInvalid(Refusal):
    """The text does not have 1 to 200 characters, contains a line break, or cannot be stored."""

    code = "preference_invalid"
    status = 422
    sentence = gettext_noop(
        "This preference is not valid. Enter 1 to {limit} characters on one line, without control "
        "characters or direction overrides."
    )
    param = "text"


def hash_preference_text(text: str, *, settings: MemorySettings) -> str:
    """Return the keyed hash that recognises a deleted preference."""
    return compute_commitment(normalise_for_comparison(text), salt=settings.salt)


def normalise_for_comparison(text: str) -> str:
    """Return text normalised for comparison, without differences in case, width and spaces."""
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
