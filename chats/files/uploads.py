"""Accepts uploads; lists, loads and deletes a user's files; deletes unused files."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import IO, Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet, Sum
from django.utils.translation import gettext_noop

from chats.files import scanning
from chats.files.detection import FileKind, clean_file_name, detect_file_kind
from chats.files.encryption import create_file_key
from chats.files.storage import (
    compute_file_hash,
    discard_file_bytes,
    get_file_storage,
    keep_file_bytes,
    open_file_bytes,
    save_file_bytes,
)
from chats.ground import queue
from chats.ground.refusals import NotFound, Refusal
from chats.models import FileChunk, Message, MessageFile, OwnedImage, StoredFile
from chats.record import holds
from chats.record.access import get_or_not_found
from chats.record.images import Bytes, iter_image_hashes
from contextpolicy import holds as legal_holds
from contextpolicy import ledger

State = StoredFile.State
MIB = 1024 * 1024
# The kinds of texts that are read in the same way. The extension decides between them.
NAMED_KINDS = frozenset({StoredFile.Kind.TEXT, StoredFile.Kind.CSV})
# The maximum number of unused files that one run deletes.
DELETED_AT_ONCE = 1_000


class FileUploadsOff(Refusal):
    """The operator disabled file uploads with `FILE_UPLOADS=0`."""

    code = "file_uploads_off"
    status = 403
    sentence = gettext_noop(
        "Files are disabled on this server. Paste the text into the message instead."
    )


class FileTooLarge(Refusal):
    """The file exceeds the server's size limit (`FILE_BYTES`, 25 MiB by default)."""

    code = "file_too_large"
    status = 413
    sentence = gettext_noop(
        "{name} is larger than the limit of {limit} MiB per file. Split the file, or attach a "
        "part of it."
    )
    param = "file"


class FileEmpty(Refusal):
    """The file has no content. Upload another file."""

    code = "file_empty"
    status = 422
    sentence = gettext_noop("{name} is empty. Attach a file with content.")
    param = "file"


class FileMissing(Refusal):
    """The server's storage does not contain the file's content. Upload the file again."""

    code = "file_missing"
    status = 404
    sentence = gettext_noop(
        "The content of {name} is missing on this server. Upload the file again, or ask an operator"
        " to restore it from a backup."
    )


ONE_MESSAGE = gettext_noop(
    "One of your messages uses this file. Erase that message. This also deletes the file."
)


class FileInUse(Refusal):
    """A message uses the file, so it cannot be deleted. Erase the message first."""

    code = "file_in_use"
    status = 409
    sentence = gettext_noop(
        "{number} of your messages use this file. Erase these messages. Erasing the last one "
        "also deletes the file."
    )

    def __init__(self, *, number: int) -> None:
        if number == 1:
            self.sentence = ONE_MESSAGE
        super().__init__(number=number)


class FileQuotaExceeded(Refusal):
    """Your files would exceed your limit (`FILES_PER_USER_BYTES`, 2 GiB by default)."""

    code = "file_quota_exceeded"
    status = 409
    sentence = gettext_noop(
        "With {name}, your files would exceed the limit of {limit} MiB. Delete files or erase "
        "messages with files first."
    )
    param = "file"


