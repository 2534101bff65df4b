"""Copies stored files between the configured storage and a backup.

The storage can be the data folder or a bucket. Members of a backup have the stored
bytes, so encrypted files stay encrypted.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, cast

from django.conf import settings
from django.core.files import File
from django.core.files.storage import FileSystemStorage, Storage

from chats.files.moving import StoredBytes, is_current, iter_stored_bytes
from chats.files.storage import (
    UNREADABLE_CONTENT,
    compute_file_hash,
    decrypt_file_bytes,
    get_configured_storage,
)
from project.operations import archive
from project.operations.archive import ArchiveReader, ArchiveWriter, HashingWriter
from project.operations.refused import OperationRefused

# The most files that a sentence names.
MOST_NAMED = 20
NOTHING_WRITTEN = (
    "No backup was written. With --without-files, the command backs up the database alone."
)


@dataclass(slots=True)
class FileReport:
    """Stored files that a backup lacks, and those whose content differs from their hash.

    Both name files by id. A damaged file is in the backup unchanged.
    """

    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """Return a sentence for each kind of problem; empty without problems."""
        parts = []
        if self.missing:
            parts.append(f"Missing from the storage: {format_labels(self.missing)}.")
        if self.damaged:
            parts.append(f"Damaged, or without a key: {format_labels(self.damaged)}.")
        return " ".join(parts)


def format_labels(labels: list[str]) -> str:
    """Return the number of files and the ids of the first 20."""
    more = ", …" if labels[MOST_NAMED:] else ""
    return f"{len(labels)} ({', '.join(labels[:MOST_NAMED])}{more})"


def is_on_disk() -> bool:
    """Return True if the storage of files is a folder."""
    return isinstance(get_configured_storage(), FileSystemStorage)


def get_files_folder() -> Path:
    """Return the folder of the stored files; with a bucket, the folder that is used without it."""
    storage = get_configured_storage()
    if isinstance(storage, FileSystemStorage):
        return Path(storage.location)
    return Path(settings.DATA_DIR) / "files"


@contextmanager
def catch_storage_errors(consequence: str) -> Iterator[None]:
    """Raise OperationRefused if the storage of files fails. `consequence`: a sentence for it."""
    try:
        yield
    except OperationRefused:
        raise
    except Exception as error:  # each storage has its own errors
        # The error of a folder names the path.
        if is_on_disk() and isinstance(error, OSError):
            raise
        raise OperationRefused(
            "storage_failed",
            f"The file storage failed ({type(error).__name__}: {error}). {consequence}"
            " Check the settings that begin with S3_, then run the command again.",
        ) from error


def dump_files(writer: ArchiveWriter) -> FileReport:
    """Write the stored files to a backup, and verify the hash of each.

    A file that is deleted during the backup is left out. Raises OperationRefused if the storage
    fails.
    """
    report, storage = FileReport(), get_configured_storage()
    for stored in iter_stored_bytes():
        with catch_storage_errors(NOTHING_WRITTEN):
            source = open_member_source(stored, storage=storage)
        if source is None:
            if is_current(stored):
                report.missing.append(stored.label)
            continue
        with source, writer.open_member(f"{archive.FILES_FOLDER}{stored.path}") as member:
            if not copy_and_verify(stored, source=source, target=member):
                report.damaged.append(stored.label)
    return report


def open_member_source(stored: StoredBytes, *, storage: Storage) -> IO[bytes] | None:
    """Open a stored object for reading. None if the storage does not have it."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(storage.open(stored.path, "rb"))
            # Some storages load the content now.
            file.read(0)
        except Exception:
            if storage.exists(stored.path):
                raise
            return None
        stack.pop_all()
    return file


class CopyingReader:
    """A stream that also writes everything that is read from it to a second stream."""

    def __init__(self, source: IO[bytes], target: HashingWriter) -> None:
        self.source = source
        self.target = target

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes, and write them to the second stream."""
        with catch_storage_errors(NOTHING_WRITTEN):
            data = self.source.read(size)
        self.target.write(data)
        return data

    def close(self) -> None:
        """Leave the source open, because its owner closes it."""


def copy_and_verify(stored: StoredBytes, *, source: IO[bytes], target: HashingWriter) -> bool:
    """Copy stored bytes. Return True if their content has the hash of the database."""
    reader, digest = cast(IO[bytes], CopyingReader(source, target)), hashlib.sha256()
    try:
        content = decrypt_file_bytes(stored.row, reader, path=stored.path)
        while piece := content.read(archive.CHUNK):
            digest.update(piece)
    except UNREADABLE_CONTENT:
        while reader.read(archive.CHUNK):
            pass
        return False
    return digest.hexdigest() == stored.sha256


def restore_folder(reader: ArchiveReader, *, fresh: Path) -> None:
    """Write the stored files of a backup to the new folder `fresh`."""
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    for name in reader.list_members(archive.FILES_FOLDER):
        path = fresh / name.removeprefix(archive.FILES_FOLDER)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        reader.extract_member(name, path)


def restore_objects(reader: ArchiveReader, *, count: Callable[[], None] = lambda: None) -> int:
    """Write the stored files of a backup to the storage, and verify each copy. Return the count.

    Objects that have the same bytes already are kept. No other object changes. `count` is called
    for each written object. Raises OperationRefused if the storage fails.
    """
    storage, written = get_configured_storage(), 0
    with catch_storage_errors("The database was not changed."):
        for name in reader.list_members(archive.FILES_FOLDER):
            path, expected = name.removeprefix(archive.FILES_FOLDER), reader.manifest.members[name]
            is_there = storage.exists(path)
            if is_there and compute_stored_hash(path, storage=storage) == expected:
                continue
            with put_back_on_failure(path, storage=storage, is_there=is_there):
                with reader.zip.open(name) as member:
                    saved = storage.save(path, File(member))
                if saved != path or compute_stored_hash(path, storage=storage) != expected:
                    storage.delete(saved)
                    raise OSError(f"the copy of {path} differs from the backup")
            written += 1
            count()
    return written


@contextmanager
def put_back_on_failure(path: str, *, storage: Storage, is_there: bool) -> Iterator[None]:
    """Delete an object that is to be replaced; write it back if the replacement fails."""
    with SpooledTemporaryFile(max_size=archive.CHUNK) as kept:
        if is_there:
            with storage.open(path, "rb") as file:
                shutil.copyfileobj(file, kept)
            storage.delete(path)
        try:
            yield
        except BaseException:
            if is_there and not storage.exists(path):
                kept.seek(0)
                storage.save(path, File(kept))
            raise


def compute_stored_hash(path: str, *, storage: Storage) -> str:
    """Return the SHA-256 of the stored bytes, which can be encrypted, in hex."""
    with storage.open(path, "rb") as file:
        return compute_file_hash(file)


def list_missing_files(reader: ArchiveReader) -> list[str]:
    """Return the ids of the files of the database whose content is not in the backup."""
    members = reader.manifest.members
    return [
        stored.label
        for stored in iter_stored_bytes()
        if f"{archive.FILES_FOLDER}{stored.path}" not in members
    ]
