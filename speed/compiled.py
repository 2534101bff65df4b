"""A compiled statement: its text, its parameters, and the reader of its rows."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import query as django_query

from speed.placeholders import Placeholder

# A parameter; a doubled percent sign is a literal one.
FREE = re.compile("(?<!%)%s")


def inline_parameters(sql: str, parameters: Sequence[Any]) -> tuple[str, list[Any]]:
    """Put strings and numbers into the statement, and return it with the remaining parameters.

    SQLite matches a partial index only with constants in the statement. With parameters it would
    plan the statement again on each run.
    """
    begin, *rest = FREE.split(sql)
    written, left = [begin], []
    for parameter, following in zip(parameters, rest, strict=True):
        if isinstance(parameter, str):
            quoted = parameter.replace("'", "''").replace("%", "%%")
            written.append(f"'{quoted}'")
        elif isinstance(parameter, int):
            written.append(str(int(parameter)))
        else:
            written.append("%s")
            left.append(parameter)
        written.append(following)
    return "".join(written), left


class Compiled:
    """A compiled statement for one database vendor: its text, and its parameter converters."""

    def __init__(self, sql: str, parameters: Sequence[Any], *, vendor: str) -> None:
        if vendor == "sqlite":
            sql, parameters = inline_parameters(sql, parameters)
        self.sql = sql
        # In SQLite's syntax; Django's cursor would convert it on each run.
        self.native = FREE.sub("?", sql).replace("%%", "%") if vendor == "sqlite" else ""
        # A placeholder's name and its converter, or no name and the parameter itself.
        self.places = [
            (each.name, each.taker(vendor)) if isinstance(each, Placeholder) else ("", each)
            for each in parameters
        ]
        self.rows: RowReader | None = None

    def filled(self, values: Mapping[str, Any], connection: Any) -> tuple[Any, ...]:
        """Return the parameters with the given values filled in."""
        return tuple(
            [taken(values[name], connection) if name else taken for name, taken in self.places]
        )

    def run(self, values: Mapping[str, Any], connection: Any) -> Any:
        """Execute the statement and return its cursor.

        On SQLite it avoids Django's cursor, which costs as much as a row because it converts the
        statement on each run. If execute wrappers are installed or queries are logged, Django's
        cursor is used, so that they see the statement.
        """
        parameters = self.filled(values, connection)
        is_watched = connection.execute_wrappers or connection.queries_logged
        if not self.native or is_watched or connection.needs_rollback:
            cursor = connection.cursor()
            cursor.execute(self.sql, parameters)
            return cursor
        if connection.connection is None:
            connection.connect()
        with connection.wrap_database_errors:
            return connection.connection.execute(self.native, parameters)


class RowReader:
    """Creates rows from a query's columns. Django would build its own reader on each run."""

    def __init__(self, compiler: Any) -> None:
        # Django's own converters; none of them changes a NULL.
        columns = [column[0] for column in compiler.select[: compiler.col_count]]
        self.converters = [
            (position, makers, expression)
            for position, (makers, expression) in compiler.get_converters(columns).items()
        ]
        self.width = compiler.col_count
        self.annotations = list((compiler.annotation_col_map or {}).items())
        self.klass_info = compiler.klass_info
        if self.klass_info:
            fields = self.klass_info["select_fields"]
            self.own = slice(fields[0], fields[-1] + 1)
            self.names = [column[0].target.attname for column in compiler.select[self.own]]
            # The stubs are those of a later Django version.
            populators: Any = django_query.get_related_populators
            self.related = populators(self.klass_info, compiler.select, DEFAULT_DB_ALIAS)

    def tuples(self, cursor: Any, connection: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.converted(cursor, connection)]

    def models(self, cursor: Any, connection: Any) -> list[Any]:
        """Return the rows as models, with related objects and annotations."""
        found = []
        for row in self.converted(cursor, connection):
            model = self.klass_info["model"].from_db(DEFAULT_DB_ALIAS, self.names, row[self.own])
            for related in self.related:
                related.populate(row, model)
            for name, position in self.annotations:
                setattr(model, name, row[position])
            found.append(model)
        return found

    def converted(self, cursor: Any, connection: Any) -> list[list[Any]]:
        with connection.wrap_database_errors:
            rows = [list(row[: self.width]) for row in cursor.fetchall()]
        cursor.close()
        for row in rows:
            for position, makers, expression in self.converters:
                value = row[position]
                if value is not None:
                    for make in makers:
                        value = make(value, expression, connection)
                    row[position] = value
        return rows
