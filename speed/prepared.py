"""Builds statements once and runs them many times, for the few that every reply needs.

Django builds and compiles a query anew each time it is run, which costs several times what the
database takes for one row. Here that happens once for each kind of database, and only the values
change. The compiled statement and the way rows are made are Django's own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.models import query as django_query
from django.db.models.expressions import Expression, Value
from django.db.models.sql import InsertQuery, UpdateQuery

Row = TypeVar("Row", bound=models.Model)
# Makes a placeholder in a query for the value of that name; durations name their field.
At = Callable[..., Any]


class Placeholder(Expression):
    """A placeholder in a query for a value that is known when it is run."""

    def __init__(self, name: str, field: "models.Field[Any, Any] | None" = None) -> None:
        super().__init__(output_field=field)
        self.name = name
        self.kind = field

    def as_sql(self, _compiler: Any, _connection: Any) -> tuple[str, Any]:
        """Return a parameter that is this placeholder itself."""
        return "%s", [self]

    def taker(self, vendor: str) -> "Take":
        """Return the function that converts a value for this kind of database."""
        if self.kind is None:
            return _take_any
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


# Converts a value to one that the database of the connection takes.
Take = Callable[[Any, Any], Any]
_TEXTS: Mapping[type[Any], type[Any]] = {models.CharField: str, models.TextField: str}
# By the kind of field: the type whose values Django would check and leave as they are.
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


def _take_any(value: Any, connection: Any) -> Any:
    if isinstance(value, models.Model):
        value = value.pk
    if isinstance(value, UUID) and not connection.features.has_native_uuid_field:
        return value.hex
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value


def plainly(values: Mapping[str, Any]) -> At:
    """Return a maker that puts the values themselves where a query has placeholders."""

    def at(name: str, field: "models.Field[Any, Any] | None" = None) -> Any:
        value = values[name]
        # Equal to nothing, as in a compiled statement: a bare None would ask for what is empty.
        return value if field is None and value is not None else Value(value, output_field=field)

    return at


# A parameter; two percent signs stand for one of the text.
FREE = re.compile("(?<!%)%s")


def written_out(sql: str, parameters: Sequence[Any]) -> tuple[str, list[Any]]:
    """Write the statement with its texts and numbers in it, and the parameters that are left.

    SQLite finds an index on part of a table only by constants in the statement itself. Where it
    would have to look at parameters for that, it plans the statement anew each time it is run.
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
    """A statement of one kind of database: its text, and the way its parameters are made."""

    def __init__(self, sql: str, parameters: Sequence[Any], *, vendor: str) -> None:
        if vendor == "sqlite":
            sql, parameters = written_out(sql, parameters)
        self.sql = sql
        # In SQLite's own syntax, to which Django's cursor would convert it each time.
        self.native = FREE.sub("?", sql).replace("%%", "%") if vendor == "sqlite" else ""
        # The name of a placeholder and its converter, or no name and the parameter itself.
        self.places = [
            (each.name, each.taker(vendor)) if isinstance(each, Placeholder) else ("", each)
            for each in parameters
        ]
        self.rows: RowReader | None = None

    def filled(self, values: Mapping[str, Any], connection: Any) -> tuple[Any, ...]:
        """Return the parameters with these values."""
        return tuple(
            [taken(values[name], connection) if name else taken for name, taken in self.places]
        )

    def run(self, values: Mapping[str, Any], connection: Any) -> Any:
        """Execute the statement and return its cursor.

        On SQLite without Django's cursor, which costs as much as a row: it converts each statement
        to SQLite's syntax anew. While somebody listens to statements, Django's cursor runs them, so
        that they are heard.
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


class Statement:
    """One statement, compiled once for each kind of database."""

    def __init__(self) -> None:
        self.compiled: dict[str, Compiled] = {}

    def query(self) -> Any:
        """Return the query to compile, with its placeholders. Raises NotImplementedError here."""
        raise NotImplementedError

    def compile(self, connection: Any) -> Compiled:
        """Compile the statement for the connection's kind of database."""
        sql, parameters = self.query().get_compiler(connection=connection).as_sql()
        return Compiled(sql, parameters, vendor=connection.vendor)

    def known(self, connection: Any) -> Compiled:
        """Return the compiled statement; compiled at the first call."""
        known = self.compiled.get(connection.vendor)
        if known is None:
            known = self.compiled[connection.vendor] = self.compile(connection)
        return known


class RowReader:
    """A maker of rows from a query's columns; Django would build its own anew each time."""

    def __init__(self, compiler: Any) -> None:
        # Django's own converters; none of them changes an empty column.
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
            # Its stubs are those of a later Django.
            populators: Any = django_query.get_related_populators
            self.related = populators(self.klass_info, compiler.select, DEFAULT_DB_ALIAS)

    def tuples(self, cursor: Any, connection: Any) -> list[tuple[Any, ...]]:
        """Return the rows as Python's values."""
        return [tuple(row) for row in self.converted(cursor, connection)]

    def models(self, cursor: Any, connection: Any) -> list[Any]:
        """Return the rows as models, with what was asked for beside them."""
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
        """Return all rows."""
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


