"""Invariants of uploaded files, at any moment, whatever is killed."""

from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User

from chats.files import storage, uploads
from chats.models import FileChunk, FileRemoval, StoredFile
from chats.models.files import READING_FAILURES
from contextpolicy.models import AuditEvent
from tests.faults.laws import Violation


def list_row_paths() -> set[str]:
    """The paths of the bytes that rows name: files, and copies of images."""
    rows = StoredFile.objects.values_list("path", "copy_path")
    return {path for pair in rows for path in pair if path}


def list_stored_paths() -> set[str]:
    """The paths of all bytes in the storage."""
    place = Path(settings.DATA_DIR) / "files"
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


def assert_bytes() -> None:
    """Check that bytes have a row or are to be removed, and that no bytes of a row are."""
    removed = set(FileRemoval.objects.values_list("path", flat=True))
    named = list_row_paths()
    if orphans := list_stored_paths() - named - removed:
        raise Violation(f"bytes without a row stay forever: {sorted(orphans)}")
    refused = set(StoredFile.objects.filter(code="file_refused").values_list("path", flat=True))
    if doomed := (named & removed) - refused:
        raise Violation(f"the bytes of an accepted file would be removed: {sorted(doomed)}")


def assert_nothing_left() -> None:
    """Check after the removal of due bytes that exactly the bytes of rows are stored."""
    if list_stored_paths() != list_row_paths():
        raise Violation("the storage and the rows differ after the grace period")
    if FileRemoval.objects.exists():
        raise Violation("a removal is never done")


def assert_file(row: StoredFile, *, data: bytes, text: str | None) -> None:
    """Check the bytes of a file, and its text or the reason of its failure.

    `text` is None for an image, and empty for a file that cannot be read.
    """
    if b"".join(storage.iter_file_bytes(row)) != data:
        raise Violation("the bytes of a file changed")
    chunks = list(FileChunk.objects.filter(file=row).order_by("number"))
    if [chunk.number for chunk in chunks] != list(range(1, len(chunks) + 1)):
        raise Violation("a part of a file's text was lost or doubled")
    if row.state != "ready":
        if chunks or row.copy_path:
            raise Violation(f"a file that is {row.state} has content")
        assert_failure(row, text=text)
    elif text is None:
        if not b"".join(storage.iter_file_bytes(row, is_copy=True)):
            raise Violation("an image has no copy")
    else:
        found = "".join(chunk.text for chunk in chunks)
        if not text or found.split() != text.split() or row.characters != len(found):
            raise Violation("a file was read into another text")


def assert_failure(row: StoredFile, *, text: str | None) -> None:
    """Check that a file without content waits for a reader, or failed for a valid reason."""
    is_failed = row.state == "failed"
    if bool(row.code) != is_failed or (is_failed and row.code not in READING_FAILURES):
        raise Violation(f"a file is {row.state} with the code {row.code!r}")
    if is_failed and row.code != "worker_lost" and text != "":
        raise Violation(f"a readable file failed: {row.code}")


def assert_events(row: StoredFile, *, stored: int) -> None:
    """Check that the ledger has one event for each time that the bytes were stored."""
    events = AuditEvent.objects.filter(type="file.uploaded", data__file=str(row.pk))
    if events.count() != stored:
        raise Violation(f"{stored} uploads of a file have {events.count()} events")


def assert_quota(owner: User, *, sizes: list[int]) -> None:
    """Check that the quota counts exactly the stored files."""
    limit = settings.FILES_PER_USER_BYTES
    try:
        settings.FILES_PER_USER_BYTES = sum(sizes) + 1
        uploads.check_quota(owner.pk, name="", size=1)
        try:
            uploads.check_quota(owner.pk, name="", size=2)
        except uploads.FileQuotaExceeded:
            return
        raise Violation("the quota forgets a file")
    except uploads.FileQuotaExceeded:
        raise Violation("the quota counts more than the stored files") from None
    finally:
        settings.FILES_PER_USER_BYTES = limit
