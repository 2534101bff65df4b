"""Compiles statements once and runs them many times, for the few that every reply needs.

Django builds and compiles a query each time it runs, which costs several times as much
as reading one row from the database. Here a query is compiled once per database vendor,
and only the values change. Django itself compiles the statements and creates the rows.
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
from django.db.models.constants import OnConflict
from django.db.models.expressions import Expression, Value
from django.db.models.sql import InsertQuery, UpdateQuery

Row = TypeVar("Row", bound=models.Model)
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


def _take_any(value: Any, connection: Any) -> Any:
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


# A parameter; a doubled percent sign is a literal one.
FREE = re.compile("(?<!%)%s")


def inline_parameters(sql: str, parameters: Sequence[Any]) -> tuple[str, list[Any]]:
    """Put texts and numbers into the statement, and return it with the remaining parameters.

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


class Statement:
    """An ORM statement whose SQL is compiled once per database vendor and then reused."""

    def __init__(self) -> None:
        self.compiled: dict[str, Compiled] = {}

    def query(self) -> Any:
        """Return the query to compile, with its placeholders. Subclasses must implement it."""
        raise NotImplementedError

    def compile(self, connection: Any) -> Compiled:
        sql, parameters = self.query().get_compiler(connection=connection).as_sql()
        return Compiled(sql, parameters, vendor=connection.vendor)

    def known(self, connection: Any) -> Compiled:
        """Return the compiled statement; it is compiled on the first call."""
        known = self.compiled.get(connection.vendor)
        if known is None:
            known = self.compiled[connection.vendor] = self.compile(connection)
        return known


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


