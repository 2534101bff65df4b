"""Moves an installation from SQLite to PostgreSQL.

Each batch of rows and the position after it are stored in one transaction, so an interrupted run
continues where it stopped. Foreign keys are dropped while rows are loaded, and checked at the end.
The SQLite file is not changed.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.db import IntegrityError, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import DatabaseError

from chats.ground.failpoints import failpoint
from project import database_url
from project.operations import postgres_rows, row_copy, running
from project.operations.postgres_rows import ForeignKey
from project.operations.refused import OperationRefused
from project.operations.row_copy import Checksum, CopiedTable
from project.operations.steps import run_manage_command
from project.tables import create_in_empty_database
from project.versions import NEWER, find_newer_migrations

SOURCE = "sqlite_source"
# Exists from the creation of the tables until everything is verified.
PROGRESS = "palimpsest_move"
LOAD = "SELECT facts::text FROM palimpsest_move WHERE name = %s"
STORE = (
    "INSERT INTO palimpsest_move VALUES (%s, %s::jsonb)"
    " ON CONFLICT (name) DO UPDATE SET facts = excluded.facts"
)
# The row of the progress table with the facts of the whole move.
WHOLE = ""
Tell = Callable[[str], object]


@dataclass(slots=True)
class TableProgress:
    """The progress of copying a table. `digest` is a number as text, which JSON keeps exactly."""

    last_key: Any = None
    rows: int = 0
    digest: str = "0"
    is_complete: bool = False


def move_to_postgres(path: Path, *, replace: bool, tell: Tell) -> None:
    """Copy everything from a SQLite file into the PostgreSQL database of `DATABASE_URL`.

    Verifies the audit log on both sides, and the number and the checksum of the rows of each table.
    An interrupted run continues. Raises OperationRefused.
    """
    if connection.vendor != "postgresql":
        raise OperationRefused(
            "not_postgresql",
            "DATABASE_URL names the new database: set it to postgres://owner@host:5432/name.",
        )
    if not path.is_file():
        raise OperationRefused("source_missing", f"There is no SQLite file {path}.")
    running.name_own_connections()
    running.refuse_while_running()
    open_source(path)
    refuse_unmigrated_source()
    fingerprint = compute_fingerprint()
    if not is_begun(fingerprint, replace=replace):
        tell("Verifying the audit log in SQLite.")
        if run_manage_command(
            "ledger_verify", tell=tell, database_url=database_url.format_sqlite_url(path)
        ):
            raise OperationRefused(
                "ledger_broken",
                "The audit log in SQLite does not match; the lines above say where. Nothing was"
                " copied. See docs/audit.md.",
            )
        begin_move(fingerprint, replace=replace)
    copy_tables(tell)
    restore_foreign_keys()
    verify_tables(tell)
    close_and_verify(fingerprint, tell)


def open_source(path: Path) -> None:
    """Add the SQLite file as a second database."""
    given = {"default": {}, SOURCE: database_url.build_sqlite_settings(path)}
    connections.settings[SOURCE] = connections.configure_settings(given)[SOURCE]


def refuse_unmigrated_source() -> None:
    """Raise OperationRefused unless the SQLite file has exactly the migrations of this version."""
    source = connections[SOURCE]
    try:
        if names := find_newer_migrations(source):
            raise OperationRefused("source_newer", NEWER.format(names=", ".join(names)))
        executor = MigrationExecutor(source)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        raise OperationRefused(
            "source_unreadable", "The file is not a SQLite database of Palimpsest."
        ) from None
    if plan:
        raise OperationRefused(
            "source_not_migrated",
            "The SQLite file is from an older version. Run manage.py migrate without DATABASE_URL"
            " first.",
        )


def compute_fingerprint() -> str:
    """Return a hash that changes with the number of rows and with the audit log."""
    counts: list[Any] = []
    for table in row_copy.list_copied_tables():
        counts.append([table.name, table.count_rows(SOURCE)])
    with connections[SOURCE].cursor() as cursor:
        cursor.execute("SELECT scope, last_hash FROM contextpolicy_ledgerhead ORDER BY scope")
        counts += [list(row) for row in cursor.fetchall()]
    return hashlib.sha256(json.dumps(counts).encode()).hexdigest()


def is_begun(fingerprint: str, *, replace: bool) -> bool:
    """Return True if a move of the same file was interrupted, so that it can continue.

    Raises OperationRefused if the database has other tables of the product, or the progress of
    another move, unless `replace` is given.
    """
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        ours = postgres_rows.list_tables(cursor)
    if PROGRESS in tables:
        if load_facts()["fingerprint"] == fingerprint:
            return True
        if not replace:
            raise OperationRefused(
                "source_changed",
                "The SQLite file has changed since this move began, or it is another one. Pass"
                " --replace to begin again.",
            )
    elif ours and not replace:
        raise OperationRefused(
            "not_empty",
            "The PostgreSQL database already has tables. Create an empty database, or pass"
            " --replace to erase them.",
        )
    return False


def begin_move(fingerprint: str, *, replace: bool) -> None:
    """Create the tables without their foreign keys, and the table of the progress.

    With `replace`, the existing tables of the product are dropped first. Raises OperationRefused if
    the database has tables of other programs.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        if replace:
            postgres_rows.drop_tables()
        cursor.execute(f"DROP TABLE IF EXISTS {PROGRESS}")
        if connection.introspection.table_names(cursor):
            raise OperationRefused(
                "not_empty", "The database has tables of other programs. Create an empty one."
            )
        create_in_empty_database()
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        keys = [asdict(key) for key in postgres_rows.drop_foreign_keys(cursor)]
        cursor.execute(f"CREATE TABLE {PROGRESS} (name text PRIMARY KEY, facts jsonb NOT NULL)")
        store_facts(WHOLE, {"fingerprint": fingerprint, "keys": keys})