def accept_upload(
    file: IO[bytes], *, name: str, owner: AbstractBaseUser, now: datetime
) -> tuple[StoredFile, bool]:
    """Store an uploaded file. Return it with True if its content is new.

    Content that the user uploaded before gets no second file: the existing file is returned with
    the new name, so repeated uploads are harmless. If its bytes are missing, they are stored again.
    It is read again if that failed, because limits and the scanner's signatures change, or if an
    earlier version read it as a plain text. Raises `FileUploadsOff`, `FileTooLarge`, `FileEmpty`,
    `FileKindRefused`, `FileQuotaExceeded` and `FileStorageUnavailable`.
    """
    check_uploads_on()
    name = clean_file_name(name)
    size, found = check_content(file, name=name)
    sha256 = compute_file_hash(file)
    known = list_files(owner).filter(sha256=sha256).first()
    if known is not None and has_bytes(known):
        row = renew_upload(known, name=name, found=found, now=now)
        if row is not None:
            return row, False
    if known is None or known.code == scanning.FILE_REFUSED:
        check_quota(owner.pk, name=name, size=size)
    pk = uuid.uuid4()
    row = StoredFile(
        pk=pk,
        owner_id=owner.pk,
        name=name,
        kind=found.kind,
        media_type=found.media_type,
        size=size,
        sha256=sha256,
        path=f"{pk.hex[:2]}/{pk.hex}",
        sealed_key=create_file_key() if settings.FILE_ENCRYPTION else "",
        created_at=now,
    )
    if known is not None and known.copy_path:
        # The copy of the image has the same key.
        row.sealed_key = known.sealed_key
    # No transaction is open while the storage writes.
    save_file_bytes(file, path=row.path, sealed_key=row.sealed_key, now=now)
    try:
        if known is not None and (restored := restore_upload(known, row, now=now)) is not None:
            return restored, False
        store_upload(row, found=found)
    except (Refusal, IntegrityError) as error:
        discard_file_bytes(row.path)
        # The same content was uploaded at the same time.
        known = list_files(owner).filter(sha256=sha256).first()
        again = renew_upload(known, name=name, found=found, now=now) if known else None
        if again is None or isinstance(error, Refusal):
            raise
        return again, False
    return row, True


