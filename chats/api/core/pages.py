"""Pagination by opaque, signed cursors. A cursor is valid for one list and its filters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core import signing
from django.db.models import Model, Q, QuerySet
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal

Row = TypeVar("Row", bound=Model)


class InvalidCursor(Refusal):
    """The cursor belongs to another list or is damaged. Start again without a cursor."""

    code = "invalid_cursor"
    status = 400
    sentence = gettext_noop("This cursor belongs to another list. Start again without a cursor.")
    param = "cursor"


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """One page of rows, and the cursor of the next page; None on the last page."""

    rows: list[Row]
    next_cursor: str | None


def paginate_rows(
    rows: QuerySet[Row], *, order: Sequence[str], limit: int, cursor: str, name: str
) -> Page[Row]:
    """Return the next `limit` rows in the given order, whose last field must be unique.

    `name` identifies the list and its filters; a cursor is valid for that list only. Raises
    `InvalidCursor`.
    """
    if cursor:
        rows = rows.filter(
            build_keyset_filter(order, read_cursor(cursor, name=name, length=len(order)))
        )
    found = list(rows.order_by(*order)[: limit + 1])
    if len(found) <= limit:
        return Page(rows=found, next_cursor=None)
    last = found[limit - 1]
    values = [getattr(last, field.removeprefix("-")) for field in order]
    return Page(rows=found[:limit], next_cursor=write_cursor(values, name=name))


def build_keyset_filter(order: Sequence[str], values: Sequence[str]) -> Q:
    """Return the condition for the rows that follow the row with these values."""
    field, value = order[0], values[0]
    name = field.removeprefix("-")
    way = "lt" if field.startswith("-") else "gt"
    after = Q(**{f"{name}__{way}": value})
    if len(order) == 1:
        return after
    # The first condition follows from the second, but databases do not use an index for OR alone.
    return Q(**{f"{name}__{way}e": value}) & (after | build_keyset_filter(order[1:], values[1:]))


def write_cursor(values: Sequence[Any], *, name: str) -> str:
    texts = [value.isoformat() if hasattr(value, "isoformat") else str(value) for value in values]
    return signing.dumps(texts, salt=f"cursor:{name}")


def read_cursor(cursor: str, *, name: str, length: int) -> list[str]:
    """Return the values of a cursor issued for this list. Raises `InvalidCursor`."""
    try:
        values: list[str] = signing.loads(cursor, salt=f"cursor:{name}")
    except signing.BadSignature:
        raise InvalidCursor from None
    if len(values) != length:
        raise InvalidCursor
    return values
