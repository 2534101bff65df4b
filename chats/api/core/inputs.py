"""Request bodies and query parameters. Unknown fields are refused.

Values are never trimmed, converted or guessed. Texts are stored byte for byte; the domain checks
their limits and returns the messages.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.validators import MaxLengthValidator
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.ground.texts import sanitise_text
from chats.models import Preference
from chats.people import keys
from contextpolicy import ledger
from contextpolicy.audit.search import LONGEST

LARGEST_PAGE = 100
FIELD_UNKNOWN = gettext_noop("This field does not exist or cannot be set.")


class PlainText(serializers.CharField):
    """A string, unchanged. Other JSON types are refused."""

    default_error_messages: ClassVar = {"invalid": gettext_lazy("This is not a string.")}

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, allow_blank=True, **options)
        # NUL and lone surrogates are refused by the domain, which reports their position.
        self.validators = [v for v in self.validators if isinstance(v, MaxLengthValidator)]

    def to_internal_value(self, data: Any) -> str:
        """Return the text unchanged; fail for anything else."""
        if not isinstance(data, str):
            self.fail("invalid")
        return data


class MessageText(PlainText):
    """The text of a message. NUL and lone surrogates become U+FFFD, as in replies and imports."""

    def to_internal_value(self, data: Any) -> str:
        """Return the text in a form that can be stored."""
        return sanitise_text(super().to_internal_value(data))


class WholeNumber(serializers.IntegerField):
    """A JSON integer. "90", 90.0 and true are refused."""

    def to_internal_value(self, data: Any) -> int:
        """Return the number unchanged; fail for anything else."""
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class Flag(serializers.BooleanField):
    """A JSON boolean. "yes" and 1 are refused."""

    def to_internal_value(self, data: Any) -> bool:
        """Return the boolean unchanged; fail for anything else."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


@extend_schema_field({"type": "string", "enum": list(keys.SCOPES)})
class ScopeName(PlainText):
    """The name of a scope. The domain refuses unknown scopes and lists the valid ones."""


class Strict(serializers.Serializer[Any]):
    """Base class of request bodies and queries: unknown fields are errors."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated fields. Raises ValidationError for an unknown one."""
        if isinstance(data, Mapping):
            unknown = sorted(str(name) for name in set(data) - set(self.fields))
            if unknown:
                text = gettext(FIELD_UNKNOWN)
                raise serializers.ValidationError(
                    {unknown[0]: [serializers.ErrorDetail(text, code="unknown_field")]}
                )
        return super().to_internal_value(data)

    @classmethod
    def read(cls, data: Any) -> dict[str, Any]:
        """Validate a body or a query and return its values. Raises DRF's ValidationError."""
        serializer = cls(data=data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)


class NewChat(Strict):
    """A chat, and its first message if `text` is given."""

    title = PlainText(default="", help_text="At most 200 characters.")
    model = PlainText(default="", help_text="Id of a model. Empty: the default model.")
    text = MessageText(required=False, help_text="First message. The status is then 202.")
    temporary = Flag(
        default=False,
        help_text="True: the chat is erased at its owner's next sign-out, or some time after "
        "its last message. Requires a policy that allows it (else "
        "`temporary_not_allowed`).",
    )
    team = serializers.UUIDField(
        default=None, allow_null=True, help_text="Id of a team that replies in the chat."
    )


class RegenerateRequest(Strict):
    """Options for regenerating a reply."""

    play_on = Flag(
        default=False,
        help_text="True: the agents that followed in a team's round also reply again.",
    )


class ChatChange(Strict):
    """The fields of a chat to change. Absent fields keep their value."""

    title = PlainText(
        required=False, help_text="At most 200 characters. Empty: the title does not change."
    )
    model = PlainText(required=False, help_text="Id of the model that replies from now on.")
    system_text = PlainText(
        required=False,
        help_text="The chat's own system text, at most 20,000 characters. Requires a policy "
        "that allows it (else `system_text_locked`). Empty: none.",
    )

    team = serializers.UUIDField(
        required=False,
        allow_null=True,
        help_text="Id of the team that replies from the next message on. Null: the model replies.",
    )
    memory = Flag(
        required=False, help_text="True if the chat uses the owner's memory and can add to it."
    )
    pinned = Flag(required=False, help_text="Pinned to the top of the list.")
    archived = Flag(required=False, help_text="Archived: hidden from the normal list.")
    folder = serializers.UUIDField(
        required=False, allow_null=True, help_text="Id of a folder. Null: no folder."
    )