def copy_tables(tell: Tell) -> None:
    """Copy the rows that have not been copied yet."""
    # The lock of the source's writer: nothing may change while rows are read.
    with transaction.atomic(using=SOURCE):
        for table in row_copy.list_copied_tables():
            progress = TableProgress(**load_facts(table.name))
            if not progress.is_complete:
                copy_table(table, progress)
                if progress.rows:
                    tell(f"Copied {table.name}: {progress.rows:,} rows.")


def copy_table(table: CopiedTable, progress: TableProgress) -> None:
    """Copy the rest of a table, batch by batch."""
    checksum = Checksum(progress.rows, int(progress.digest))
    after = table.decode_key(progress.last_key)
    for rows, last_key in table.iter_batches(SOURCE, after):
        checksum = checksum.add(rows)
        progress.rows, progress.digest = checksum.rows, str(checksum.digest)
        progress.last_key = row_copy.encode_key(last_key)
        with transaction.atomic(), connection.cursor() as cursor:
            with postgres_rows.disable_triggers(cursor, table.name):
                table.write_rows(cursor, rows)
            store_facts(table.name, asdict(progress))
        failpoint("move.batch")
    progress.is_complete = True
    store_facts(table.name, asdict(progress))


def restore_foreign_keys() -> None:
    """Add the foreign keys and set the sequences.

    Raises OperationRefused if a row refers to a missing row.
    """
    keys = [ForeignKey(**key) for key in load_facts()["keys"]]
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in postgres_rows.UNHURRIED:
                cursor.execute(statement)
            # After an interruption they may exist already.
            postgres_rows.drop_foreign_keys(cursor)
            postgres_rows.add_foreign_keys(cursor, keys)
            postgres_rows.set_sequences(cursor, load_next_ids(cursor))
    except IntegrityError as error:
        said = str(error).partition("\n")[0]
        raise OperationRefused(
            "rows_do_not_fit",
            f"A row in SQLite refers to one that is missing: {said}. Correct it in SQLite, then"
            " run the command with --replace.",
        ) from None


def load_next_ids(cursor: Any) -> dict[str, int]:
    """Return the next id of each sequence: ids of deleted rows are not used again."""
    with connections[SOURCE].cursor() as source:
        source.execute("SELECT name, seq FROM sqlite_sequence")
        last = dict(source.fetchall())
    return {
        name: last[table] + 1
        for name, table, _ in postgres_rows.list_sequences(cursor)
        if table in last
    }


def verify_tables(tell: Tell) -> None:
    """Compare the number and the checksum of the rows of each table. Raises OperationRefused."""
    whole = 0
    for table in row_copy.list_copied_tables():
        progress = TableProgress(**load_facts(table.name))
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in postgres_rows.UNHURRIED:
                cursor.execute(statement)
            found = table.compute_checksum("default")
        if (found.rows, str(found.digest)) != (progress.rows, progress.digest):
            raise OperationRefused(
                "copy_differs",
                f"{table.name} has other rows in PostgreSQL ({found.rows:,}) than in SQLite"
                f" ({progress.rows:,}). Run the command again with --replace.",
            )
        whole += found.rows
    tell(f"Number and checksum of {whole:,} rows are equal in both databases.")


def close_and_verify(fingerprint: str, tell: Tell) -> None:
    """Verify the audit log in PostgreSQL, then delete the progress.

    Raises OperationRefused if the log does not match, or if the SQLite file changed during the
    move.
    """
    if compute_fingerprint() != fingerprint:
        raise OperationRefused(
            "source_changed",
            "The SQLite file changed during the move. Stop the product, then run the command with"
            " --replace.",
        )
    tell("Verifying the audit log in PostgreSQL.")
    if run_manage_command("ledger_verify", tell=tell):
        raise OperationRefused(
            "ledger_broken",
            "The audit log in PostgreSQL does not match; the lines above say where. Continue to"
            " use SQLite.",
        )
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"DROP TABLE {PROGRESS}")


def load_facts(name: str = WHOLE) -> dict[str, Any]:
    """Return the stored progress of a table, or of the whole move. Empty if nothing is stored."""
    with connection.cursor() as cursor:
        cursor.execute(LOAD, [name])
        row = cursor.fetchone()
    return dict(json.loads(row[0])) if row else {}


def store_facts(name: str, facts: dict[str, Any]) -> None:
    """Store the progress of a table, or of the whole move."""
    with connection.cursor() as cursor:
        cursor.execute(STORE, [name, json.dumps(facts)])
