"""Dates and ids in the search line of the ledger, and the error for a part that is invalid."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.utils.translation import gettext


class SearchNotUnderstood(Exception):
    """A part of a search line is invalid. `reason` is a stable code; the text names the part."""

    code = "search_not_understood"

    def __init__(self, sentence: str, *, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def parse_search_time(text: str) -> tuple[datetime, datetime]:
    """Return the start and the end of a day or a minute. Raises `SearchNotUnderstood`."""
    for form, length in (("%Y-%m-%d", timedelta(days=1)), ("%Y-%m-%dT%H:%M", timedelta(minutes=1))):
        try:
            start = datetime.strptime(text, form).replace(tzinfo=UTC)
            return start, start + length
        except (ValueError, OverflowError):
            continue
    raise SearchNotUnderstood(
        gettext(
            "“{text}” is not a date. Write 2026-11-20, or 2026-11-20T14:05 for a minute, in UTC."
        ).format(text=text),
        reason="not_a_day",
    )


def parse_search_id(key: str, value: str) -> UUID:
    """Parse an id. Raises `SearchNotUnderstood`."""
    found = parse_uuid(value)
    if found is None:
        raise SearchNotUnderstood(
            gettext(
                "“{value}” is not an ID. “{key}:” needs a complete ID: 32 digits and letters "
                "from a to f, with hyphens."
            ).format(value=value, key=key),
            reason="not_an_id",
        )
    return found


def parse_uuid(text: str) -> UUID | None:
    """Parse a text as a UUID; return None if it is not one."""
    try:
        return UUID(text)
    except ValueError:
        return None
