"""Reads and writes whole tables of PostgreSQL with COPY.

`pg_dump` is not used: the product's image does not contain it, its version must be at
least that of the server, and it requires the owner of the tables. COPY requires only
the permissions of the product.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, connection
from psycopg import sql

from project.operations.archive import (
    CHUNK,
    TABLE_FOLDER,
    ArchiveReader,
    ArchiveWriter,
    TableFacts,
    refuse_archive,
)

# Connections have the timeouts of requests. Operators' commands may take longer.
UNHURRIED = (
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
)
# Tables of the product, of this version or another. Those of other programs are not changed.
TABLES = (
    "SELECT c.relname FROM pg_class c WHERE c.relkind = 'r'"
    " AND c.relnamespace = current_schema()::regnamespace"
    " AND c.relname ~ '^(auth|chats|contextpolicy|django)_' ORDER BY c.relname"
)
COLUMNS = (
    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
    " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
)
SEQUENCES = (
    "SELECT s.relname, t.relname, a.attname FROM pg_class s JOIN pg_depend d ON d.objid = s.oid"
    " AND d.deptype IN ('a', 'i') JOIN pg_class t ON t.oid = d.refobjid"
    " JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid"
    " WHERE s.relkind = 'S' AND s.relnamespace = current_schema()::regnamespace"
)
FOREIGN_KEYS = (
    "SELECT c.relname, k.conname, pg_get_constraintdef(k.oid) FROM pg_constraint k"
    " JOIN pg_class c ON c.oid = k.conrelid WHERE k.contype = 'f'"
    " AND k.connamespace = current_schema()::regnamespace"
    " AND c.relname ~ '^(auth|chats|contextpolicy|django)_' ORDER BY c.relname, k.conname"
)
# The functions of the audit log's triggers.
FUNCTIONS = (
    "SELECT p.oid::regprocedure::text FROM pg_proc p"
    " WHERE p.pronamespace = current_schema()::regnamespace AND p.proname LIKE 'ledger\\_%%'"
)
# Migrations fill this table when they create the others, so it is not copied.
APPLIED = "django_migrations"


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key as PostgreSQL describes it."""

    table: str
    name: str
    definition: str


def dump_tables(writer: ArchiveWriter) -> None:
    """Write every table and the position of every sequence, in the open transaction."""
    with connection.cursor() as cursor:
        for statement in UNHURRIED:
            cursor.execute(statement)
        for table in list_tables(cursor):
            if table != APPLIED:
                writer.manifest.tables[table] = dump_table(cursor, table, writer)
        for name, _, _ in list_sequences(cursor):
            cursor.execute(
                sql.SQL("SELECT last_value + is_called::int FROM {}").format(sql.Identifier(name))
            )
            writer.manifest.sequences[name] = cursor.fetchone()[0]


def dump_table(cursor: Any, table: str, writer: ArchiveWriter) -> TableFacts:
    """Write one table and return its columns and the number of rows."""
    columns = list_columns(cursor, table)
    rows = 0
    statement = build_copy_statement(table, columns, "TO STDOUT")
    with writer.open_member(f"{TABLE_FOLDER}{table}") as member, cursor.copy(statement) as copy:
        for block in copy:
            # In this format each row ends with a newline, and others are written as `\n`.
            rows += bytes(block).count(b"\n")
            member.write(block)
    return TableFacts(columns, rows)


def load_tables(reader: ArchiveReader) -> None:
    """Fill the tables of the backup, in the open transaction, and set the sequences.

    Raises OperationRefused if the tables or columns of the backup differ from those of the
    database, or if its rows are inconsistent.
    """
    facts = reader.manifest.tables
    with connection.cursor() as cursor:
        for statement in UNHURRIED:
            cursor.execute(statement)
        existing = set(list_tables(cursor)) - {APPLIED}
        if existing != set(facts):
            raise refuse_archive("its tables are not those of its migrations")
        # Pending checks of rows that a migration created would forbid the changes of tables.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        keys = drop_foreign_keys(cursor)
        for table in sorted(facts):
            with disable_triggers(cursor, table):
                load_table(cursor, table, facts[table], reader)
        try:
            add_foreign_keys(cursor, keys)
        except IntegrityError:
            raise refuse_archive("a row in it refers to a row that it lacks") from None
        set_sequences(cursor, reader.manifest.sequences)