class MemoryChange(Strict):
    """The memory settings to change. Absent fields keep their value."""

    instructions = PlainText(
        required=False,
        help_text="Instructions for all your chats, at most 2,000 characters. Empty: none.",
    )
    consent = Flag(required=False, help_text="True if preferences may be stored and sent.")
    inferring = Flag(
        required=False,
        help_text="True if a model may read new messages and suggest preferences.",
    )
    paused = Flag(required=False, help_text="True: no preferences are stored or sent.")


class NewPreference(Strict):
    """A preference."""

    slot = PlainText(
        help_text=f"One of {', '.join(f'`{slot}`' for slot in Preference.Slot.values)}. "
        "Only `note` can have several preferences; elsewhere a new preference replaces the old one."
    )
    text = PlainText(help_text="One line of 1 to 200 characters.")
    folder = serializers.UUIDField(
        default=None,
        allow_null=True,
        help_text="Id of a folder; the preference then applies only to its chats.",
    )


class PreferenceChange(Strict):
    """A new text for a preference. Without a text, the suggestion is accepted."""

    text = PlainText(required=False, help_text="If absent, the suggestion is accepted unchanged.")


class PreferenceDeletion(Strict):
    """Options for deleting a preference."""

    reopen = serializers.BooleanField(
        default=False, help_text="True restores the preference that it replaced."
    )


class FolderChange(Strict):
    """The fields of a folder to change. Absent fields keep their value."""

    name = PlainText(required=False, help_text="1 to 100 characters, unique among your folders.")
    memory = Flag(
        required=False, help_text="True if the chats use the owner's memory and can add to it."
    )


class FolderName(Strict):
    """The name of a folder."""

    name = PlainText(help_text="1 to 100 characters, unique among your folders.")


class NewMessage(Strict):
    """A message. Stored as sent, except that NUL and lone surrogates become U+FFFD."""

    text = MessageText()
    stream = Flag(
        default=False,
        help_text="True: respond with the event stream of the reply instead of a 202.",
    )
    as_role = PlainText(
        default="", help_text="Id of a human role in the chat's team that says the message."
    )


class StateChange(Strict):
    """A correction of the state. Other fields keep their value."""

    version = WholeNumber(help_text="Number of the version that you corrected.")
    values = serializers.DictField(default=dict, help_text="Fields to set, by name.")
    remove = serializers.ListField(
        child=PlainText(), default=list, help_text="Names of fields to remove."
    )


class StateRestoration(Strict):
    """The version of the state to restore."""

    version = WholeNumber(help_text="Number of the latest version.")
    to = WholeNumber(help_text="Number of the version to restore.")


class EditRequest(Strict):
    """A new text for a message. NUL and lone surrogates become U+FFFD."""

    text = MessageText()


class NewCompaction(Strict):
    """Options for a requested summary."""

    focus = PlainText(
        default="", help_text=("Details that the summary should keep; up to 500 characters.")
    )
    model = PlainText(
        default=None,
        allow_null=True,
        help_text="Id of the model that writes the summary. Null: the policy's model. Empty: no "
        "model; sentences are selected from the messages.",
    )


class Revision(Strict):
    """A corrected summary."""

    text = PlainText(help_text="Headings, and bullets that end with their sources: `- … [#3, #7]`.")


class Rejection(Strict):
    """The reason for rejecting a pending summary."""

    reason = PlainText(default="", help_text="At most 400 characters, stored with the summary.")


class ErasureRequest(Strict):
    """Options for erasing a message."""

    quotes = serializers.ChoiceField(
        choices=["keep", "erase"],
        default="keep",
        help_text="`erase`: also erase the messages that quote it word for word.",
    )


class CompareQuery(Strict):
    """Two summaries of a chat to compare."""

    older = serializers.UUIDField(help_text="Id of the compaction to compare with.")
    newer = serializers.UUIDField(help_text="Id of the compaction to compare.")


class NewKey(Strict):
    """An API key to create."""

    name = PlainText(help_text="At most 200 characters.")
    scopes = serializers.ListField(child=ScopeName(), help_text="At least one scope.")
    lifetime_days = WholeNumber(
        default=keys.DEFAULT_DAYS, help_text="Days until the key expires, 1 to 365."
    )
    unmanaged = Flag(
        default=False,
        help_text="Requests to /v1 are passed through unchanged, and no text is stored.",
    )


class EmptyBody(Strict):
    """An empty body or query."""


class PageQuery(Strict):
    """The page of a list."""

    limit = serializers.IntegerField(min_value=1, max_value=LARGEST_PAGE, default=20)
    cursor = PlainText(default="", help_text="`next_cursor` of the previous page.")


