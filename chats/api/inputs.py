"""The inputs of the API: each body and query field by name, everything else refused.

Nothing is trimmed, converted or guessed: texts are stored byte for byte, and the domain checks
their limits, with words for them.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.validators import MaxLengthValidator
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.ground.texts import storable
from chats.people import keys
from contextpolicy import ledger
from contextpolicy.audit.search import LONGEST

LARGEST_PAGE = 100


class PlainText(serializers.CharField):
    """A string as it was sent; a number is no string."""

    default_error_messages: ClassVar = {"invalid": "This is not a string."}

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, allow_blank=True, **options)
        # NUL and half surrogate pairs are refused by the domain, which names their place.
        self.validators = [v for v in self.validators if isinstance(v, MaxLengthValidator)]

    def to_internal_value(self, data: Any) -> str:
        """Return the text itself; refuse anything else."""
        if not isinstance(data, str):
            self.fail("invalid")
        return data


class MessageText(PlainText):
    """The text of a message; NUL and lone surrogates become U+FFFD, as in replies and imports."""

    def to_internal_value(self, data: Any) -> str:
        """Return the text as it can be stored."""
        return storable(super().to_internal_value(data))


class WholeNumber(serializers.IntegerField):
    """A JSON integer; "90", 90.0 and true are none."""

    def to_internal_value(self, data: Any) -> int:
        """Return the number itself; refuse anything else."""
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class Flag(serializers.BooleanField):
    """A JSON true or false; "yes" and 1 are none."""

    def to_internal_value(self, data: Any) -> bool:
        """Return the flag itself; refuse anything else."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


@extend_schema_field({"type": "string", "enum": list(keys.SCOPES)})
class ScopeName(PlainText):
    """The name of a scope; the domain refuses others, with the list of them."""


class Strict(serializers.Serializer[Any]):
    """A set of fields; an unknown field is an error and not ignored."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the known fields, checked; raises ValidationError for an unknown one."""
        if isinstance(data, Mapping):
            unknown = sorted(str(name) for name in set(data) - set(self.fields))
            if unknown:
                text = "There is no such field, or it cannot be set."
                raise serializers.ValidationError(
                    {unknown[0]: [serializers.ErrorDetail(text, code="unknown_field")]}
                )
        return super().to_internal_value(data)

    @classmethod
    def read(cls, data: Any) -> dict[str, Any]:
        """Return the values of a body or a query. Raises the framework's ValidationError."""
        serializer = cls(data=data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)


class NewChat(Strict):
    """A chat, and its first message if `text` is given."""

    title = PlainText(default="", help_text="At most 200 characters.")
    model = PlainText(default="", help_text="The id of a model. Empty: the default model.")
    text = MessageText(required=False, help_text="The first message; the answer is then 202.")
    temporary = Flag(
        default=False,
        help_text="Erased at its owner's next sign-out on the pages, and some time after its last"
        " message at the latest, where the policy allows it (else `temporary_not_allowed`).",
    )
    team = serializers.UUIDField(
        default=None, allow_null=True, help_text="The id of a team, which replies in the chat."
    )


class Again(Strict):
    """The way in which a reply is asked for again."""

    play_on = Flag(
        default=False, help_text="In a team's round: those who followed then reply again, too."
    )


class ChatChange(Strict):
    """The fields of a chat that can be changed; absent fields stay."""

    title = PlainText(required=False, help_text="At most 200 characters. Empty keeps the old one.")
    model = PlainText(required=False, help_text="The id of the model that answers from now on.")
    system_text = PlainText(
        required=False,
        help_text="The chat's own system text, at most 20,000 characters, where its policy lets"
        " it have one (else `system_text_locked`). Empty takes it away.",
    )

    team = serializers.UUIDField(
        required=False,
        allow_null=True,
        help_text="The id of the team that replies from the next message on; null: the model does.",
    )
    memory = Flag(required=False, help_text="Whether the chat uses and fills its owner's memory.")
    pinned = Flag(required=False, help_text="Stands first in the list.")
    archived = Flag(required=False, help_text="Stands apart from the list.")
    folder = serializers.UUIDField(
        required=False, allow_null=True, help_text="The id of a folder; null: in none."
    )


class MemoryChange(Strict):
    """The switches of a person's memory and their instructions; absent fields stay."""

    instructions = PlainText(
        required=False, help_text="For all of one's chats; at most 2,000 characters. Empty: none."
    )
    consent = Flag(required=False, help_text="Whether preferences may be kept and sent.")
    inferring = Flag(
        required=False,
        help_text="Whether a model may read what is said from now on, and propose preferences.",
    )
    paused = Flag(required=False, help_text="Meanwhile nothing is noted and nothing is sent.")


