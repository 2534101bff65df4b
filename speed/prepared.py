"""Compiles statements once and runs them many times, for the few that every reply needs.

Django builds and compiles a query each time it runs, which costs several times as much
as reading one row from the database. Here a query is compiled once per database vendor,
and only the values change. Django itself compiles the statements and creates the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any, Generic, TypeVar, cast

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.models.constants import OnConflict
from django.db.models.sql import InsertQuery, UpdateQuery

from speed.compiled import Compiled, RowReader
from speed.placeholders import At, Placeholder, inline_values

Row = TypeVar("Row", bound=models.Model)


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
    """Sets the named fields of the rows that `build` selects.

    `computed` returns the fields that are set to expressions.
    """

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
