"""Restores a backup into a stopped installation.

Everything that can prevent a restore is checked before anything is changed.
"""

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import connection, transaction
from django.db.backends.postgresql.base import DatabaseWrapper as PostgreSQL
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.graph import MigrationGraph

from project.operations import archive, backup, file_members, postgres_rows, running
from project.operations.archive import ArchiveReader
from project.operations.refused import OperationRefused
from project.operations.replacing import (
    BEFORE,
    Replacement,
    list_replaced,
    prepare_replacement,
    put_back_on_error,
)
from project.operations.steps import run_manage_command
from project.tables import create_in_empty_database
from project.versions import OURS, list_migration_names

LOST_KEYS = (
    "The backup was made with another encryption key, so the stored keys of model servers could"
    " not be read. Name the file with its keys in --keys, or set ENCRYPTION_KEYS. If the keys are"
    " lost, pass --without-keys and enter the stored keys again."
)


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The options of a restore. `keys` is the file with the keys of the backup."""

    keys: Path | None = None
    replace: bool = False
    without_keys: bool = False


def restore_backup(path: Path, options: RestoreOptions, *, tell: Callable[[str], object]) -> bool:
    """Restore a backup, migrate it to this version and verify the audit log.

    Returns False if the audit log does not match; the backup is restored nevertheless.
    Raises OperationRefused before any change if the backup or the installation does not
    permit the restore, and afterwards if the migration fails. If replacing the data fails, it is
    put back.
    """
    running.name_own_connections()
    reader = ArchiveReader(path)
    try:
        keys = check_restore(reader, find_key_file(path, options), options)
        facts = reader.manifest
        tell(f"The backup of {facts.created_at} by Palimpsest {facts.version} is complete.")
        replace_content(reader, keys)
    finally:
        reader.close()
    close_connections()
    restored = "the database and the stored files" if facts.has_files else "the database"
    tell(f"Restored {restored}. Migrating.")
    # Without checks: a setting of a model server must not stop a restore.
    if run_manage_command("migrate", "--verbosity", "0", "--skip-checks", tell=tell):
        raise OperationRefused(
            "not_migrated",
            "The backup is restored, but its migration failed; the lines above say why. Remove"
            " the cause, then run manage.py migrate. The replaced data keeps the ending"
            f" {BEFORE}. Delete it when the installation works.",
        )
    drop_replaced()
    if facts.has_files and (missing := file_members.list_missing_files(reader)):
        tell(f"Stored files that are not in the backup: {file_members.format_labels(missing)}.")
    return run_manage_command("ledger_verify", tell=tell) == 0


def replace_content(reader: ArchiveReader, keys: dict[str, str]) -> None:
    """Replace the database, the stored files and the keys with those of the backup.

    Everything is written next to its place first, and the renames follow. If one fails, all are
    undone. Objects in a bucket stay; the error has their number. Raises OperationRefused.
    """
    replacements: list[Replacement] = []
    with put_back_on_error(replacements) as objects:
        for prepared in iter_prepared(reader, keys):
            replacements.append(prepared)
        # Before the database: if the storage fails, nothing else is replaced.
        if not file_members.is_on_disk():
            file_members.restore_objects(reader, count=objects.add)
        with restored_tables(reader):
            for replacement in replacements:
                replacement.put()


def iter_prepared(reader: ArchiveReader, keys: dict[str, str]) -> Iterator[Replacement]:
    """Write the content of a backup next to its places, the keys last. Yield the written items.

    Raises OperationRefused and OSError.
    """
    if connection.vendor == "sqlite":
        yield prepare_sqlite(reader)
    is_on_disk = reader.manifest.has_files and file_members.is_on_disk()
    if is_on_disk and (files := prepare_stored_files(reader)) is not None:
        yield files
    if (checkpoint := prepare_checkpoint(reader)) is not None:
        yield checkpoint
    for name, key in keys.items():
        if (prepared := prepare_key(name, key)) is not None:
            yield prepared


def check_restore(
    reader: ArchiveReader, key_file: Path | None, options: RestoreOptions
) -> dict[str, str]:
    """Check everything that can prevent a restore; return the keys to write.

    Raises OperationRefused.
    """
    vendor = reader.manifest.vendor
    if vendor != connection.vendor:
        names = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
        raise OperationRefused(
            "other_database",
            f"The backup is from {names.get(vendor, 'another database')}, and this installation"
            f" uses {names[connection.vendor]}. Restore it there, then use migrate_database.",
        )
    refuse_newer_backup(reader)
    running.refuse_while_running()
    if not options.replace and has_data():
        raise OperationRefused(
            "not_empty",
            "This installation already has data. Back it up, then pass --replace to erase it and"
            " restore the backup in its place.",
        )
    keys = load_keys(key_file)
    if not options.without_keys and not fits_keys(reader, keys):
        raise OperationRefused("other_keys", LOST_KEYS)
    reader.verify_members()
    if connection.vendor == "sqlite" and archive.SQLITE_MEMBER not in reader.manifest.members:
        raise archive.refuse_archive("it has no database")
    return keys


def refuse_newer_backup(reader: ArchiveReader) -> None:
    """Raise OperationRefused if a newer version made the backup."""
    known = {f"{app}.{name}" for app in OURS for name in list_migration_names(app)}
    ours = tuple(f"{app}." for app in OURS)
    newer = [n for n in reader.manifest.migrations if n.startswith(ours) and n not in known]
    if newer:
        raise OperationRefused(
            "backup_newer",
            f"Palimpsest {reader.manifest.version} made this backup, which is newer than this"
            f" version ({settings.VERSION}): it has {', '.join(newer)}. Install that version.",
        )


def has_data() -> bool:
    """Return True if the database has tables, or the folder of stored files has content.

    A bucket can keep its objects: a restore adds the missing ones.
    """
    if connection.vendor == "sqlite":
        path = get_sqlite_path()
        return (path.exists() and path.stat().st_size > 0) or has_files()
    with connection.cursor() as cursor:
        return bool(postgres_rows.list_tables(cursor)) or has_files()


def has_files() -> bool:
    """Return True if a stored file exists."""
    folder = file_members.get_files_folder()
    return file_members.is_on_disk() and folder.is_dir() and any(folder.iterdir())


def get_sqlite_path() -> Path:
    return Path(str(settings.DATABASES["default"]["NAME"]))


def find_key_file(path: Path, options: RestoreOptions) -> Path | None:
    """Return the file with the keys: the named one, else the one next to the backup.

    Returns None if neither exists. With `without_keys`, only a named file is used.
    """
    beside = path.with_name(f"{path.name}{backup.SUFFIX}")
    return options.keys or (beside if beside.is_file() and not options.without_keys else None)


def load_keys(path: Path | None) -> dict[str, str]:
    """Return the keys in a file, except those that the settings override.

    Raises OperationRefused if the file cannot be read.
    """
    if path is None:
        return {}
    try:
        keys_file = json.loads(path.read_text(encoding="utf-8"))
        keys = {name: str(keys_file[name]) for name in backup.KEY_FILES if name in keys_file}
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a file of keys"
        raise OperationRefused(
            "keys_unreadable", f"{path} cannot be read: {reason}. Name the file in --keys."
        ) from None
    return {name: key for name, key in keys.items() if not backup.is_set(backup.KEY_FILES[name])}


def fits_keys(reader: ArchiveReader, keys: dict[str, str]) -> bool:
    """Return True if the backup's stored secrets can be decrypted with these keys."""
    given = keys["encryption_key"].split(",") if "encryption_key" in keys else None
    try:
        box = MultiFernet([Fernet(key.strip()) for key in given or settings.ENCRYPTION_KEYS])
        box.decrypt(reader.manifest.key_check.encode())
    except (InvalidToken, ValueError):
        return False
    return True


