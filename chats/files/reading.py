"""Extracts the content of uploaded files in the background, in a process with limits.

A lease protects each file: if the worker dies, the lease expires and the next worker reads the file
again. The result is stored in one transaction, so no content is stored twice.
"""

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from chats.files import extractors, request_waits, scanning
from chats.files.encryption import FileDamaged
from chats.files.guarded_storage import FileStorageUnavailable
from chats.files.scanning import scan_file
from chats.files.storage import (
    compute_file_hash,
    get_file_storage,
    iter_file_bytes,
    keep_file_bytes,
    save_file_bytes,
    schedule_removal,
)
from chats.files.working_folders import open_working_folder
from chats.ground import databases, queue
from chats.ground.background_lock import OneAtATime
from chats.ground.jobs import Job, renewed_by_thread
from chats.ground.leases import LeaseLost
from chats.ground.texts import sanitise_text
from chats.models import FileChunk, StoredFile
from chats.record.images import Bytes
from contextpolicy import ledger
from contextpolicy.engine.messages.tokens import TokenCounter

logger = logging.getLogger(__name__)
State = StoredFile.State
MODULE = "chats.files.extractors"
# The longest time to load, scan and read a file, for which its lease is renewed.
LONGEST_READING = 3 * extractors.SECONDS + scanning.SECONDS
READINGS = Job(
    StoredFile,
    task=queue.READ_FILE,
    argument="file_id",
    is_open=Q(state=State.PENDING),
)
# One file at a time in a process: each may need half a gigabyte.
ONE_AT_A_TIME = OneAtATime()
# The maximum number of files that one run enqueues.
ENQUEUED_AT_ONCE = 300
CHUNKS_AT_ONCE = 200
# The time before the second attempt at a file that the storage refused. It grows fourfold with each
# attempt, up to this many times.
RETRY_AFTER = timedelta(minutes=5)
MOST_GROWTHS = 4
# If no other file shows whether the storage answers, the storage may be unavailable for this time.
OUTAGE_TIME = timedelta(days=1)
# Seconds between a request's checks whether a worker has read a file.
LOOK_SECONDS = 0.1
# A request waits at most this time for the text of its files.
WAIT_SECONDS = 45.0


def read_uploaded_file(*, file_id: uuid.UUID, counter: TokenCounter) -> None:
    """Read a file, unless it was already read or another worker is reading it.

    If the storage is unavailable, the file stays unread, and a due job enqueues it again. If the
    storage refuses only this file several times, the file has failed.
    """
    with ONE_AT_A_TIME:
        row = claim_file(file_id)
        if row is None:
            return
        databases.release_pooled_connection()
        try:
            with renewed_by_thread(READINGS.get_lease(row), seconds=LONGEST_READING):
                values, chunks = read_content(row, counter=counter)
        except FileStorageUnavailable:
            release_unavailable_file(row)
            return
        try:
            store_content(row, values=values, chunks=chunks)
        except LeaseLost:
            logger.info("file %s was deleted or read by another worker", file_id)


def release_unavailable_file(row: StoredFile) -> None:
    """Release a file that the storage refused; a due job enqueues it again.

    An outage of the storage does not count. Otherwise the next attempt is later each time, and
    after `MAX_ATTEMPTS` attempts the file has failed.
    """
    lease = READINGS.get_lease(row)
    if is_storage_failing(row):
        lease.release(tries=F("tries") - 1)
    elif row.tries >= settings.MAX_ATTEMPTS:
        lease.release(state=State.FAILED, code=FileStorageUnavailable.code)
    else:
        # No worker can claim the file before this time, so it delays no other file.
        pause = RETRY_AFTER * 4 ** min(row.tries - 1, MOST_GROWTHS)
        lease.select_row().update(
            **{**READINGS.get_no_lease(), "lease_until": timezone.now() + pause}
        )


def is_storage_failing(row: StoredFile) -> bool:
    """Return True if the storage refuses another file too.

    If there is no other file, True while the file is new.
    """
    others = StoredFile.objects.filter(state=State.READY).exclude(pk=row.pk)
    path = others.order_by("-created_at").values_list("path", flat=True).first()
    if path is None:
        return timezone.now() - row.created_at < OUTAGE_TIME
    try:
        get_file_storage().open(path).close()
    except FileStorageUnavailable:
        return True
    except FileNotFoundError:
        pass
    return False


def claim_file(file_id: uuid.UUID) -> StoredFile | None:
    """Lease a file that has not been read. None if it was read or another worker reads it.

    After `MAX_ATTEMPTS` attempts, marks the file as failed and returns None.
    """
    tried = READINGS.select_free_rows().filter(pk=file_id, tries__gte=settings.MAX_ATTEMPTS)
    if tried.update(state=State.FAILED, code="worker_lost", lease_until=None):
        return None
    lease = READINGS.claim(file_id, tries=F("tries") + 1)
    return lease.select_row().first() if lease else None


