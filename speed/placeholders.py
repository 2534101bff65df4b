"""Placeholders for the values of a compiled statement."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import models
from django.db.models.expressions import Expression, Value

# Makes a placeholder in a query for the value with that name; durations name their field.
At = Callable[..., Any]


class Placeholder(Expression):
    """A placeholder in a query for a value that is passed when it runs."""

    def __init__(self, name: str, field: "models.Field[Any, Any] | None" = None) -> None:
        super().__init__(output_field=field)
        self.name = name
        self.kind = field

    def as_sql(self, _compiler: Any, _connection: Any) -> tuple[str, Any]:
        """Return `%s` with this placeholder as its parameter. Each run replaces the placeholder."""
        return "%s", [self]

    def taker(self, vendor: str) -> "Take":
        """Return a function that converts a value for a database vendor."""
        if self.kind is None:
            return _convert_value
        prepare = self.kind.get_db_prep_save
        target: Any = self.kind
        while isinstance(target, models.ForeignKey):
            target = target.target_field
        as_it_is = _AS_IT_IS[vendor].get(type(target))

        def take(value: Any, connection: Any) -> Any:
            if value is None or type(value) is as_it_is:
                return value
            if isinstance(value, models.Model):
                value = value.pk
            return prepare(value, connection)

        return take


# Converts a value to one that the connection's database accepts.
Take = Callable[[Any, Any], Any]
_TEXTS: Mapping[type[Any], type[Any]] = {models.CharField: str, models.TextField: str}
# By field type: the type whose values Django would only validate.
_AS_IT_IS: Mapping[str, Mapping[type[Any], type[Any]]] = {
    "postgresql": {**_TEXTS, models.UUIDField: UUID},
    "sqlite": {
        **_TEXTS,
        models.BooleanField: bool,
        models.IntegerField: int,
        models.PositiveBigIntegerField: int,
        models.PositiveIntegerField: int,
        models.PositiveSmallIntegerField: int,
    },
}


def _convert_value(value: Any, connection: Any) -> Any:
    if isinstance(value, models.Model):
        value = value.pk
    if isinstance(value, UUID) and not connection.features.has_native_uuid_field:
        return value.hex
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value


def inline_values(values: Mapping[str, Any]) -> At:
    """Return a function that gives a query the actual value of a name instead of a placeholder."""

    def at(name: str, field: "models.Field[Any, Any] | None" = None) -> Any:
        value = values[name]
        # Equal to nothing, as in a compiled statement: a plain None would become IS NULL.
        return value if field is None and value is not None else Value(value, output_field=field)

    return at
