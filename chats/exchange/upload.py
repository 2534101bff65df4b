"""Accepts files to import in the background; lists, stops and deletes imports.

Processes may share no disk, so the database stores the file in pieces until the import ends.
"""

import uuid
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import IO

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_noop

from chats.exchange import bounds, importing
from chats.ground import queue
from chats.ground.refusals import NotFound, Refusal
from chats.models import FileImport, FilePiece, ImportOutcome
from chats.record import imports
from contextpolicy import ledger

PIECE = bounds.MIB
# Number of pieces per transaction.
PIECES_AT_ONCE = 16
# Maximum import reports per user; the next import deletes older ones.
REPORTS = 20


class ImportsUnderWay(Refusal):
    """You have too many running imports (`IMPORTS_PER_USER`, 2 by default).

    Wait for one to end, or stop one.
    """

    code = "imports_under_way"
    status = 409
    sentence = gettext_noop(
        "You have {limit} running imports, which is the limit. Wait for one to end, or stop one, "
        "then upload the file."
    )


class ImportNotOver(Refusal):
    """The import is still running. Stop it first."""

    code = "import_not_over"
    status = 409
    sentence = gettext_noop("This import is still running. Stop it first, then delete its report.")


def start_import(file: IO[bytes], *, owner: AbstractBaseUser, now: datetime) -> FileImport:
    """Store a file, and request the import of its chats in the background.

    A large file takes several transactions, so that others can write in between. Until the last
    one, the row is leased to this process. Reading refuses a file with a missing piece. Raises
    `ImportsUnderWay`, `NotFound` if the import is deleted concurrently, and `ImportRefused` for a
    file of invalid size or an archive that cannot be opened.
    """
    importing.check_import_file(file)
    with transaction.atomic():
        # The lock makes the second of two parallel requests count the first.
        User.objects.select_for_update(no_key=True).get(pk=owner.pk)
        mine = FileImport.objects.filter(owner=owner.pk)
        if mine.filter(state__in=imports.OPEN).count() >= settings.IMPORTS_PER_USER:
            raise ImportsUnderWay(limit=settings.IMPORTS_PER_USER)
        over = mine.exclude(state__in=imports.OPEN).order_by("-created_at", "-pk")
        old = list(over.values_list("pk", flat=True)[REPORTS - 1 :])
        FileImport.objects.filter(pk__in=old).delete()
        size = bounds.measure_file_size(file)
        lease = imports.IMPORTS.create_lease(uuid.uuid4())
        row = FileImport.objects.create(
            pk=lease.key, owner_id=owner.pk, size=size, created_at=now, **lease.columns
        )
    pieces = enumerate(read_import_pieces(file))
    while listed := list(islice(pieces, PIECES_AT_ONCE)):
        with transaction.atomic():
            lease.renew()
            for number, piece in listed:
                FilePiece.objects.create(file=row, number=number, data=piece)
    with transaction.atomic():
        lease.finish()
        data = {"import": str(row.pk), "bytes": size}
        ledger.record_event("import.started", actor=f"user:{owner.pk}", now=now, data=data)
        queue.enqueue(queue.IMPORT_FILE, import_id=row.pk)
    row.refresh_from_db()
    return row


def read_import_pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def list_imports(user: AbstractBaseUser) -> QuerySet[FileImport]:
    return FileImport.objects.filter(owner=user.pk)


def get_import(*, user: AbstractBaseUser, import_id: uuid.UUID) -> FileImport:
    """Return an import of the user. Raises `NotFound`."""
    row = list_imports(user).filter(pk=import_id).first()
    if row is None:
        raise NotFound
    return row


def list_import_results(row: FileImport, *, only_missed: bool = False) -> QuerySet[ImportOutcome]:
    """Return the results for the chats of a file so far, in file order.

    `only_missed`: only chats that were not imported completely.
    """
    rows = row.outcomes.select_related("chat").order_by("place")
    return rows.filter(Q(chat=None) | ~Q(losses=[])) if only_missed else rows


def stop_import(*, user: AbstractBaseUser, import_id: uuid.UUID, now: datetime) -> FileImport:
    """Stop an import and keep its chats. A finished import does not change. Raises `NotFound`."""
    with transaction.atomic():
        row = lock_import(user=user, import_id=import_id)
        if row.state in imports.OPEN:
            stopped = FileImport.State.STOPPED
            imports.end_import(row, state=stopped, actor=f"user:{user.pk}", now=now)
    return row


def delete_import(*, user: AbstractBaseUser, import_id: uuid.UUID) -> None:
    """Delete an import with its report; its chats stay. Raises `NotFound` and `ImportNotOver`."""
    with transaction.atomic():
        row = lock_import(user=user, import_id=import_id)
        if row.state in imports.OPEN:
            raise ImportNotOver
        row.delete()


def lock_import(*, user: AbstractBaseUser, import_id: uuid.UUID) -> FileImport:
    """Lock an import of the user. Raises `NotFound`."""
    row = list_imports(user).select_for_update().filter(pk=import_id).first()
    if row is None:
        raise NotFound
    return row