class ChatsQuery(PageQuery):
    """Filters of the list of chats."""

    archived = serializers.BooleanField(
        required=False,
        help_text="True: only archived chats. False: only chats that are not archived.",
    )
    folder = serializers.UUIDField(required=False, help_text="Only the chats of this folder.")
    deleted = serializers.BooleanField(
        default=False, help_text="True: only deleted chats that can be restored."
    )


class TeamMessagesQuery(PageQuery):
    """Filters of a team's messages."""

    id = PlainText(default="", help_text="`msg-N`, or the id from an import.")
    speaker = PlainText(default="", help_text="Id of a role.")
    since = serializers.DateTimeField(required=False, help_text="ISO 8601, inclusive.")
    until = serializers.DateTimeField(required=False, help_text="ISO 8601, exclusive.")
    stream = serializers.BooleanField(
        default=False,
        help_text="True: stream all messages, one JSON object per line. Cannot be combined with "
        "`limit`.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values. Raises ValidationError for a stream with a limit."""
        if attrs["stream"] and "limit" in self.initial_data:
            text = gettext("`limit` cannot be combined with `stream`. Remove one of them.")
            raise serializers.ValidationError({"limit": [text]})
        return attrs


class ArchiveQuery(Strict):
    """A search of the original messages of a chat."""

    q = PlainText(help_text="Keywords or a question, at most 500 characters.")
    speaker = PlainText(
        default="",
        help_text=(
            "Only messages of this speaker: the id or name of a role, ignoring case, spaces and "
            "hyphens, or the owner's user name."
        ),
    )
    limit = serializers.IntegerField(min_value=1, max_value=LARGEST_PAGE, default=20)


class SearchQuery(Strict):
    """A search of your chats."""

    q = PlainText(help_text="Keywords or a question, at most 400 characters.")
    chat = serializers.UUIDField(required=False, help_text="Only in this chat.")
    folder = serializers.UUIDField(required=False, help_text="Only in this folder.")
    role = serializers.ChoiceField(choices=["user", "assistant", "summary"], required=False)
    speaker = PlainText(default="", help_text="Only messages of the role with this name.")
    after = serializers.DateTimeField(
        required=False, help_text="Only messages written at this time or later."
    )
    before = serializers.DateTimeField(
        required=False, help_text="Only messages written before this time."
    )
    page = serializers.IntegerField(min_value=1, max_value=10, default=1)


class ExplainQuery(Strict):
    """The agent and the model for which to explain a chat's policy."""

    agent = PlainText(required=False, max_length=80, help_text="Id of a role in the chat's team.")
    model = PlainText(
        required=False, max_length=60, help_text="Id of a model. Empty: the model that would reply."
    )


class EffectiveQuery(ExplainQuery):
    """The user, chat, agent and model for which to explain the policy."""

    person = PlainText(max_length=150, help_text="User name.")
    chat = serializers.UUIDField(required=False, help_text="A chat of the same user.")


class RecentQuery(Strict):
    """The number of recent messages, and the chat."""

    limit = serializers.IntegerField(
        min_value=1,
        required=False,
        help_text="Maximum number of messages, up to the policy's window.",
    )
    chat = serializers.UUIDField(required=False, help_text="Only messages of this chat.")


class MessagesQuery(PageQuery):
    """The range of messages to list, such as the originals of a compaction."""

    from_seq = serializers.IntegerField(min_value=1, required=False)
    to_seq = serializers.IntegerField(min_value=1, required=False)


class EventsQuery(PageQuery):
    """Filters of the audit events."""

    type = serializers.ChoiceField(choices=sorted(ledger.EVENT_TYPES), required=False)
    chat = serializers.UUIDField(required=False)
    since = serializers.DateTimeField(required=False, help_text="ISO 8601, inclusive.")
    q = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=LONGEST,
        help_text="Search query with these keys: event:, actor:, person:, object:, chat:, "
        "turn:, policy:, field:, at:.",
    )


class SampleRequest(Strict):
    """Unsaved values and locks of a policy, and its place."""

    values = serializers.DictField(default=dict, help_text="Fields that the policy sets, by name.")
    locks = serializers.ListField(child=PlainText(), default=list, max_length=100)
    policy = PlainText(default="", help_text="Slug of the policy whose next version this would be.")
    place = serializers.ChoiceField(
        choices=["instance", "assigned"],
        default="instance",
        help_text="`instance`: as if the policy applied to everyone; `assigned`: only current "
        "assignments.",
    )


class PreviewRequest(SampleRequest):
    """Unsaved values and locks of a policy, and a chat to preview them in."""

    place = serializers.ChoiceField(
        choices=["instance", "chat"],
        default="instance",
        help_text="Where the policy would apply, if it does not apply to the chat yet.",
    )
    chat = serializers.UUIDField()
