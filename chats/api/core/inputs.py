"""Base classes and fields for request bodies and query parameters. Unknown fields are refused.

Values are never trimmed, converted or guessed. Text is stored unchanged; the domain checks its
limits and returns the error messages.
"""

import uuid
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, ClassVar, TypeVar

from django.core.validators import MaxLengthValidator
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from rest_framework import serializers

from chats.ground.texts import sanitise_text

LARGEST_PAGE = 100
FIELD_UNKNOWN = gettext_noop("This field does not exist or cannot be set. Remove the field.")


class PlainText(serializers.CharField):
    """A string, unchanged. Other JSON types are refused."""

    default_error_messages: ClassVar = {
        "invalid": gettext_lazy("Send a JSON string for this field.")
    }

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


class Identifier(serializers.UUIDField):
    """A UUID as a JSON string. Numbers are refused."""

    def to_internal_value(self, data: Any) -> uuid.UUID:
        if not isinstance(data, str):
            self.fail("invalid", value=data)
        found: uuid.UUID = super().to_internal_value(data)
        return found


class Strict(serializers.Serializer[Any]):
    """Base class of request bodies and queries: unknown fields are errors."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated fields. Raises ValidationError for an unknown field."""
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


D = TypeVar("D", bound=date)


def subtract_from_end(until: D, duration: timedelta) -> D:
    """Return the default start of a range that ends at `until`, a date or a time.

    Raises ValidationError for `until` if there is no such date.
    """
    try:
        return until - duration
    except OverflowError:
        text = gettext("This date is too early. Choose a later one, or send `since`.")
        raise serializers.ValidationError({"until": [text]}) from None


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
