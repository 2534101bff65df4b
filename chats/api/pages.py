"""Pages lists by an opaque, signed cursor, which names the list and the end of the last page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core import signing
from django.db.models import Model, Q, QuerySet

from chats.ground.refusals import Refusal

Row = TypeVar("Row", bound=Model)


class InvalidCursor(Refusal):
    """The cursor was not written by this server, or is of another list."""

    code = "invalid_cursor"
    status = 400
    sentence = "The cursor is not one of this list. Begin again without it."
    param = "cursor"


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows, and the cursor of the next page; None after the last."""

    rows: list[Row]
    next_cursor: str | None


def page_of(
    rows: QuerySet[Row], *, order: Sequence[str], limit: int, cursor: str, name: str
) -> Page[Row]:
    """Return the next `limit` rows in the order of the given fields, the last of which is unique.

    `name` says which list it is, with every filter: a cursor of one list opens no other. Raises
    `InvalidCursor`.
    """
    if cursor:
        rows = rows.filter(beyond(order, read_cursor(cursor, name=name, length=len(order))))
    found = list(rows.order_by(*order)[: limit + 1])
    if len(found) <= limit:
        return Page(rows=found, next_cursor=None)
    last = found[limit - 1]
    values = [getattr(last, field.removeprefix("-")) for field in order]
    return Page(rows=found[:limit], next_cursor=write_cursor(values, name=name))


def beyond(order: Sequence[str], values: Sequence[str]) -> Q:
    """Return the condition of a row that comes after the one with these values."""
    field, value = order[0], values[0]
    name = field.removeprefix("-")
    way = "lt" if field.startswith("-") else "gt"
    after = Q(**{f"{name}__{way}": value})
    if len(order) == 1:
        return after
    # The first part is implied by the second, but no database seeks in an index by an OR alone.
    return Q(**{f"{name}__{way}e": value}) & (after | beyond(order[1:], values[1:]))


def write_cursor(values: Sequence[Any], *, name: str) -> str:
    """Write the values as a signed text."""
    texts = [value.isoformat() if hasattr(value, "isoformat") else str(value) for value in values]
    return signing.dumps(texts, salt=f"cursor:{name}")


def read_cursor(cursor: str, *, name: str, length: int) -> list[str]:
    """Return the values of a cursor that we wrote for this list. Raises `InvalidCursor`."""
    try:
        values: list[str] = signing.loads(cursor, salt=f"cursor:{name}")
    except signing.BadSignature:
        raise InvalidCursor from None
    if len(values) != length:
        raise InvalidCursor
    return values
