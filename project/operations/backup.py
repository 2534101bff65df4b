"""Writes a backup: the database, stored files and the last checkpoint, while the product runs."""

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from django.conf import settings
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder

from chats.ground.secrets import encrypt
from project.operations import archive, postgres_rows
from project.operations.archive import ArchiveWriter, Manifest
from project.operations.file_members import FileReport, dump_files
from project.operations.refused import OperationRefused

KEY_CHECK = "palimpsest"
SUFFIX = ".keys"
# Names of the key files in the data folder, and the settings that replace them.
KEY_FILES = {"secret_key": "SECRET_KEY", "encryption_key": "ENCRYPTION_KEYS"}
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@dataclass(frozen=True, slots=True)
class WrittenBackup:
    """The files of a backup. `keys` is None if the settings hold the keys.

    `report`: the stored files that it lacks.
    """

    path: Path
    keys: Path | None
    size: int
    report: FileReport


def write_backup_file(place: Path, *, now: datetime, has_files: bool = True) -> WrittenBackup:
    """Write a backup to a new file or into a folder, and the keys next to it; both mode 0600.

    `has_files`: with the stored files. An interrupted backup leaves only a file that ends in
    `.part`. Raises OperationRefused.
    """
    path = place / f"palimpsest-{now:%Y%m%dT%H%M%SZ}.zip" if place.is_dir() else place
    if path.exists():
        raise OperationRefused("file_exists", f"{path} exists. Name another file.")
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            report = write_backup(file, now=now, place=path.parent, has_files=has_files)
            file.flush()
            os.fsync(file.fileno())
        keys = write_key_file(path.with_name(f"{path.name}{SUFFIX}"))
        part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return WrittenBackup(path, keys, path.stat().st_size, report)


def write_backup(
    target: IO[bytes], *, now: datetime, place: Path | None = None, has_files: bool = True
) -> FileReport:
    """Write a backup to a stream, which need not be seekable. Return the files that it lacks.

    A copy of a SQLite database is created in the folder `place`, or in the folder for temporary
    files. The database is read before the stored files: a file written later is not needed, and a
    file erased later is missing, as it should be. Raises OperationRefused if the database has no
    tables, if the SQLite file is damaged, or if the storage of files fails.
    """
    with ExitStack() as opened:
        with take_snapshot():
            manifest = Manifest(
                version=settings.VERSION,
                created_at=now.isoformat(),
                vendor=connection.vendor,
                migrations=list_applied_migrations(),
                key_check=encrypt(KEY_CHECK),
                has_files=has_files,
            )
            writer = opened.enter_context(ArchiveWriter(target, manifest))
            if connection.vendor == "postgresql":
                postgres_rows.dump_tables(writer)
        if connection.vendor == "sqlite":
            dump_sqlite(writer, place=place)
        dump_checkpoint(writer)
        return dump_files(writer) if has_files else FileReport()


@contextmanager
def take_snapshot() -> Iterator[None]:
    """Context manager: in PostgreSQL, all reads in the block see the same state."""
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(SNAPSHOT)
        yield


def list_applied_migrations() -> list[str]:
    """Return the names of the applied migrations, such as `chats.0001_start`.

    Raises OperationRefused if there are none.
    """
    applied = MigrationRecorder(connection).applied_migrations()
    if not applied:
        raise OperationRefused(
            "no_database", "The database has no tables. Check DATABASE_URL and PALIMPSEST_DATA."
        )
    return sorted(f"{app}.{name}" for app, name in applied)


def dump_sqlite(writer: ArchiveWriter, *, place: Path | None) -> None:
    """Write a consistent copy of the SQLite file, made with SQLite's backup interface.

    All pages are copied in one step, which never blocks writers of a database in WAL mode. Raises
    OperationRefused if the copy is damaged.
    """
    connection.close()
    with tempfile.TemporaryDirectory(dir=place, prefix=".palimpsest-") as folder:
        copy = Path(folder) / "copy.sqlite3"
        copy.touch(mode=0o600)
        # Characters such as # and % of a path have a meaning in an address.
        address = f"{Path(str(settings.DATABASES['default']['NAME'])).as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(address, uri=True, timeout=20)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            # The copy is a single file, without a log.
            target.execute("PRAGMA journal_mode=DELETE")
            check_sqlite_file(target)
        with writer.open_member(archive.SQLITE_MEMBER) as member, copy.open("rb") as file:
            shutil.copyfileobj(file, member, archive.CHUNK)


def check_sqlite_file(database: sqlite3.Connection) -> None:
    """Raise OperationRefused if SQLite finds the file damaged."""
    try:
        said = [row[0] for row in database.execute("PRAGMA quick_check(1)")]
    except sqlite3.DatabaseError as error:
        said = [str(error)]
    if said != ["ok"]:
        raise OperationRefused(
            "database_damaged",
            f"The SQLite file is damaged ({said[0]}). Restore an earlier backup.",
        )


def dump_checkpoint(writer: ArchiveWriter) -> None:
    """Write the last signed checkpoint of the audit log, if there is one."""
    path = Path(settings.LEDGER_CHECKPOINT_FILE)
    if path.is_file():
        with writer.open_member(archive.CHECKPOINT_MEMBER) as member:
            member.write(path.read_bytes())


def write_key_file(path: Path) -> Path | None:
    """Write the keys from the data folder to a new file, mode 0600, and return its path.

    An earlier file is replaced. Keys that settings override are left out; returns None if none
    remain.
    """
    keys = {
        name: file.read_text(encoding="ascii").strip()
        for name, setting in KEY_FILES.items()
        if not is_set(setting) and (file := Path(settings.DATA_DIR) / name).is_file()
    }
    if not keys:
        return None
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as text:
        json.dump(keys, text)
    return path


def is_set(setting: str) -> bool:
    """Return True if the environment sets this variable, or the same variable with `_FILE`."""
    return bool(os.environ.get(setting) or os.environ.get(f"{setting}_FILE"))
