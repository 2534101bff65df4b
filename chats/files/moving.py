"""Moves file contents from a folder into the currently configured storage.

Run it after changing the storage. The database does not change, so the move can be interrupted and
repeated at any time.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.core.files import File
from django.core.files.storage import FileSystemStorage, Storage

from chats.files.encryption import FileDamaged
from chats.files.scanning import FILE_REFUSED
from chats.files.storage import get_configured_storage, iter_file_bytes
from chats.models import StoredFile

ROWS_AT_ONCE = 500


class SameStorage(Exception):
    """The folder is already the configured storage."""


@dataclass(slots=True)
class MoveReport:
    """The result of moving files. Counts include copies of images.

    `bytes` is the stored size of the moved files. `already_there`: files that were only in the new
    storage. `missing`: files in neither place. `damaged`: files whose content differs from the hash
    in the database; they are not moved. `left`: files in the folder that belong to no upload, such
    as deleted ones.
    """

    moved: int = 0
    bytes: int = 0
    already_there: int = 0
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    left: int = 0


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """One stored object: a file, or the copy of an image, with the SHA-256 of its content."""

    row: StoredFile
    is_copy: bool

    @property
    def path(self) -> str:
        return self.row.copy_path if self.is_copy else self.row.path

    @property
    def sha256(self) -> str:
        return self.row.copy_sha256 if self.is_copy else self.row.sha256

    @property
    def label(self) -> str:
        return f"{self.row.pk} (copy of the image)" if self.is_copy else str(self.row.pk)


def move_stored_files(folder: Path, *, is_dry_run: bool) -> MoveReport:
    """Copy the files of a folder into the storage, verify each copy, then delete its source.

    `is_dry_run`: only count, without reading or changing content. Raises `SameStorage`,
    `SecretUnreadable` and the errors of the storage.
    """
    source, target = FileSystemStorage(folder), get_configured_storage()
    if isinstance(target, FileSystemStorage) and Path(target.location).resolve() == (
        folder.resolve()
    ):
        raise SameStorage
    report = MoveReport()
    paths = set()
    for stored in iter_stored_bytes():
        paths.add(stored.path)
        move_bytes(stored, source=source, target=target, report=report, is_dry_run=is_dry_run)
    on_disk = (path for path in folder.rglob("*") if path.is_file())
    report.left = sum(path.relative_to(folder).as_posix() not in paths for path in on_disk)
    return report


def iter_stored_bytes() -> Iterator[StoredBytes]:
    """Yield the stored objects of all files. Files refused by the scanner have none.

    No query is open between two objects, so the caller can wait for a network.
    """
    rows = StoredFile.objects.exclude(code=FILE_REFUSED).order_by("pk")
    found = list(rows[:ROWS_AT_ONCE])
    while found:
        for row in found:
            yield StoredBytes(row, is_copy=False)
            if row.copy_path:
                yield StoredBytes(row, is_copy=True)
        found = list(rows.filter(pk__gt=found[-1].pk)[:ROWS_AT_ONCE])


def move_bytes(
    stored: StoredBytes,
    *,
    source: FileSystemStorage,
    target: Storage,
    report: MoveReport,
    is_dry_run: bool,
) -> None:
    """Move one object and count it. Deletes the source only after verifying the copy."""
    if not source.exists(stored.path):
        if target.exists(stored.path):
            report.already_there += 1
        elif is_current(stored):
            report.missing.append(stored.label)
        return
    size = source.size(stored.path)
    if not is_dry_run:
        if not has_expected_hash(stored, storage=source):
            report.damaged.append(stored.label)
            return
        copy_bytes(stored, source=source, target=target)
        if not is_current(stored):
            # Deleted during the copy: the application looked for its bytes before they were there.
            target.delete(stored.path)
        source.delete(stored.path)
    report.moved += 1
    report.bytes += size


def copy_bytes(stored: StoredBytes, *, source: FileSystemStorage, target: Storage) -> None:
    """Copy an object under its path, unless a complete copy exists. Raises OSError if it fails."""
    if target.exists(stored.path):
        if has_expected_hash(stored, storage=target):
            return
        # The rest of an interrupted copy.
        target.delete(stored.path)
    with source.open(stored.path, "rb") as file:
        saved = target.save(stored.path, File(file))
    if saved != stored.path or not has_expected_hash(stored, storage=target):
        target.delete(saved)
        raise OSError(f"The copy of {stored.label} differs from the file.")


def has_expected_hash(stored: StoredBytes, *, storage: Storage) -> bool:
    """Return True if the decrypted bytes in a storage have the hash in the database."""
    digest = hashlib.sha256()
    try:
        for piece in iter_file_bytes(stored.row, is_copy=stored.is_copy, storage=storage):
            digest.update(piece)
    except FileDamaged:
        return False
    return digest.hexdigest() == stored.sha256


def is_current(stored: StoredBytes) -> bool:
    """Return True if the row of the file still exists and the scanner has not refused it."""
    return StoredFile.objects.filter(pk=stored.row.pk).exclude(code=FILE_REFUSED).exists()