def read_content(
    row: StoredFile, *, counter: TokenCounter
) -> tuple[dict[str, Any], list[FileChunk]]:
    """Extract the content of a file. Return its columns and its text as chunks.

    Opens no transaction.
    """
    with open_working_folder() as folder:
        try:
            found = extract_content(row, folder=folder)
        except (FileNotFoundError, FileDamaged):
            # The file was deleted, or its bytes are missing or changed.
            found = {"code": "file_damaged"}
        if code := found.get("code"):
            return {"state": State.FAILED, "code": code}, []
        if row.kind == StoredFile.Kind.IMAGE:
            copied = store_image_copy(row, folder / "copy", found=found)
            return {"state": State.READY, **copied}, []
    chunks = list(iter_chunks(row, found["chunks"]))
    values = {
        "state": State.READY,
        "pages": found["pages"],
        "is_whole": found["whole"],
        "characters": sum(len(chunk.text) for chunk in chunks),
        "tokens": sum(counter.count(chunk.text) for chunk in chunks),
    }
    return values, chunks


def extract_content(row: StoredFile, *, folder: Path) -> dict[str, Any]:
    """Copy a stored file to `folder`, scan it and extract its content.

    Returns the result of `scan_and_extract`. Raises FileNotFoundError and `FileDamaged`.
    """
    path = folder / "file"
    with path.open("wb") as file:
        for piece in iter_file_bytes(row):
            file.write(piece)
    return scan_and_extract(row.kind, path=path, copy=folder / "copy")


def scan_and_extract(kind: str, *, path: Path, copy: Path) -> dict[str, Any]:
    """Scan a file and extract its content. Returns a `code` if the scan or the extractor fails."""
    code = scan_file(path)
    return {"code": code} if code else run_extractor(kind, path=path, copy=copy)


