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

    default_error_messages: ClassVar = {"invalid": gettext_lazy("Send a JSON string here.")}

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, allow_blank=True, **options)
        # NUL and lone surrogates are refused by the domain, which reports their position.
        self.validators = [v for v in self.validators if isinstance(v, MaxLengthValidator)]

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return data


class MessageText(PlainText):
    """The text of a message. NUL and lone surrogates become U+FFFD, as in replies and imports."""

    def to_internal_value(self, data: Any) -> str:
        return sanitise_text(super().to_internal_value(data))


class WholeNumber(serializers.IntegerField):
    """A JSON integer. "90", 90.0 and true are refused."""

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class Flag(serializers.BooleanField):
    """A JSON boolean. "yes" and 1 are refused."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


@extend_schema_field({"type": "string", "enum": list(keys.SCOPES)})
class ScopeName(PlainText):
    """The name of a scope. Unknown scopes are refused with a list of the valid ones."""


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


class InlineFileIn(Strict):
    """A small file inside a request."""

    name = PlainText(default="", help_text="Name of the file.")
    url = serializers.CharField(
        trim_whitespace=False, help_text="Content as a data URL: `data:text/plain;base64,…`."
    )


class WithFiles(Strict):
    """Files of a message."""

    files = serializers.ListField(
        child=serializers.UUIDField(),
        default=list,
        max_length=1_000,
        help_text="Ids of your uploads, in order. At most 20 files and 100 MB.",
    )
    inline_files = serializers.ListField(
        child=InlineFileIn(),
        default=list,
        max_length=1_000,
        help_text="Small files instead of uploads, together up to 1 MB. They follow `files`. The "
        "request waits until they are read.",
    )
    allow_unread = Flag(
        default=False,
        help_text="True: files that are not read yet, or could not be read, are attached by name "
        "only. Else they are refused (`file_not_ready`, `file_not_read`).",
    )


class NewChat(WithFiles):
    """Settings of a new chat, and its first message if `text` is given."""

    title = PlainText(
        default="",
        help_text="Title, at most 200 characters. Empty: it is taken from the first message.",
    )
    model = PlainText(
        default="",
        help_text=(
            "Id of the model that replies, from the list of models. Empty: the default model."
        ),
    )
    text = MessageText(
        required=False,
        help_text=(
            "Text of the first message, to which the model replies. The status is then 202."
        ),
    )
    temporary = Flag(
        default=False,
        help_text=(
            "True: the chat is erased when you sign out, or 24 hours (the default of "
            "`TEMPORARY_CHAT_HOURS`) after its last message. Your policy must allow it."
        ),
    )
    team = serializers.UUIDField(
        default=None,
        allow_null=True,
        help_text="Id of the team that replies in the chat. Null: a model replies.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse files without a message that has them."""
        if "text" not in attrs and (attrs["files"] or attrs["inline_files"]):
            raise serializers.ValidationError(
                {"files": gettext("Files belong to a message. Send “text” too.")}
            )
        return attrs


class RegenerateRequest(Strict):
    """Options for regenerating a reply in a team."""

    play_on = Flag(
        default=False,
        help_text=(
            "True: in a team, the agents that replied after this one also reply again. False: "
            "only this one does."
        ),
    )


class ChatChange(Strict):
    """The fields of a chat to change. Absent fields keep their value."""

    title = PlainText(
        required=False,
        help_text=("Title of the chat, at most 200 characters. Empty: the title does not change."),
    )
    model = PlainText(
        required=False, help_text="Id of the model that replies from the next message on."
    )
    system_text = PlainText(
        required=False,
        help_text=(
            "System text of this chat, at most 20,000 characters. The policy decides whether "
            "it is allowed, and whether it follows or replaces the policy's. Empty: none."
        ),
    )

    team = serializers.UUIDField(
        required=False,
        allow_null=True,
        help_text=(
            "Id of the team that replies from the next message on. Null: no team; the model "
            "replies."
        ),
    )
    memory = Flag(
        required=False,
        help_text=(
            "True: the chat uses your memory and can add preferences to it; temporary ones do not."
        ),
    )
    pinned = Flag(required=False, help_text="True: the chat is pinned to the top of the list.")
    archived = Flag(
        required=False,
        help_text=(
            "True: the chat is hidden from the normal list and listed under archived chats."
        ),
    )
    folder = serializers.UUIDField(
        required=False,
        allow_null=True,
        help_text="Id of the folder that contains the chat. Null: remove it from its folder.",
    )


