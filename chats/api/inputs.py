"""What may be sent: each body and query field by name, everything else refused.

Nothing is trimmed, converted or guessed: texts are stored byte for byte, and their limits are the
domain's, which has words for them.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from chats import keys
from contextpolicy import ledger

LARGEST_PAGE = 100


class Text(serializers.CharField):
    """A string as it came; a number is no string."""

    default_error_messages: ClassVar = {"invalid": "This is not a string."}

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, allow_blank=True, **options)
        # NUL and half surrogate pairs are refused by the domain, which names their place.
        self.validators = []

    def to_internal_value(self, data: Any) -> str:
        """The text itself."""
        if not isinstance(data, str):
            self.fail("invalid")
        return data


class WholeNumber(serializers.IntegerField):
    """A JSON integer; "90", 90.0 and true are none."""

    def to_internal_value(self, data: Any) -> int:
        """The number itself."""
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class Flag(serializers.BooleanField):
    """A JSON true or false; "yes" and 1 are none."""

    def to_internal_value(self, data: Any) -> bool:
        """The flag itself."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Strict(serializers.Serializer[Any]):
    """A set of fields; a field that does not exist is an error and not noise."""

    def to_internal_value(self, data: Any) -> Any:
        """The known fields, checked."""
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
        """The values of a body or a query. Raises the framework's ValidationError."""
        serializer = cls(data=data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)


class NewChat(Strict):
    """A chat, and its first message if `text` is given."""

    title = Text(default="", help_text="At most 200 characters.")
    model = Text(default="", help_text="The id of a model. Empty: the default model.")
    text = Text(required=False, help_text="The first message; the answer is then 202.")


class ChatChange(Strict):
    """What of a chat can be changed; absent fields stay."""

    title = Text(required=False, help_text="At most 200 characters. Empty keeps the old one.")
    model = Text(required=False, help_text="The id of the model that answers from now on.")
    system_text = Text(
        required=False,
        help_text="The chat's own system text, at most 20,000 characters, where its policy lets"
        " it have one (else `system_text_locked`). Empty takes it away.",
    )


class NewMessage(Strict):
    """A message; stored byte for byte."""

    text = Text()
    stream = Flag(default=False, help_text="Answer with the events of the reply instead of a 202.")


class StateChange(Strict):
    """A correction of a state; fields that are not named stay."""

    version = WholeNumber(help_text="The version that was looked at.")
    values = serializers.DictField(default=dict, help_text="Fields to set, by name.")
    remove = serializers.ListField(
        child=Text(), default=list, help_text="Names of fields that are not known any more."
    )


class OtherWords(Strict):
    """A message said in other words; stored byte for byte."""

    text = Text()


class NewCompaction(Strict):
    """What a summary that somebody asks for should be like."""

    focus = Text(default="", help_text="What the summary is to keep; at most 500 characters.")
    model = Text(
        default=None,
        allow_null=True,
        help_text="The id of the model that writes it. Null: as the policy says. Empty: no model,"
        " sentences are picked.",
    )


class Revision(Strict):
    """A summary in a person's own words."""

    text = Text(help_text="Headings, and bullets that end with their sources: `- … [#3, #7]`.")


class Rejection(Strict):
    """Why a waiting summary is refused."""

    reason = Text(default="", help_text="At most 400 characters; stays with the summary.")


class Erasing(Strict):
    """What becomes of other messages that quote an erased one."""

    quotes = serializers.ChoiceField(
        choices=["keep", "erase"],
        default="keep",
        help_text="`erase`: messages that quote it word for word are erased with it.",
    )


class CompareQuery(Strict):
    """Which two summaries of a chat."""

    older = serializers.UUIDField(help_text="The id of the compaction to compare with.")
    newer = serializers.UUIDField(help_text="The id of the compaction that is compared.")


class NewKey(Strict):
    """A key of one's own."""

    name = Text(help_text="At most 200 characters.")
    scopes = serializers.ListField(child=Text(), help_text=f"Of {', '.join(keys.SCOPES)}.")
    lifetime_days = WholeNumber(default=keys.DEFAULT_DAYS, help_text="1 to 365.")


class Nothing(Strict):
    """An empty body or query."""


class PageQuery(Strict):
    """Which page of a list."""

    limit = serializers.IntegerField(min_value=1, max_value=LARGEST_PAGE, default=20)
    cursor = Text(default="", help_text="`next_cursor` of the page before.")


class MessagesQuery(PageQuery):
    """Which messages: all, or the originals of a compaction by its range."""

    from_seq = serializers.IntegerField(min_value=1, required=False)
    to_seq = serializers.IntegerField(min_value=1, required=False)


class EventsQuery(PageQuery):
    """Which audit events."""

    type = serializers.ChoiceField(choices=sorted(ledger.EVENT_TYPES), required=False)
    chat = serializers.UUIDField(required=False)
    since = serializers.DateTimeField(required=False, help_text="ISO 8601; that moment counts.")
