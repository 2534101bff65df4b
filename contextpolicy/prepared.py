"""Statements that are built once and run many times, for the few that every reply needs.

Django builds and compiles a query anew each time it is run, which costs several times what the
database takes for one row. Here that happens once for each kind of database, and only the values
change. What is compiled and how rows are made is Django's own.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.models.expressions import Expression
from django.db.models.query import ModelIterable
from django.db.models.sql import InsertQuery, UpdateQuery

Row = TypeVar("Row", bound=models.Model)
# Makes the place in a query where the value of that name will stand; durations name their field.
At = Callable[..., Any]


class Place(Expression):
    """Stands in a query for a value that is known when it is run."""

    def __init__(self, name: str, field: "models.Field[Any, Any] | None" = None) -> None:
        super().__init__(output_field=field)
        self.name = name
        self.kind = field

    def as_sql(self, _compiler: Any, _connection: Any) -> tuple[str, Any]:
        """A parameter that is this place itself."""
        return "%s", [self]

    def filled(self, value: Any, connection: Any) -> Any:
        """The value as this database takes it."""
        if isinstance(value, models.Model):
            value = value.pk
        if self.kind is not None:
            return self.kind.get_db_prep_save(value, connection)
        if isinstance(value, UUID) and not connection.features.has_native_uuid_field:
            return value.hex
        if isinstance(value, datetime):
            return connection.ops.adapt_datetimefield_value(value)
        return value


class Statement:
    """One statement, compiled once for each kind of database."""

    def __init__(self) -> None:
        self.compiled: dict[str, tuple[Any, str, Sequence[Any]]] = {}

    def query(self) -> Any:
        """What is compiled, with its places."""
        raise NotImplementedError

    def compile(self) -> tuple[Any, str, Sequence[Any]]:
        """The compiler, the SQL and its parameters, with their places."""
        compiler = self.query().get_compiler(DEFAULT_DB_ALIAS)
        return compiler, *compiler.as_sql()

    def filled(self, values: Mapping[str, Any]) -> tuple[Any, str, tuple[Any, ...]]:
        """The compiler, the SQL, and its parameters with these values."""
        connection = connections[DEFAULT_DB_ALIAS]
        known = self.compiled.get(connection.vendor)
        if known is None:
            known = self.compiled[connection.vendor] = self.compile()
        compiler, sql, parameters = known
        return (
            compiler,
            sql,
            tuple(
                each.filled(values[each.name], connection) if isinstance(each, Place) else each
                for each in parameters
            ),
        )


class Select(Statement, Generic[Row]):
    """Reads rows: `build` is given what makes a place and returns the query set."""

    def __init__(self, build: Callable[[At], "models.QuerySet[Row, Any]"]) -> None:
        super().__init__()
        self.build = build

    def compile(self) -> tuple[Any, str, Sequence[Any]]:
        """The same, with what turns columns into values kept as well."""
        compiler, sql, parameters = super().compile()
        columns = [column[0] for column in compiler.select[: compiler.col_count]]
        converters = compiler.get_converters(columns)
        compiler.get_converters = lambda _columns: converters
        return compiler, sql, parameters

    def query(self) -> Any:
        """The query of the set."""
        return self.build(Place).query

    def rows(self, **values: Any) -> list[Row]:
        """The rows as models."""
        return list(ModelIterable(_Ready(self.ready(values))))  # type: ignore[arg-type]  # all it needs of a set

    def first(self, **values: Any) -> Row | None:
        """The first row, or None."""
        return next(iter(self.rows(**values)), None)

    def tuples(self, **values: Any) -> list[tuple[Any, ...]]:
        """The rows of a set of values."""
        return list(self.ready(values).results_iter(tuple_expected=True))

    def ready(self, values: Mapping[str, Any]) -> Any:
        """A compiler for this thread's connection that has nothing to compile any more."""
        compiler, sql, parameters = self.filled(values)
        mine = copy.copy(compiler)
        mine.connection = connections[DEFAULT_DB_ALIAS]
        mine.as_sql = lambda: (sql, parameters)
        return mine


class Lock(Select[Row]):
    """Locks rows until the transaction ends, for the order in which transactions go on."""

    def hold(self, **values: Any) -> None:
        """Wait for the rows. Without row locks (SQLite) the transaction itself is the lock."""
        if connections[DEFAULT_DB_ALIAS].features.has_select_for_update:
            self.tuples(**values)


class _Ready:
    """What Django's maker of rows needs of a query set, around a compiler that is ready."""

    db = DEFAULT_DB_ALIAS
    _known_related_objects: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, compiler: Any) -> None:
        self.compiler = compiler

    @property
    def query(self) -> "_Ready":
        """In place of the query: it is asked for its compiler only."""
        return self

    def get_compiler(self, *, using: str) -> Any:
        """The compiler that is ready."""
        del using
        return self.compiler


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
        """Django's update of the set."""
        rows = self.build(Place)
        field = rows.model._meta.get_field  # noqa: SLF001  # Django's documented interface
        query: Any = rows.query.chain(UpdateQuery)
        new = {name: Place(f"new {name}", field(name)) for name in self.fields}
        query.add_update_values({**new, **self.computed(Place)})
        return query

    def run(self, new: Mapping[str, Any], **where: Any) -> int:
        """Write the new values; returns how many rows there were."""
        values = {f"new {name}": value for name, value in new.items()}
        _, sql, parameters = self.filled({**values, **where})
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(sql, parameters)
            return int(cursor.rowcount)


class Insert(Statement):
    """Adds one row of a model."""

    def __init__(self, model: type[models.Model]) -> None:
        super().__init__()
        self.model = model
        meta = model._meta  # noqa: SLF001  # Django's documented interface
        self.fields = [f for f in meta.concrete_fields if not isinstance(f, models.AutoField)]
        # The key, where the database makes it.
        self.made = [f for f in meta.concrete_fields if isinstance(f, models.AutoField)]

    def compile(self) -> tuple[Any, str, Sequence[Any]]:
        """One statement, which returns the key that the database made."""
        compiler = self.query().get_compiler(DEFAULT_DB_ALIAS)
        compiler.returning_fields = self.made
        return compiler, *compiler.as_sql()[0]

    def query(self) -> Any:
        """Django's insert of a row of places."""
        query = InsertQuery(self.model)
        row = self.model(**{field.attname: Place(field.attname, field) for field in self.fields})
        query.insert_values(self.fields, [row])
        return query

    def run(self, row: models.Model) -> None:
        """Write the row, which must be new."""
        _, sql, parameters = self.filled(
            {f.attname: f.pre_save(row, add=True) for f in self.fields}
        )
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(sql, parameters)
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