class NewPreference(Strict):
    """A preference in the person's own words."""

    slot = PlainText(help_text="`name`, `language`, …, or `note`: of notes there may be many.")
    text = PlainText(help_text="One line of 1 to 200 characters.")
    folder = serializers.UUIDField(
        default=None, allow_null=True, help_text="Holds in the chats of this folder alone."
    )


class PreferenceChange(Strict):
    """Other words for a preference, or, without any, its acceptance."""

    text = PlainText(required=False, help_text="Absent: a proposed one is accepted as it is.")


class PreferenceDeletion(Strict):
    """The way in which a preference is deleted."""

    reopen = serializers.BooleanField(
        default=False, help_text="True: what it had taken the place of is in use again."
    )


class FolderChange(Strict):
    """The fields of a folder that can be changed; absent fields stay."""

    name = PlainText(required=False, help_text="As for a new folder.")
    memory = Flag(required=False, help_text="Whether its chats use and fill their owner's memory.")


class FolderName(Strict):
    """The name of a folder."""

    name = PlainText(help_text="1 to 100 characters; of the person's folders no other has it.")


class NewMessage(Strict):
    """A message; stored as sent, except that NUL and lone surrogates become U+FFFD."""

    text = MessageText()
    stream = Flag(default=False, help_text="Answer with the events of the reply instead of a 202.")
    as_role = PlainText(
        default="", help_text="The role of a person of the chat's team, in whose name it is said."
    )


class StateChange(Strict):
    """A correction of a state; fields that are not named stay."""

    version = WholeNumber(help_text="The version that was looked at.")
    values = serializers.DictField(default=dict, help_text="Fields to set, by name.")
    remove = serializers.ListField(
        child=PlainText(), default=list, help_text="Names of fields that are not known any more."
    )


class StateRestoration(Strict):
    """The version of a state that is to be in force again."""

    version = WholeNumber(help_text="The version that is in force now.")
    to = WholeNumber(help_text="The version whose values come back.")


class OtherWords(Strict):
    """A changed message; stored as sent, except that NUL and lone surrogates become U+FFFD."""

    text = MessageText()


class NewCompaction(Strict):
    """The wishes for a summary that somebody asks for."""

    focus = PlainText(default="", help_text="What the summary is to keep; at most 500 characters.")
    model = PlainText(
        default=None,
        allow_null=True,
        help_text="The id of the model that writes it. Null: as the policy says. Empty: no model,"
        " sentences are picked.",
    )


class Revision(Strict):
    """A summary in a person's own words."""

    text = PlainText(help_text="Headings, and bullets that end with their sources: `- … [#3, #7]`.")


class Rejection(Strict):
    """The reason why a waiting summary is refused."""

    reason = PlainText(default="", help_text="At most 400 characters; stays with the summary.")


class Erasing(Strict):
    """The choice for other messages that quote an erased one."""

    quotes = serializers.ChoiceField(
        choices=["keep", "erase"],
        default="keep",
        help_text="`erase`: messages that quote it word for word are erased with it.",
    )


class CompareQuery(Strict):
    """The two summaries of a chat to compare."""

    older = serializers.UUIDField(help_text="The id of the compaction to compare with.")
    newer = serializers.UUIDField(help_text="The id of the compaction that is compared.")


class NewKey(Strict):
    """A key of one's own."""

    name = PlainText(help_text="At most 200 characters.")
    scopes = serializers.ListField(child=ScopeName(), help_text="At least one.")
    lifetime_days = WholeNumber(default=keys.DEFAULT_DAYS, help_text="1 to 365.")
    unmanaged = Flag(
        default=False,
        help_text="What it sends to /v1 is passed on as it came, and none of its words is stored.",
    )


class Nothing(Strict):
    """An empty body or query."""


class PageQuery(Strict):
    """The page of a list."""

    limit = serializers.IntegerField(min_value=1, max_value=LARGEST_PAGE, default=20)
    cursor = PlainText(default="", help_text="`next_cursor` of the page before.")


class ChatsQuery(PageQuery):
    """The chats to list: all that are not deleted, or some of them."""

    archived = serializers.BooleanField(
        required=False, help_text="True: only archived chats; false: only others."
    )
    folder = serializers.UUIDField(required=False, help_text="Only the chats of this folder.")
    deleted = serializers.BooleanField(
        default=False, help_text="True: instead the deleted chats that can be brought back."
    )