@contextmanager
def restored_tables(reader: ArchiveReader) -> Iterator[None]:
    """Replace all tables of a PostgreSQL database in one transaction with the block.

    An error in the block rolls the tables back. Does nothing for SQLite.
    """
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic():
        postgres_rows.drop_tables()
        create_tables_of(reader.manifest.migrations)
        postgres_rows.load_tables(reader)
        yield


def create_tables_of(migrations: list[str]) -> None:
    """Create the tables in an empty database, in the state after these migrations."""
    graph = MigrationExecutor(connection).loader.graph
    applied = {tuple(name.split(".", 1)) for name in migrations}
    is_current = {key for key in graph.nodes if key[0] in OURS} <= applied
    # With tables of other programs, only migrations can create ours.
    if is_current and not connection.introspection.table_names():
        create_in_empty_database()
        return
    executor = MigrationExecutor(connection)
    newest = [key for key in graph.nodes if key in applied and not is_followed(graph, key, applied)]
    executor.migrate(newest)


def is_followed(graph: MigrationGraph, key: tuple[str, str], applied: Set[tuple[str, ...]]) -> bool:
    """Return True if a later migration of the same app is applied."""
    return any(
        child.key in applied and child.key[0] == key[0] for child in graph.node_map[key].children
    )


def prepare_sqlite(reader: ArchiveReader) -> Replacement:
    """Write the SQLite file of the backup next to the current one.

    Raises OperationRefused if it is damaged, and OSError.
    """
    connection.close()
    # The log files belong to the old database, and would damage the new one.
    database = prepare_replacement(get_sqlite_path(), endings=("-wal", "-shm"))
    with put_back_on_error([database]):
        reader.extract_member(archive.SQLITE_MEMBER, database.fresh)
        with closing(sqlite3.connect(database.fresh)) as opened:
            backup.check_sqlite_file(opened)
    return database