def run_extractor(kind: str, *, path: Path, copy: Path) -> dict[str, Any]:
    """Run the extractor process with limits. Returns its output, or the code of a failure."""
    command = [sys.executable, "-m", MODULE, kind, str(path), str(copy)]
    # No secrets: the process needs none.
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    with tempfile.TemporaryFile(dir=path.parent) as output:
        try:
            subprocess.run(  # noqa: S603  # our own module, no shell
                command,
                cwd=settings.BASE_DIR,
                env={**kept, "PYTHONPATH": str(settings.BASE_DIR), "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=extractors.SECONDS,
                check=True,
            )
        except subprocess.TimeoutExpired:
            return {"code": "file_takes_long"}
        except subprocess.CalledProcessError as error:
            logger.info("the process that reads a file ended (%s)", error.returncode)
            # A limit killed the process: SIGXCPU is the time limit, any other signal the memory
            # limit.
            is_time = error.returncode == -signal.SIGXCPU
            return {"code": "file_takes_long" if is_time else "file_needs_memory"}
        output.seek(0)
        found: dict[str, Any] = json.load(output)
        return found


def store_image_copy(row: StoredFile, copy: Path, *, found: dict[str, Any]) -> dict[str, Any]:
    """Store the copy of an image, and return its columns."""
    # A new path for each attempt: a worker that lost its lease overwrites nothing.
    path = f"{row.path}-{uuid.uuid4().hex[:8]}"
    with copy.open("rb") as file:
        save_file_bytes(file, path=path, sealed_key=row.sealed_key, now=timezone.now())
        return {
            "copy_path": path,
            "copy_type": found["media_type"],
            "copy_sha256": compute_file_hash(file),
            "copy_size": copy.stat().st_size,
            "width": found["width"],
            "height": found["height"],
        }


def iter_chunks(row: StoredFile, chunks: list[list[Any]]) -> Iterator[FileChunk]:
    """Yield the text of a file as unsaved chunk rows."""
    start = 0
    for number, (page, text, words) in enumerate(chunks, start=1):
        clean = sanitise_text(text)
        yield FileChunk(
            file=row, number=number, start=start, page=page, text=clean, words=sanitise_text(words)
        )
        start += len(clean)


@transaction.atomic
def store_content(row: StoredFile, *, values: dict[str, Any], chunks: list[FileChunk]) -> None:
    """Store the content of a file, or the code of the reason why it could not be read.

    Raises `LeaseLost`.
    """
    lease = READINGS.get_lease(row)
    lease.lock_row()
    FileChunk.objects.bulk_create(chunks, batch_size=CHUNKS_AT_ONCE)
    if path := values.get("copy_path"):
        keep_file_bytes(path)
    lease.finish(**values)
    if values.get("code") == scanning.FILE_REFUSED:
        record_refused_file(row)


def record_refused_file(row: StoredFile) -> None:
    """Record that the scanner refused a file, and delete its bytes after the commit."""
    now = timezone.now()
    data = {"file": str(row.pk), "bytes": row.size, "kind": row.kind}
    ledger.record_event("file.refused", actor="system", now=now, data=data)
    schedule_removal(StoredFile, row)


def scan_without_storing(row: StoredFile, data: bytes) -> None:
    """Scan an image in a request, and set the state of its unsaved row.

    No transaction is open during the scan.
    """
    databases.release_pooled_connection()
    row.code = scanning.scan_bytes(data)
    row.state = State.FAILED if row.code else State.READY
    record_refused_content(row)


@transaction.atomic
def record_refused_content(row: StoredFile) -> None:
    """Record a scanner refusal of content that is not stored: its owner, size and kind."""
    if row.code == scanning.FILE_REFUSED:
        data = {"bytes": row.size, "kind": row.kind}
        actor = f"user:{row.owner_id}"
        ledger.record_event("file.refused", actor=actor, now=timezone.now(), data=data)


def read_without_storing(row: StoredFile, data: bytes, *, counter: TokenCounter) -> list[FileChunk]:
    """Extract a document that is not stored, and return its text as unsaved chunks.

    Sets the fields of its unsaved row.
    """
    with ONE_AT_A_TIME, open_working_folder() as folder:
        databases.release_pooled_connection()
        path = folder / "file"
        path.write_bytes(data)
        found = scan_and_extract(row.kind, path=path, copy=folder / "copy")
    row.code = found.get("code", "")
    row.state = State.FAILED if row.code else State.READY
    record_refused_content(row)
    if row.code:
        return []
    chunks = list(iter_chunks(row, found["chunks"]))
    text = "".join(chunk.text for chunk in chunks)
    row.pages, row.is_whole = found["pages"], found["whole"]
    row.characters, row.tokens = len(text), counter.count(text)
    return chunks


def copy_image_without_storing(row: StoredFile, data: bytes) -> Bytes | None:
    """Scan an image that is not stored, and return its copy for models and pages.

    None if it cannot be used. Sets the fields of its unsaved row. No transaction is open during
    the work.
    """
    databases.release_pooled_connection()
    made, found = make_image_copy(data)
    row.code = found.get("code", "")
    row.state = State.FAILED if row.code else State.READY
    record_refused_content(row)
    if made is None:
        return None
    row.width, row.height = found["width"], found["height"]
    row.copy_sha256 = hashlib.sha256(made.data).hexdigest()
    return made


def make_image_copy(data: bytes) -> tuple[Bytes | None, dict[str, Any]]:
    """Scan an image, and return its copy for models and pages, with its width and height.

    None with the `code` of the reason if it cannot be used. Does not use the database.
    """
    with ONE_AT_A_TIME, open_working_folder() as folder:
        path, copy = folder / "file", folder / "copy"
        path.write_bytes(data)
        found = scan_and_extract(StoredFile.Kind.IMAGE, path=path, copy=copy)
        if found.get("code"):
            return None, found
        given = hashlib.sha256(data).hexdigest()
        return Bytes(found["media_type"], copy.read_bytes(), given, len(data)), found


def pause() -> None:
    """Pause briefly so that other workers can proceed, without holding a database connection."""
    databases.release_pooled_connection()
    time.sleep(LOOK_SECONDS)


def wait_until_read(file_ids: Collection[uuid.UUID], *, seconds: float) -> None:
    """Wait until workers have read the files, for at most `seconds`.

    If too many requests of this process are waiting, this one waits only briefly.
    """
    begin = time.monotonic()
    rows = StoredFile.objects.filter(pk__in=file_ids, state=State.PENDING)
    if not wait_until_empty(rows, end=begin + min(seconds, request_waits.BRIEFLY)):
        with request_waits.hold_waiting_place(seconds=0) as has_place:
            if has_place:
                wait_until_empty(rows, end=begin + seconds)


def wait_until_empty(rows: QuerySet[StoredFile], *, end: float) -> bool:
    """Wait until no row is left. Return False if some are left at `end`, a monotonic time."""
    while rows.exists():
        if time.monotonic() >= end:
            return False
        pause()
    return True


def enqueue_unread_files(*, now: datetime) -> int:
    """Enqueue tasks for unread files that no worker is reading. Return the count.

    Files younger than `REQUEUE_AFTER` seconds are left out: their first task may still wait.
    """
    age = now - timedelta(seconds=settings.REQUEUE_AFTER)
    rows = READINGS.select_free_rows().filter(created_at__lt=age).order_by("created_at")
    return READINGS.enqueue_rows(rows.values_list("pk", flat=True)[:ENQUEUED_AT_ONCE])