class TeamMessagesQuery(PageQuery):
    """The messages of a team to list: all, or those of a speaker, of a time, or of an id."""

    id = PlainText(default="", help_text="`msg-N`, or the id that a message was imported with.")
    speaker = PlainText(default="", help_text="The id of a role.")
    since = serializers.DateTimeField(required=False, help_text="ISO 8601; that moment counts.")
    until = serializers.DateTimeField(required=False, help_text="ISO 8601; that moment does not.")
    stream = serializers.BooleanField(
        default=False,
        help_text="True: all of them at once, one JSON object a line; then without `limit`.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values; raises ValidationError for a stream of a page."""
        if attrs["stream"] and "limit" in self.initial_data:
            text = "A stream has no pages. Leave `limit` out, or `stream`."
            raise serializers.ValidationError({"limit": [text]})
        return attrs


class ArchiveQuery(Strict):
    """The search in the originals of a chat."""

    q = PlainText(help_text="Words, or a question in plain words; at most 500 characters.")
    speaker = PlainText(
        default="",
        help_text="Only what this one said: the id or the name of a role, whatever its case, spaces"
        " and hyphens, or the name of the chat's owner.",
    )
    limit = serializers.IntegerField(min_value=1, max_value=LARGEST_PAGE, default=20)


class SearchQuery(Strict):
    """The search in one's own chats."""

    q = PlainText(help_text="Words, or a question in plain words; at most 400 characters.")
    chat = serializers.UUIDField(required=False, help_text="Only in this chat.")
    folder = serializers.UUIDField(required=False, help_text="Only in this folder.")
    role = serializers.ChoiceField(choices=["user", "assistant", "summary"], required=False)
    speaker = PlainText(default="", help_text="Only what the role of this name said.")
    after = serializers.DateTimeField(required=False, help_text="Written then or later.")
    before = serializers.DateTimeField(required=False, help_text="Written earlier.")
    page = serializers.IntegerField(min_value=1, max_value=10, default=1)


class ExplainQuery(Strict):
    """The agent and the model for which the policy of a chat is explained."""

    agent = PlainText(required=False, max_length=80, help_text="The id of a role in its team.")
    model = PlainText(required=False, max_length=60, help_text="Empty: the one that would reply.")


class EffectiveQuery(ExplainQuery):
    """The person, chat, agent and model whose policy is explained."""

    person = PlainText(max_length=150, help_text="The name with which they sign in.")
    chat = serializers.UUIDField(required=False, help_text="One of theirs.")


class RecentQuery(Strict):
    """The newest messages across one's own chats."""

    limit = serializers.IntegerField(
        min_value=1,
        required=False,
        help_text="At most so many; never more than the policy's window.",
    )
    chat = serializers.UUIDField(required=False, help_text="Only those of this chat.")


class MessagesQuery(PageQuery):
    """The messages to list: all, or the originals of a compaction by its range."""

    from_seq = serializers.IntegerField(min_value=1, required=False)
    to_seq = serializers.IntegerField(min_value=1, required=False)


class EventsQuery(PageQuery):
    """The audit events to list."""

    type = serializers.ChoiceField(choices=sorted(ledger.EVENT_TYPES), required=False)
    chat = serializers.UUIDField(required=False)
    since = serializers.DateTimeField(required=False, help_text="ISO 8601; that moment counts.")
    q = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=LONGEST,
        help_text="A search line, as on the page: event: actor: chat: turn: policy: field: at:",
    )


class SampleRequest(Strict):
    """A policy as it is written, and where it would be assigned."""

    values = serializers.DictField(default=dict, help_text="The fields that it sets, by name.")
    locks = serializers.ListField(child=PlainText(), default=list, max_length=100)
    policy = PlainText(
        default="", help_text="The policy that it would be the next version of, by its slug."
    )
    place = serializers.ChoiceField(
        choices=["instance", "assigned"],
        default="instance",
        help_text="To everybody, or only where it is assigned today.",
    )


class PreviewRequest(SampleRequest):
    """A policy as it is written, and the chat that it is tried on."""

    place = serializers.ChoiceField(
        choices=["instance", "chat"],
        default="instance",
        help_text="Where it would be assigned, if it does not apply to the chat yet.",
    )
    chat = serializers.UUIDField()