def prepare_stored_files(reader: ArchiveReader) -> Replacement | None:
    """Write the stored files of the backup next to the current ones.

    Returns None if neither exist. Raises OSError.
    """
    folder = file_members.get_files_folder()
    if not reader.list_members(archive.FILES_FOLDER) and not folder.exists():
        return None
    files = prepare_replacement(folder)
    with put_back_on_error([files]):
        file_members.restore_folder(reader, fresh=files.fresh)
    return files


def prepare_checkpoint(reader: ArchiveReader) -> Replacement | None:
    """Write the checkpoint of the backup if the installation has none. Raises OSError.

    An existing checkpoint is kept, because only it can show that rows are missing.
    """
    path = Path(settings.LEDGER_CHECKPOINT_FILE)
    if archive.CHECKPOINT_MEMBER not in reader.manifest.members or path.exists():
        return None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    checkpoint = prepare_replacement(path)
    with put_back_on_error([checkpoint]):
        reader.extract_member(archive.CHECKPOINT_MEMBER, checkpoint.fresh)
    return checkpoint


def prepare_key(name: str, key: str) -> Replacement | None:
    """Write a key next to the current one in the data folder, mode 0600. Raises OSError.

    Returns None if the key is the same. A key that differs is kept in a renamed file.
    """
    path = Path(settings.DATA_DIR) / name
    if path.exists() and path.read_text(encoding="ascii").strip() == key:
        return None
    prepared = prepare_replacement(path)
    with put_back_on_error([prepared]):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        handle = os.open(prepared.fresh, flags, stat.S_IRUSR | stat.S_IWUSR)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(key + "\n")
    return prepared


def close_connections() -> None:
    """Close the database connections of this process. Other processes continue the restore."""
    connection.close()
    if isinstance(connection, PostgreSQL):
        connection.close_pool()


def drop_replaced() -> None:
    """Delete the databases and the files that this and incomplete restores replaced.

    Replaced keys are kept.
    """
    if connection.vendor == "sqlite":
        for old in list_replaced(get_sqlite_path()):
            old.unlink()
    for old in list_replaced(file_members.get_files_folder()):
        shutil.rmtree(old, ignore_errors=True)