class Select(Statement, Generic[Row]):
    """Reads rows: `build` is given a maker of placeholders and returns the query set."""

    def __init__(self, build: Callable[[At], "models.QuerySet[Row, Any]"]) -> None:
        super().__init__()
        self.build = build

    def compile(self, connection: Any) -> Compiled:
        """Compile the statement, with a maker of rows from its columns."""
        compiler = self.query().get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        compiled = Compiled(sql, parameters, vendor=connection.vendor)
        compiled.rows = RowReader(compiler)
        return compiled

    def query(self) -> Any:
        """Return the query of the set."""
        return self.build(Placeholder).query

    def rows(self, **values: Any) -> list[Row]:
        """Return the rows as models."""
        if not settings.SPEED:
            return list(self.build(plainly(values)))
        connection = connections[DEFAULT_DB_ALIAS]
        known = self.known(connection)
        return cast(RowReader, known.rows).models(known.run(values, connection), connection)

    def first(self, **values: Any) -> Row | None:
        """Return the first row, or None."""
        return next(iter(self.rows(**values)), None)

    def tuples(self, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a set of values."""
        if not settings.SPEED:
            return [tuple(row) for row in cast(Any, self.build(plainly(values)))]
        connection = connections[DEFAULT_DB_ALIAS]
        known = self.known(connection)
        return cast(RowReader, known.rows).tuples(known.run(values, connection), connection)


class Lock(Select[Row]):
    """Locks rows until the transaction ends, to put transactions in order."""

    def hold(self, **values: Any) -> None:
        """Wait for the rows. Without row locks (SQLite) the transaction itself is the lock."""
        if not settings.SPEED:
            list(self.build(plainly(values)))
        elif connections[DEFAULT_DB_ALIAS].features.has_select_for_update:
            self.tuples(**values)


class Update(Statement):
    """Sets the named fields of the rows of `build`; `computed` gives those set to an expression."""

    def __init__(
        self,
        build: Callable[[At], "models.QuerySet[Any, Any]"],
        fields: Sequence[str],
        computed: Callable[[At], Mapping[str, Any]] = lambda _at: {},
    ) -> None:
        super().__init__()
        self.build = build
        self.fields = fields
        self.computed = computed

    def query(self) -> Any:
        """Return Django's update of the set."""
        rows = self.build(Placeholder)
        field = rows.model._meta.get_field  # noqa: SLF001  # Django's documented interface
        query: Any = rows.query.chain(UpdateQuery)
        new = {name: Placeholder(f"new {name}", field(name)) for name in self.fields}
        query.add_update_values({**new, **self.computed(Placeholder)})
        return query

    def run(self, new: Mapping[str, Any], **where: Any) -> int:
        """Write the new values; return how many rows there were."""
        if not settings.SPEED:
            at = plainly(where)
            return self.build(at).update(**new, **self.computed(at))
        connection = connections[DEFAULT_DB_ALIAS]
        values = {f"new {name}": value for name, value in new.items()} | where
        with closing(self.known(connection).run(values, connection)) as cursor:
            return int(cursor.rowcount)


class Insert(Statement):
    """Adds one row of a model."""

    def __init__(self, model: type[models.Model]) -> None:
        super().__init__()
        self.model = model
        meta = model._meta  # noqa: SLF001  # Django's documented interface
        self.fields = [f for f in meta.concrete_fields if not isinstance(f, models.AutoField)]
        # The key's field, where the database makes the key.
        self.made = [f for f in meta.concrete_fields if isinstance(f, models.AutoField)]

    def compile(self, connection: Any) -> Compiled:
        """Compile one statement, which returns the key that the database made."""
        compiler = self.query().get_compiler(connection=connection)
        compiler.returning_fields = self.made
        sql, parameters = compiler.as_sql()[0]
        return Compiled(sql, parameters, vendor=connection.vendor)

    def query(self) -> Any:
        """Return Django's insert of a row of placeholders."""
        query = InsertQuery(self.model)
        row = self.model(
            **{field.attname: Placeholder(field.attname, field) for field in self.fields}
        )
        query.insert_values(self.fields, [row])
        return query

    def run(self, row: models.Model) -> None:
        """Write the row, which must be new."""
        if not settings.SPEED:
            row.save(force_insert=True)
            return
        connection = connections[DEFAULT_DB_ALIAS]
        values = {f.attname: f.pre_save(row, add=True) for f in self.fields}
        with closing(self.known(connection).run(values, connection)) as cursor:
            if self.made:
                row.pk = cursor.fetchone()[0]
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS  # noqa: SLF001  # as `save` does


@cache
def _insert(model: type[models.Model]) -> Insert:
    return Insert(model)


@cache
def _update(model: type[models.Model], fields: tuple[str, ...]) -> Update:
    return Update(lambda at: model._base_manager.filter(pk=at("key")), fields)  # noqa: SLF001  # Django's documented interface


def insert(row: models.Model) -> None:
    """Add the row, as `save(force_insert=True)` would; no signals are sent."""
    _insert(type(row)).run(row)


def save(row: models.Model, *fields: str) -> None:
    """Write these fields of a stored row, as `save(update_fields=…)` would; no signals are sent."""
    _update(type(row), fields).run({name: getattr(row, name) for name in fields}, key=row.pk)