def check_content(file: IO[bytes], *, name: str) -> tuple[int, FileKind]:
    """Return the size and the kind of a file, and rewind it.

    Raises `FileTooLarge`, `FileEmpty` and `FileKindRefused`.
    """
    size = file.seek(0, 2)
    if size > settings.FILE_BYTES:
        raise FileTooLarge(name=name, limit=settings.FILE_BYTES // MIB)
    if not size:
        raise FileEmpty(name=name)
    return size, detect_file_kind(file, name=name)


def check_uploads_on() -> None:
    """Raise `FileUploadsOff` if the operator disabled file uploads."""
    if not settings.FILE_UPLOADS:
        raise FileUploadsOff


def has_bytes(row: StoredFile) -> bool:
    """Return True if the storage has a file's content. Raises `FileStorageUnavailable`."""
    return row.code != scanning.FILE_REFUSED and get_file_storage().exists(row.path)


def renew_upload(
    known: StoredFile, *, name: str, found: FileKind, now: datetime
) -> StoredFile | None:
    """Update the name and upload time of a stored file. A failed or misread file is read again.

    The kind changes too if only the name decides it. Returns None if the file was deleted, or if
    the scanner refused it and its bytes are gone.
    """
    mine = StoredFile.objects.filter(pk=known.pk).exclude(code=scanning.FILE_REFUSED)
    with transaction.atomic():
        renewed: dict[str, Any] = {"name": name, "created_at": now}
        if {known.kind, found.kind} <= NAMED_KINDS:
            renewed |= {"kind": found.kind, "media_type": found.media_type}
        if not mine.update(**renewed):
            return None
        failed = mine.filter(state=State.FAILED)
        if failed.update(**build_unread_columns(found)) or drop_misread_text(mine, found=found):
            queue.enqueue(queue.READ_FILE, file_id=known.pk)
        return mine.get()


def drop_misread_text(mine: QuerySet[StoredFile], *, found: FileKind) -> bool:
    """Delete the text of a document that was read as a plain text, and mark it as unread.

    Earlier versions read the codes of RTF documents and web archives. Returns False for other
    files, and for one whose excerpts were sent: they belong to the record. `mine`: the file alone.
    """
    if found.kind in NAMED_KINDS:
        return False
    texts = mine.filter(state=State.READY, kind__in=NAMED_KINDS)
    columns = build_unread_columns(found) | {"characters": 0, "tokens": 0}
    if is_misread := bool(texts.exclude(chunks__excerpts__isnull=False).update(**columns)):
        FileChunk.objects.filter(file__in=mine).delete()
    return is_misread


def build_unread_columns(found: FileKind) -> dict[str, Any]:
    """Return the columns that mark a file as unread, so that it is read again."""
    columns = {"state": State.PENDING, "code": "", "tries": 0}
    return {**columns, "kind": found.kind, "media_type": found.media_type}


def restore_upload(known: StoredFile, new: StoredFile, *, now: datetime) -> StoredFile | None:
    """Restore the missing bytes of a stored file from a new upload. A failed file is read again.

    Returns None if the file was deleted. Raises `FileQuotaExceeded`, and IntegrityError if the file
    changed at the same time.
    """
    with transaction.atomic():
        # Locked in the order of `store_upload`.
        owner = User.objects.select_for_update(no_key=True).get(pk=known.owner_id)
        row = StoredFile.objects.select_for_update().filter(pk=known.pk).first()
        if row is None:
            return None
        if row.path != known.path or row.code != known.code:
            # Another upload or the scanner changed the file after it was looked up.
            raise IntegrityError
        if row.code == scanning.FILE_REFUSED:
            check_quota(owner.pk, name=new.name, size=new.size)
        row.name, row.created_at = new.name, now
        row.path, row.sealed_key = new.path, new.sealed_key
        if row.state == State.FAILED:
            row.state, row.code, row.tries = State.PENDING, "", 0
            row.kind, row.media_type = new.kind, new.media_type
            queue.enqueue(queue.READ_FILE, file_id=row.pk)
        row.save()
        keep_file_bytes(new.path)
        data = {"file": str(row.pk), "bytes": row.size, "kind": str(row.kind)}
        actor = f"user:{row.owner_id}"
        ledger.record_event("file.uploaded", actor=actor, now=now, data=data)
    return row


def store_upload(row: StoredFile, *, found: FileKind) -> None:
    """Store the row of a file whose bytes are stored, and enqueue its reading.

    Raises `FileQuotaExceeded`.
    """
    with transaction.atomic():
        # The lock makes the second of two parallel uploads count the first.
        owner = User.objects.select_for_update(no_key=True).get(pk=row.owner_id)
        check_quota(owner.pk, name=row.name, size=row.size)
        row.save(force_insert=True)
        keep_file_bytes(row.path)
        data = {"file": str(row.pk), "bytes": row.size, "kind": str(found.kind)}
        actor = f"user:{row.owner_id}"
        ledger.record_event("file.uploaded", actor=actor, now=row.created_at, data=data)
        queue.enqueue(queue.READ_FILE, file_id=row.pk)


def check_quota(owner_id: int, *, name: str, size: int) -> None:
    """Raise `FileQuotaExceeded` if `size` more bytes would exceed the user's quota.

    Counts all stored files: uploads, the copies of images for models and pages, and the images of
    each message. Files that the scanner refused do not count: their bytes are deleted. Parallel
    writers do not exceed the quota if they have locked the user.
    """
    stored = StoredFile.objects.filter(owner=owner_id).exclude(code=scanning.FILE_REFUSED)
    sums = stored.aggregate(files=Sum("size"), copies=Sum("copy_size"))
    used = (sums["files"] or 0) + (sums["copies"] or 0) + measure_message_images(owner_id)
    if used + size > settings.FILES_PER_USER_BYTES:
        raise FileQuotaExceeded(name=name, limit=settings.FILES_PER_USER_BYTES // MIB)


def check_image_quota(
    owner_id: int, rows: Iterable[Message], *, found: Mapping[str, Bytes], name: str
) -> None:
    """Check the images that messages are about to store. `found` maps hashes to images.

    The caller has locked the user. Raises `FileQuotaExceeded`.
    """
    hashes = (sha256 for row in rows for sha256 in set(iter_image_hashes(row)) & found.keys())
    if size := sum(len(found[sha256].data) for sha256 in hashes):
        check_quota(owner_id, name=name, size=size)


def measure_message_images(owner_id: int) -> int:
    """Return the bytes of the images that a user's messages store."""
    return OwnedImage.objects.filter(owner=owner_id).aggregate(bytes=Sum("size"))["bytes"] or 0


def list_files(user: AbstractBaseUser | AnonymousUser) -> QuerySet[StoredFile]:
    if not user.is_authenticated:
        return StoredFile.objects.none()
    return StoredFile.objects.filter(owner=user.pk)


def get_file(*, user: AbstractBaseUser | AnonymousUser, file_id: uuid.UUID) -> StoredFile:
    """Return a file of the user. Raises `NotFound` if the user has no such file."""
    return get_or_not_found(list_files(user).filter(pk=file_id))


def open_stored_file(row: StoredFile, *, is_copy: bool = False) -> IO[bytes]:
    """Open a file's bytes, or an image's copy. Raises `FileMissing`, `FileStorageUnavailable`."""
    try:
        return open_file_bytes(row, is_copy=is_copy)
    except FileNotFoundError:
        raise FileMissing(name=row.name) from None


def delete_file(*, user: AbstractBaseUser, file_id: uuid.UUID, now: datetime) -> None:
    """Delete a user's file with its content.

    Raises `NotFound`, `FileInUse` and `UnderHold`.
    """
    with transaction.atomic():
        row = list_files(user).select_for_update().filter(pk=file_id).first()
        if row is None:
            raise NotFound
        if number := MessageFile.objects.filter(file=row).count():
            raise FileInUse(number=number)
        holds.check_legal_hold(owner_id=row.owner_id, chats=[], now=now)
        delete_file_row(row, actor=f"user:{user.pk}", reason="asked", now=now)


def delete_file_row(
    row: StoredFile,
    *,
    actor: str,
    reason: str,
    now: datetime,
    record: Callable[..., object] = ledger.record_event,
) -> None:
    """Delete a locked file, with its bytes after the commit. `record` writes the ledger entry."""
    data = {"file": str(row.pk), "bytes": row.size, "reason": reason}
    row.delete()
    record("file.deleted", actor=actor, now=now, data=data)


def release_files(
    file_ids: Iterable[uuid.UUID], *, now: datetime, record: Callable[..., object]
) -> int:
    """Delete files that no message uses any longer, in the transaction of an erasure.

    `record` writes the ledger entries, which belong to the instance's chain. Returns the count. The
    caller has checked the legal holds.
    """
    rows = StoredFile.objects.select_for_update().filter(pk__in=list(file_ids)).order_by("pk")
    unused = [row for row in rows if not MessageFile.objects.filter(file=row).exists()]
    for row in unused:
        delete_file_row(row, actor="system", reason="erased", now=now, record=record)
    return len(unused)


def delete_unused_files(*, now: datetime) -> int:
    """Delete files that no message uses and that were uploaded before the grace period.

    The grace period is `UNUSED_FILE_HOURS`. Files under a legal hold stay. Returns the count.
    """
    held = legal_holds.load_held_targets(now=now)
    if held.everything:
        return 0
    limit = now - timedelta(hours=settings.UNUSED_FILE_HOURS)
    rows = StoredFile.objects.filter(created_at__lt=limit, uses=None).exclude(owner__in=held.people)
    deleted = 0
    for pk in list(rows.values_list("pk", flat=True)[:DELETED_AT_ONCE]):
        with suppress(holds.UnderHold), transaction.atomic():
            row = StoredFile.objects.select_for_update().filter(pk=pk).first()
            # Read under the lock, which a message takes before it uses the file.
            if row is not None and rows.filter(pk=pk).exists():
                holds.check_legal_hold(owner_id=row.owner_id, chats=[], now=now)
                delete_file_row(row, actor="system", reason="unused", now=now)
                deleted += 1
    return deleted