class MemoryChange(Strict):
    """The memory settings to change. Absent fields keep their value."""

    instructions = PlainText(
        required=False,
        help_text=(
            "Text sent with the prompts of all your chats, at most 2,000 characters. Empty: none."
        ),
    )
    consent = Flag(
        required=False,
        help_text=(
            "True: preferences from your messages may be saved and sent with prompts. False: "
            "turns the memory off."
        ),
    )
    inferring = Flag(
        required=False,
        help_text=(
            "True: a model may read your new messages and suggest preferences. Requires that "
            "the memory is on."
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
        "Only `note` can have several preferences; elsewhere a new preference replaces the old one."
    )
    text = PlainText(help_text="The preference, one line of 1 to 200 characters.")
    folder = serializers.UUIDField(
        default=None,
        allow_null=True,
        help_text="Id of the folder to whose chats the preference applies. Null: all chats.",
    )


class PreferenceChange(Strict):
    """A new text for a preference. Without a text, the suggestion is accepted."""

    text = PlainText(
        required=False,
        help_text=(
            "New text, one line of 1 to 200 characters. Absent: the suggestion is accepted "
            "unchanged."
        ),
    )


class PreferenceDeletion(Strict):
    """Options for deleting a preference."""

    reopen = serializers.BooleanField(
        default=False,
        help_text=(
            "True: the preference that it replaced becomes current again. False: the slot "
            "stays empty."
        ),
    )


class FolderChange(Strict):
    """The fields of a folder to change. Absent fields keep their value."""

    name = PlainText(
        required=False,
        help_text="New name, 1 to 100 characters, unique among your folders.",
    )
    memory = Flag(
        required=False,
        help_text=("True: the chats of the folder use your memory and can add preferences to it."),
    )


class FolderName(Strict):
    """A new folder."""

    name = PlainText(help_text="Name, 1 to 100 characters, unique among your folders.")


class NewMessage(WithFiles):
    """A message to send. NUL and lone surrogates become U+FFFD."""

    text = MessageText(help_text="Text of the message. A blank text is refused.")
    stream = Flag(
        default=False,
        help_text=("True: the response is the event stream of the reply (200) instead of a 202."),
    )
    as_role = PlainText(
        default="",
        help_text=(
            "Id of a human role in the chat's team that writes the message. Empty: the user."
        ),
    )


class StateChange(Strict):
    """A correction of the state. Other fields keep their value."""

    version = WholeNumber(
        help_text=(
            "Number of the latest version, which you corrected. 409 if it is not the latest."
        )
    )
    values = serializers.DictField(
        default=dict, help_text="New values by field name. Other fields keep their value."
    )
    remove = serializers.ListField(
        child=PlainText(),
        default=list,
        help_text="Names of the fields to remove from the state. Empty: none.",
    )


class StateRestoration(Strict):
    """The version to restore, and the latest version that the client knows."""

    version = WholeNumber(help_text="Number of the latest version. 409 if it is not the latest.")
    to = WholeNumber(help_text="Number of the version whose values are restored.")


class EditRequest(Strict):
    """The new text of a message. NUL and lone surrogates become U+FFFD."""

    text = MessageText(help_text="New text of the message. A blank text is refused.")


class NewCompaction(Strict):
    """Instructions and model for a requested summary."""

    focus = PlainText(
        default="",
        help_text=(
            "Details that the summary should keep, at most 500 characters. Empty: nothing "
            "in particular."
        ),
    )
    model = PlainText(
        default=None,
        allow_null=True,
        help_text=(
            "Id of the model that writes the summary. Null: the policy's model. Empty: no "
            "model; the summary consists of sentences of the messages."
        ),
    )


class Revision(Strict):
    """The corrected text of a summary."""

    text = PlainText(
        help_text=(
            "Complete text of the summary in Markdown: headings, and bullets that end "
            "with the seqs of their sources, such as `- … [#3, #7]`."
        )
    )


class Rejection(Strict):
    """The reason for rejecting a pending summary, shown to the chat's owner."""

    reason = PlainText(
        default="",
        help_text=(
            "Reason for the rejection, at most 400 characters. It is stored with the summary. "
            "Empty: none."
        ),
    )


class ErasureRequest(Strict):
    """Whether to erase quotations of the message too."""

    quotes = serializers.ChoiceField(
        choices=["keep", "erase"],
        default="keep",
        help_text=(
            "`erase`: also erase the messages that quote it word for word. `keep` "
            "(default): only list them."
        ),
    )


class CompareQuery(Strict):
    """The two compactions to compare."""

    older = serializers.UUIDField(help_text="Id of the compaction on the left side (`before`).")
    newer = serializers.UUIDField(help_text="Id of the compaction on the right side (`after`).")


class NewKey(Strict):
    """Name, scopes and lifetime of an API key to create."""

    name = PlainText(help_text="Name of the application that uses the key, 1 to 200 characters.")
    scopes = serializers.ListField(
        child=ScopeName(), help_text="One or more scopes. The key can do nothing else."
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


class EmptyBody(Strict):
    """A body or query without fields. Any field is refused."""


class PageQuery(Strict):
    """Size and position of a page."""

    limit = serializers.IntegerField(
        min_value=1,
        max_value=LARGEST_PAGE,
        default=20,
        help_text="Maximum number of items on the page, 1 to 100. Default: 20.",
    )
    cursor = PlainText(
        default="", help_text="`next_cursor` of the previous page. Empty: the first page."
    )


class ChatsQuery(PageQuery):
    """Filters of the list of chats."""

    archived = serializers.BooleanField(
        required=False,
        help_text=(
            "True: only archived chats. False: only chats that are not archived. Absent: both."
        ),
    )
    folder = serializers.UUIDField(
        required=False, help_text="Only chats in the folder with this id. Absent: all folders."
    )
    deleted = serializers.BooleanField(
        default=False,
        help_text=(
            "True: only deleted chats that can still be restored. False: only chats that are "
            "not deleted."
        ),
    )


class TeamMessagesQuery(PageQuery):
    """Filters of a team's messages."""

    id = PlainText(
        default="",
        help_text=(
            "Id of the message in the team chat: `msg-N`, counted from 1, or the id from an import."
        ),
    )
    speaker = PlainText(
        default="", help_text="Only messages of the role with this id. Empty: all roles."
    )
    since = serializers.DateTimeField(
        required=False, help_text="Only from this time on (ISO 8601, inclusive). Absent: no limit."
    )
    until = serializers.DateTimeField(
        required=False, help_text="Only before this time (ISO 8601, exclusive). Absent: no limit."
    )
    stream = serializers.BooleanField(
        default=False,
        help_text=(
            "True: stream all messages as lines of JSON instead of pages. Cannot be combined "
            "with `limit`."
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values. Raises ValidationError for a stream with a limit."""
        if attrs["stream"] and "limit" in self.initial_data:
            text = gettext("`limit` cannot be combined with `stream`. Remove one of them.")
            raise serializers.ValidationError({"limit": [text]})
        return attrs


class ArchiveQuery(Strict):
    """Keywords and a speaker to find among the original messages of a chat."""

    q = PlainText(
        help_text="Keywords or a question, at most 500 characters. Messages that contain more "
        "of the words come first."
    )
    speaker = PlainText(
        default="",
        help_text=(
            "Only messages of this speaker: the id or name of a role, ignoring case, spaces "
            "and hyphens, or the owner's user name. Empty: all."
        ),
    )
    limit = serializers.IntegerField(
        min_value=1,
        max_value=LARGEST_PAGE,
        default=20,
        help_text="Maximum number of messages, 1 to 100. Default: 20.",
    )


class SearchQuery(Strict):
    """Keywords and filters for your chats."""

    q = PlainText(
        help_text="Keywords or a question, at most 400 characters. Results that contain more "
        "and rarer words come first."
    )
    chat = serializers.UUIDField(
        required=False, help_text="Only results in the chat with this id. Absent: all your chats."
    )
    folder = serializers.UUIDField(
        required=False,
        help_text="Only results in chats of the folder with this id. Absent: all folders.",
    )
    role = serializers.ChoiceField(
        choices=["user", "assistant", "summary"],
        required=False,
        help_text=(
            "Only messages of `user` or `assistant`, or only summaries (`summary`). Absent: all."
        ),
    )
    speaker = PlainText(
        default="", help_text="Only messages of the team role with this name. Empty: all."
    )
    after = serializers.DateTimeField(
        required=False,
        help_text="Only messages written at this time or later (ISO 8601). Absent: no limit.",
    )
    before = serializers.DateTimeField(
        required=False,
        help_text="Only messages written before this time (ISO 8601). Absent: no limit.",
    )
    page = serializers.IntegerField(
        min_value=1, max_value=10, default=1, help_text="Number of the page, 1 to 10. Default: 1."
    )


class ExplainQuery(Strict):
    """The agent and the model for which to explain a chat's policy."""

    agent = PlainText(
        required=False,
        max_length=80,
        help_text=(
            "Id of a role in the chat's team, whose policy is explained. Absent: the chat "
            "without an agent."
        ),
    )
    model = PlainText(
        required=False,
        max_length=60,
        help_text=(
            "Id of the model for which the policy is explained. Empty: the model that would reply."
        ),
    )


class EffectiveQuery(ExplainQuery):
    """The user, chat, agent and model for which to explain the policy."""

    person = PlainText(
        max_length=150, help_text="User name of the person whose policy is explained."
    )
    chat = serializers.UUIDField(
        required=False,
        help_text="Id of a chat of the same user, whose policies also count. Absent: no chat.",
    )


class RecentQuery(Strict):
    """The maximum number of recent messages, and optionally their chat."""

    limit = serializers.IntegerField(
        min_value=1,
        required=False,
        help_text=(
            "Maximum number of messages, at most the policy's window, which is also the default."
        ),
    )
    chat = serializers.UUIDField(
        required=False, help_text="Only messages of the chat with this id. Absent: all chats."
    )


class MessagesQuery(PageQuery):
    """The range of messages to list, such as the originals of a compaction."""

    from_seq = serializers.IntegerField(
        min_value=1, required=False, help_text="Only messages from this seq on, inclusive."
    )
    to_seq = serializers.IntegerField(
        min_value=1, required=False, help_text="Only messages up to this seq, inclusive."
    )


class EventsQuery(PageQuery):
    """Filters of the audit events."""

    type = serializers.ChoiceField(
        choices=sorted(ledger.EVENT_TYPES),
        required=False,
        help_text="Only events of this type. Absent: all types.",
    )
    chat = serializers.UUIDField(
        required=False,
        help_text="Only events of the chat with this id. Absent: all chats that you may see.",
    )
    since = serializers.DateTimeField(
        required=False, help_text="Only from this time on (ISO 8601, inclusive). Absent: no limit."
    )
    q = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=LONGEST,
        help_text=(
            "Terms of the form `key:value`. Keys: event, actor, person, object, chat, turn, "
            "policy, field, at. A space means AND, a comma OR, a leading minus NOT. Empty: "
            "all events."
        ),
    )


class SampleRequest(Strict):
    """Unsaved values and locks of a policy, and its place."""

    values = serializers.DictField(
        default=dict,
        help_text="Values of the policy by field name. Fields that are left out are not set.",
    )
    locks = serializers.ListField(child=PlainText(), default=list, max_length=100)
    policy = PlainText(
        default="",
        help_text=(
            "Slug of the policy whose next version would have these values. Empty: a new policy."
        ),
    )
    place = serializers.ChoiceField(
        choices=["instance", "assigned"],
        default="instance",
        help_text=(
            "`instance`: as if the policy applied to everyone. `assigned`: only where it is "
            "assigned now."
        ),
    )


class PreviewRequest(SampleRequest):
    """Unsaved values and locks of a policy, and a chat to preview them in."""

    place = serializers.ChoiceField(
        choices=["instance", "chat"],
        default="instance",
        help_text=(
            "Level at which the policy would apply: `instance` or `chat`. Ignored if it "
            "applies to the chat already."
        ),
    )
    chat = serializers.UUIDField()
