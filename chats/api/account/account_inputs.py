"""Request bodies about API keys, memory and preferences."""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.api.core.inputs import Flag, Identifier, PlainText, Strict, WholeNumber
from chats.models import Preference
from chats.people import keys


@extend_schema_field({"type": "string", "enum": list(keys.SCOPES)})
class ScopeName(PlainText):
    """The name of a scope. Unknown names are refused with a list of the valid scopes."""


class MemoryChange(Strict):
    """The memory settings to change. Omitted fields keep their values."""

    instructions = PlainText(
        required=False,
        help_text=(
            "Text sent with the prompts of all your chats that use your memory, if the policy "
            "allows it and the memory is not paused. At most 2,000 characters. Empty: none."
        ),
    )
    consent = Flag(
        required=False,
        help_text=(
            "True: turns the memory on, so that preferences from your messages may be saved and "
            "sent with prompts. False: turns the memory and its suggestions off. Saved "
            "preferences are kept, but not used, until you delete them. Either value ends a "
            "pause."
        ),
    )
    inferring = Flag(
        required=False,
        help_text=(
            "True: a model may read your new messages and suggest preferences. The memory must "
            "be on."
        ),
    )
    paused = Flag(
        required=False,
        help_text=(
            "True: the memory is paused; nothing is saved from messages or sent with prompts."
        ),
    )


class NewPreference(Strict):
    """A preference to add, its slot, and the chats to which it applies."""

    slot = PlainText(
        help_text=f"One of {', '.join(f'`{slot}`' for slot in Preference.Slot.values)}. "
        "Only `note` can have several preferences; in the others, a new one replaces the old one."
    )
    text = PlainText(help_text="The preference, one line of 1 to 200 characters.")
    folder = Identifier(
        default=None,
        allow_null=True,
        help_text="Id of the folder to whose chats the preference applies. Null: all chats.",
    )


class PreferenceChange(Strict):
    """New text for a preference. Without text, the suggestion is accepted."""

    text = PlainText(
        required=False,
        help_text=(
            "New text, one line of 1 to 200 characters. Absent: the suggestion is accepted "
            "unchanged."
        ),
    )


class PreferenceDeletionQuery(Strict):
    """Options for deleting a preference."""

    reopen = serializers.BooleanField(
        default=False,
        help_text=(
            "True: the preference that the deleted one replaced becomes current again. False: "
            "the slot stays empty."
        ),
    )


class NewKey(Strict):
    """Name, scopes and lifetime of an API key to create."""

    name = PlainText(help_text="Name of the application that uses the key, 1 to 200 characters.")
    scopes = serializers.ListField(
        child=ScopeName(), help_text="One or more scopes, which limit the key's access."
    )
    lifetime_days = WholeNumber(
        default=keys.DEFAULT_DAYS,
        help_text="Number of days until the key expires, 1 to 365. Default: 90.",
    )
    unmanaged = Flag(
        default=False,
        help_text=(
            "True: requests to `/v1` are passed through to the model server unchanged, and no "
            "text is stored. The policy must allow it."
        ),
    )
