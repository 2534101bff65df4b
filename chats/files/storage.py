"""Stores file contents in Django's storage `files`: the data folder, or another backend.

Bytes are written before their row and deleted after it. A `FileRemoval` row covers the time
between, so a due job deletes the bytes if the process dies.
"""

import hashlib
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import IO, Any

from django.core.files.base import File
from django.core.files.storage import Storage, storages
from django.db import transaction
from django.db.models.signals import post_delete
from django.utils import timezone

from chats.files.encryption import FileDamaged, encrypt_file, open_encrypted_file
from chats.files.guarded_storage import GuardedStorage
from chats.ground.secrets import SecretUnreadable, rotate_secret
from chats.models import FileRemoval, StoredFile

logger = logging.getLogger(__name__)
CHUNK_BYTES = 64 * 1024
# An upload that has no row after this time has failed.
UPLOAD_TIME = timedelta(hours=1)
# The maximum number of removals of one run.
REMOVED_AT_ONCE = 2_000
# The errors of one file whose content cannot be decrypted. Other files may be readable.
UNREADABLE_CONTENT = (FileDamaged, SecretUnreadable)


def get_configured_storage() -> Storage:
    """Return the storage of files with its own errors, for commands of an operator."""
    return storages["files"]


def get_file_storage() -> Storage:
    """Return the storage of files. An outage raises `FileStorageUnavailable`."""
    return GuardedStorage(get_configured_storage())


def compute_file_hash(file: IO[bytes]) -> str:
    """Return the SHA-256 of a file in hex, and rewind it."""
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(CHUNK_BYTES):
        digest.update(piece)
    file.seek(0)
    return digest.hexdigest()


def save_file_bytes(file: IO[bytes], *, path: str, sealed_key: str, now: datetime) -> None:
    """Store bytes under a new path, outside any transaction; encrypted if there is a key.

    `keep_file_bytes` must follow in the transaction that stores their row. Raises FileExistsError
    if the path is taken, and `FileStorageUnavailable`.
    """
    FileRemoval.objects.create(path=path, due_at=now + UPLOAD_TIME)
    if not sealed_key:
        stored = get_file_storage().save(path, File(file))
    else:
        with encrypt_file(file, sealed_key=sealed_key, path=path) as encrypted:
            stored = get_file_storage().save(path, File(encrypted))
    if stored != path:
        raise FileExistsError(path)


def keep_file_bytes(path: str) -> None:
    """Cancel the scheduled removal of stored bytes.

    Call in the transaction that stores their row.
    """
    FileRemoval.objects.filter(path=path).delete()


def discard_file_bytes(path: str) -> None:
    """Delete stored bytes for which no row was stored."""
    FileRemoval.objects.filter(path=path).update(due_at=timezone.now())
    remove_file_bytes([path])


def open_file_bytes(
    row: StoredFile, *, is_copy: bool = False, storage: Storage | None = None
) -> IO[bytes]:
    """Open the bytes of a file, or of an image's copy, for reading.

    `storage`: a storage other than the configured one, which raises its own errors. Raises
    FileNotFoundError, `FileStorageUnavailable` and `SecretUnreadable`. Reading raises
    `FileDamaged`.
    """
    path = row.copy_path if is_copy else row.path
    file = (storage or get_file_storage()).open(path, "rb")
    return decrypt_file_bytes(row, file, path=path)


def decrypt_file_bytes(row: StoredFile, file: IO[bytes], *, path: str) -> IO[bytes]:
    """Return the content of an open stored file as a stream, which closes the file.

    Raises `SecretUnreadable`. Reading raises `FileDamaged`.
    """
    if not row.sealed_key:
        return file
    return open_encrypted_file(file, sealed_key=row.sealed_key, path=path)


def iter_file_bytes(
    row: StoredFile, *, is_copy: bool = False, storage: Storage | None = None
) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces. Arguments and errors are those of `open_file_bytes`."""
    with open_file_bytes(row, is_copy=is_copy, storage=storage) as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def reencrypt_file_keys() -> int:
    """Encrypt the keys of all files with the newest encryption key; return the count.

    The bytes do not change. Raises `SecretUnreadable`.
    """
    number = 0
    with transaction.atomic():
        rows = StoredFile.objects.select_for_update(no_key=True).exclude(sealed_key="")
        for row in rows.only("pk", "sealed_key").order_by("pk").iterator(chunk_size=500):
            StoredFile.objects.filter(pk=row.pk).update(sealed_key=rotate_secret(row.sealed_key))
            number += 1
    return number


def schedule_removal(sender: type[StoredFile], instance: StoredFile, **_signal: Any) -> None:
    """Delete the bytes of a file after the commit. Called when its row is deleted in any way.

    Also called for a file that the scanner refused. Its row stays.
    """
    paths = [path for path in (instance.path, instance.copy_path) if path]
    due_at = timezone.now()
    FileRemoval.objects.bulk_create(
        [FileRemoval(path=path, due_at=due_at) for path in paths], ignore_conflicts=True
    )
    transaction.on_commit(partial(remove_file_bytes, paths))


post_delete.connect(schedule_removal, sender=StoredFile)


def remove_file_bytes(paths: list[str]) -> int:
    """Delete the bytes under these paths, with their `FileRemoval` rows. Return the count.

    A due job retries failures.
    """
    removed = 0
    for path in paths:
        try:
            get_file_storage().delete(path)
        except Exception as error:  # noqa: BLE001  # each storage has its own errors
            cause = type(error.__cause__ or error).__name__
            logger.warning("the bytes of a file were not deleted: %s", cause)
            continue
        removed += FileRemoval.objects.filter(path=path).delete()[0]
    return removed


def remove_due_bytes(*, now: datetime) -> int:
    """Delete the bytes whose removal is due. Return the count."""
    due = FileRemoval.objects.filter(due_at__lte=now).values_list("path", flat=True)
    return remove_file_bytes(list(due[:REMOVED_AT_ONCE]))