def load_table(cursor: Any, table: str, facts: TableFacts, reader: ArchiveReader) -> None:
    """Replace the rows of one table.

    Raises OperationRefused if the columns or the rows do not match the backup.
    """
    if set(facts.columns) != set(list_columns(cursor, table)):
        raise refuse_archive(f"the columns of {table} are not those of its migrations")
    # A migration may have created rows.
    cursor.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
    statement = build_copy_statement(table, facts.columns, "FROM STDIN")
    with reader.zip.open(f"{TABLE_FOLDER}{table}") as stream, cursor.copy(statement) as copy:
        while block := stream.read(CHUNK):
            copy.write(block)
    cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
    loaded = cursor.fetchone()[0]
    if loaded != facts.rows:
        raise refuse_archive(f"{table} has {loaded:,} rows instead of {facts.rows:,}")


@contextmanager
def disable_triggers(cursor: Any, table: str) -> Iterator[None]:
    """Disable the triggers of a table while its rows are loaded, in the open transaction.

    The triggers refuse a chain of the audit log that does not start at zero. If the
    transaction fails, PostgreSQL enables them again.
    """
    name = sql.Identifier(table)
    cursor.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(name))
    yield
    cursor.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(name))


def drop_foreign_keys(cursor: Any) -> list[ForeignKey]:
    """Drop the foreign keys of the product's tables, and return them for `add_foreign_keys`.

    Rows can then be loaded in any order, and PostgreSQL checks each key once instead of each row.
    """
    cursor.execute(FOREIGN_KEYS)
    keys = [ForeignKey(*row) for row in cursor.fetchall()]
    for key in keys:
        statement = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
        cursor.execute(statement.format(sql.Identifier(key.table), sql.Identifier(key.name)))
    return keys


def add_foreign_keys(cursor: Any, keys: Iterable[ForeignKey]) -> None:
    """Add the foreign keys again. Raises IntegrityError if a row refers to a missing row."""
    for key in keys:
        cursor.execute(
            sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(
                sql.Identifier(key.table), sql.Identifier(key.name), sql.SQL(key.definition)
            )
        )


def set_sequences(cursor: Any, wanted: dict[str, int]) -> None:
    """Set the next value of each sequence.

    It is one more than the highest id of the table, or the wanted value if that is higher.
    """
    for name, table, column in list_sequences(cursor):
        statement = sql.SQL(
            "SELECT setval(%s::regclass, greatest(%s, max({}) + 1, 1), false) FROM {}"
        )
        cursor.execute(
            statement.format(sql.Identifier(column), sql.Identifier(table)),
            [f'"{name}"', wanted.get(name, 1)],
        )


def drop_tables() -> None:
    """Drop the tables and functions of the product, in the open transaction."""
    with connection.cursor() as cursor:
        if tables := list_tables(cursor):
            names = sql.SQL(", ").join(map(sql.Identifier, tables))
            cursor.execute(sql.SQL("DROP TABLE {} CASCADE").format(names))
        cursor.execute(FUNCTIONS)
        for (function,) in cursor.fetchall():
            # PostgreSQL itself formats the signature.
            cursor.execute(sql.SQL("DROP FUNCTION {}").format(sql.SQL(function)))


def list_tables(cursor: Any) -> list[str]:
    """Return the tables of the product."""
    cursor.execute(TABLES)
    return [name for (name,) in cursor.fetchall()]


def list_columns(cursor: Any, table: str) -> list[str]:
    """Return the columns of a table, without generated ones."""
    cursor.execute(COLUMNS, [f'"{table}"'])
    return [name for (name,) in cursor.fetchall()]


def list_sequences(cursor: Any) -> list[tuple[str, str, str]]:
    """Return each sequence with the table and the column that it numbers."""
    cursor.execute(SEQUENCES)
    return list(cursor.fetchall())


def build_copy_statement(table: str, columns: Iterable[str], direction: str) -> sql.Composed:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL("COPY {} ({}) {}").format(sql.Identifier(table), names, sql.SQL(direction))