class Select(Statement, Generic[Row]):
    """Reads rows. `build` gets a function that makes placeholders, and returns the query set."""

    def __init__(self, build: Callable[[At], "models.QuerySet[Row, Any]"]) -> None:
        super().__init__()
        self.build = build

    def compile(self, connection: Any) -> Compiled:
        """Compile the statement, with a row reader for its columns."""
        compiler = self.query().get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        compiled = Compiled(sql, parameters, vendor=connection.vendor)
        compiled.rows = RowReader(compiler)
        return compiled

    def query(self) -> Any:
        return self.build(Placeholder).query

    def rows(self, **values: Any) -> list[Row]:
        if not settings.SPEED:
            return list(self.build(inline_values(values)))
        connection = connections[DEFAULT_DB_ALIAS]
        known = self.known(connection)
        return cast(RowReader, known.rows).models(known.run(values, connection), connection)

    def first(self, **values: Any) -> Row | None:
        return next(iter(self.rows(**values)), None)

    def tuples(self, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a `values_list` query set."""
        if not settings.SPEED:
            return [tuple(row) for row in cast(Any, self.build(inline_values(values)))]
        connection = connections[DEFAULT_DB_ALIAS]
        known = self.known(connection)
        return cast(RowReader, known.rows).tuples(known.run(values, connection), connection)


class Lock(Select[Row]):
    """Locks rows until the transaction ends, to serialise transactions."""

    def hold(self, **values: Any) -> None:
        """Wait until the rows are locked.

        Without row locks (SQLite), the transaction itself is the lock.
        """
        if not settings.SPEED:
            list(self.build(inline_values(values)))
        elif connections[DEFAULT_DB_ALIAS].features.has_select_for_update:
            self.tuples(**values)


class Update(Statement):
    """Sets the named fields of the rows of `build`; `computed` returns fields with expressions."""

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
        rows = self.build(Placeholder)
        field = rows.model._meta.get_field  # noqa: SLF001  # Django's documented interface
        query: Any = rows.query.chain(UpdateQuery)
        new = {name: Placeholder(f"new {name}", field(name)) for name in self.fields}
        query.add_update_values({**new, **self.computed(Placeholder)})
        return query

    def run(self, new: Mapping[str, Any], **where: Any) -> int:
        """Write the new values; return the number of rows."""
        if not settings.SPEED:
            at = inline_values(where)
            return self.build(at).update(**new, **self.computed(at))
        connection = connections[DEFAULT_DB_ALIAS]
        values = {f"new {name}": value for name, value in new.items()} | where
        with closing(self.known(connection).run(values, connection)) as cursor:
            return int(cursor.rowcount)


class Insert(Statement):
    """Inserts one row of a model with SQL that is compiled once."""

    def __init__(self, model: type[models.Model]) -> None:
        super().__init__()
        self.model = model
        meta = model._meta  # noqa: SLF001  # Django's documented interface
        self.fields = [f for f in meta.concrete_fields if not isinstance(f, models.AutoField)]
        # The primary key's field, if the database generates it.
        self.made = [f for f in meta.concrete_fields if isinstance(f, models.AutoField)]

    def compile(self, connection: Any) -> Compiled:
        """Compile one statement, which returns the generated primary key."""
        compiler = self.query().get_compiler(connection=connection)
        compiler.returning_fields = self.made
        sql, parameters = compiler.as_sql()[0]
        return Compiled(sql, parameters, vendor=connection.vendor)

    def query(self) -> Any:
        """Return Django's insert query for a row whose values are placeholders."""
        query = InsertQuery(self.model)
        row = self.model(
            **{field.attname: Placeholder(field.attname, field) for field in self.fields}
        )
        query.insert_values(self.fields, [row])
        return query

    def run(self, row: models.Model) -> None:
        if not settings.SPEED:
            row.save(force_insert=True)
            return
        connection = connections[DEFAULT_DB_ALIAS]
        values = {f.attname: f.pre_save(row, add=True) for f in self.fields}
        with closing(self.known(connection).run(values, connection)) as cursor:
            if self.made:
                row.pk = cursor.fetchone()[0]
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS  # noqa: SLF001  # as `Model.save` does


class InsertSome(Insert):
    """Inserts a fixed number of rows of a model. Generated primary keys are not read.

    `missing`: a row that violates a unique constraint is left out.
    """

    def __init__(self, model: type[models.Model], number: int, *, missing: bool) -> None:
        super().__init__(model)
        self.number = number
        self.on_conflict = OnConflict.IGNORE if missing else None

    def compile(self, connection: Any) -> Compiled:
        """Compile one statement for all rows."""
        sql, parameters = self.query().get_compiler(connection=connection).as_sql()[0]
        return Compiled(sql, parameters, vendor=connection.vendor)

    def query(self) -> Any:
        query = InsertQuery(self.model, on_conflict=self.on_conflict)
        rows = [
            self.model(**{f.attname: Placeholder(f"{f.attname} {place}", f) for f in self.fields})
            for place in range(self.number)
        ]
        query.insert_values(self.fields, rows)
        return query

    def run_all(self, rows: Sequence[models.Model]) -> None:
        """Insert the rows, which must be new and as many as the statement has."""
        connection = connections[DEFAULT_DB_ALIAS]
        values = {
            f"{f.attname} {place}": f.pre_save(row, add=True)
            for place, row in enumerate(rows)
            for f in self.fields
        }
        self.known(connection).run(values, connection).close()


@cache
def _insert(model: type[models.Model]) -> Insert:
    return Insert(model)


@cache
def _insert_some(model: type[models.Model], number: int, *, missing: bool) -> InsertSome:
    return InsertSome(model, number, missing=missing)


@cache
def _update(model: type[models.Model], fields: tuple[str, ...]) -> Update:
    return Update(lambda at: model._base_manager.filter(pk=at("key")), fields)  # noqa: SLF001  # Django's documented interface


def insert_row(row: models.Model) -> None:
    """Insert the row like `save(force_insert=True)`, but without signals."""
    _insert(type(row)).run(row)


# Maximum number of rows of one statement. A statement is compiled for each smaller number too.
MOST_ROWS = 32


def insert_all(rows: Sequence[models.Model], *, missing: bool = False) -> None:
    """Insert rows of one model like `bulk_create`; their generated keys are not read.

    The rows must be new, unless `missing` is set: then rows that are already stored are left out.
    """
    if not settings.SPEED:
        if rows:
            every_row: models.QuerySet[Any, Any] = models.QuerySet(type(rows[0]))
            every_row.bulk_create(rows, ignore_conflicts=missing)
        return
    for start in range(0, len(rows), MOST_ROWS):
        some = rows[start : start + MOST_ROWS]
        _insert_some(type(some[0]), len(some), missing=missing).run_all(some)


def save_row_fields(row: models.Model, *fields: str) -> None:
    """Write these fields of a stored row like `save(update_fields=…)`, but without signals."""
    _update(type(row), fields).run({name: getattr(row, name) for name in fields}, key=row.pk)
