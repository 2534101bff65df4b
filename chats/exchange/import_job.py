"""Imports the chats of a file in the background, one after the other, under a lease.

One transaction stores a chat, its result and the position of the import. A killed worker loses only
its current chat, and the next worker continues after the stored position without duplicates. A stop
takes effect between two chats, or between the messages of a long one. While a transaction stores a
large chat, a thread renews the lease.
"""

import logging
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import IO, cast

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange import chat_writer, document_parts, import_sources, importing
from chats.exchange.chat_writer import Imported
from chats.exchange.document_parts import MOST_CHATS
from chats.exchange.drafts import ImportRefused, NotTaken
from chats.exchange.import_sources import FAULT, build_fault, limit_losses, log_import_error
from chats.ground import databases
from chats.ground.background_lock import give_way
from chats.ground.jobs import JobLease, PacedRenewal, renewed_by_thread
from chats.ground.leases import LeaseLost
from chats.ground.refusals import Refusal
from chats.ground.sentences import Sentence
from chats.ground.texts import sanitise_text
from chats.memory.search import index_schedule
from chats.models import Branch, Chat, FileImport, ImportOutcome
from chats.record import imports
from contextpolicy.engine.messages.tokens import TokenCounter

logger = logging.getLogger(__name__)
# Maximum duration of one task in seconds.
SECONDS = 20.0
# Pause between two chats, for others that wait for SQLite's only writer or the background lock.
REST = 0.001
# Bytes of the file held in memory; the rest is on disk during reading.
IN_MEMORY = 4 * 1024 * 1024
# Messages from which storing a chat may outlast a lease: 180,000 take 21 s on 2 cores.
MANY_MESSAGES = 2_000
# Longest time in seconds for which the lease of one chat is renewed while it is stored.
LONGEST_STORING = 900.0
INCOMPLETE = gettext_noop("The upload was incomplete. Upload the file again.")
LOST = gettext_noop(
    "The worker stopped {times} times while importing the same chat, often because of a "
    "lack of memory. The chats below were imported. Upload the file again. If the import "
    "fails again, tell an operator."
)


ImportLease = JobLease[FileImport]


@contextmanager
def renewed_import_lease(lease: ImportLease, *, messages: int) -> Iterator[None]:
    """Renew the lease from a thread while a transaction stores a large chat.

    SQLite needs no thread: it has one writer at a time, so no worker can claim the import during
    the transaction.
    """
    if messages < MANY_MESSAGES or connection.vendor == "sqlite":
        yield
        return
    with renewed_by_thread(lease, seconds=LONGEST_STORING):
        yield


class Pace:
    """Renews the lease between pieces of a file, and pauses so that other work can run."""

    def __init__(self, lease: ImportLease) -> None:
        self.renew = PacedRenewal(lease)

    def __call__(self) -> None:
        """Renew the lease if due, then pause briefly. Raises `LeaseLost`."""
        give_way(0)
        self.renew()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportWork:
    """A running import: its row, lease, clock, and functions that report progress."""

    row: FileImport
    lease: ImportLease
    counter: TokenCounter
    clock: Callable[[], datetime]
    is_closing: Callable[[], bool]


def continue_import(
    *,
    import_id: uuid.UUID,
    counter: TokenCounter,
    clock: Callable[[], datetime],
    is_closing: Callable[[], bool],
) -> None:
    """Import chats from a file for a few seconds. Enqueue the next task if any are left."""
    lease = claim_import(import_id, now=clock())
    if lease is None:
        return
    row = FileImport.objects.select_related("owner").get(pk=import_id)
    worker = ImportWork(row=row, lease=lease, counter=counter, clock=clock, is_closing=is_closing)
    with suppress(LeaseLost):
        try:
            import_remaining_chats(worker)
        except LeaseLost:
            raise
        except Refusal as refusal:
            finish_import(worker, code=refusal.code, reason=refusal.full)
        except Exception as error:
            if databases.is_retryable_error(error):
                # Database error, not this file's fault: let a later task retry.
                raise
            log_import_error(error, what=f"import {import_id}")
            finish_import(worker, code="import_fault", reason=FAULT)


def claim_import(import_id: uuid.UUID, *, now: datetime) -> ImportLease | None:
    """Lease an import and mark it as running. None if it has ended or another worker has it.

    An import whose workers die repeatedly fails.
    """
    lease = imports.IMPORTS.claim(import_id, state=FileImport.State.RUNNING, tries=F("tries") + 1)
    if lease is None:
        return None
    with transaction.atomic():
        row = lease.select_row().select_for_update().first()
        if row is not None and row.tries > settings.MAX_ATTEMPTS:
            reason = Sentence(LOST, times=settings.MAX_ATTEMPTS)
            failed = FileImport.State.FAILED
            imports.end_import(
                row, state=failed, actor="system", now=now, code="worker_lost", reason=reason
            )
            return None
    return lease


def count_failed_start(import_id: uuid.UUID, *, tries: int, now: datetime) -> None:
    """Count an attempt whose process ended before it claimed the import.

    `tries`: the number of attempts before. After too many of them, the import fails.
    """
    if not FileImport.objects.filter(pk=import_id, tries=tries).exists():
        return
    lease = claim_import(import_id, now=now)
    if lease is not None:
        # A due job starts the next attempt.
        lease.release()


def import_remaining_chats(worker: ImportWork) -> None:
    """Read the file and import the chats after the stored position.

    After `SECONDS`, or if the worker shuts down, the next task continues. Raises `LeaseLost` and
    `Refusal`.
    """
    row, lease = worker.row, worker.lease
    with assemble_import_file(row) as file, ExitStack() as kept:
        if file.seek(0, 2) != row.size:
            raise ImportRefused("import_incomplete", gettext_lazy(INCOMPLETE))
        file.seek(0)
        outline = dict(row.outline or {})
        source = importing.read_import_file(file, kept=kept, tick=Pace(lease), outline=outline)
        row.form, row.found = source.form, source.total
        lease.renew(form=row.form, found=row.found, outline=outline)
        until = time.monotonic() + SECONDS
        mark = (row.mark_part, row.mark_offset)
        for place, read in enumerate(source.behind(row.place, mark), start=row.place + 1):
            if place > MOST_CHATS:
                record_skipped_chat(
                    worker, document_parts.build_chat_limit_error(), place=place, mark=read.mark
                )
                break
            import_draft(worker, read, place=place)
            give_way(REST)
            is_late = time.monotonic() > until and place < source.total
            if is_late or worker.is_closing():
                lease.hand_on(tries=0)
                return
    finish_import(worker)


def assemble_import_file(row: FileImport) -> IO[bytes]:
    """Return the uploaded file of an import, assembled and rewound. The caller closes it."""
    file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  # the reader closes it
    # One query per piece, because a server-side cursor is not available behind PgBouncer.
    for number in row.pieces.order_by("number").values_list("number", flat=True):
        file.write(row.pieces.values_list("data", flat=True).get(number=number))
    file.seek(0)
    return cast(IO[bytes], file)


def import_draft(worker: ImportWork, read: import_sources.FileRead, *, place: int) -> None:
    """Import one chat, or record the reason why it cannot be imported.

    Raises `LeaseLost`, and errors that end the whole import.
    """
    draft, mark = read.draft, read.mark
    if isinstance(draft, NotTaken):
        record_skipped_chat(worker, draft, place=place, mark=mark)
        return
    try:
        with renewed_import_lease(worker.lease, messages=len(draft.nodes)):
            made = chat_writer.store_draft(
                draft,
                owner=worker.row.owner,
                form=read.form,
                counter=worker.counter,
                now=worker.clock(),
                between=PacedRenewal(worker.lease),
                book=lambda made: record_imported_chat(worker, made, place=place, mark=mark),
            )
    except LeaseLost:
        raise
    except Refusal as refusal:
        if worker.row.form in document_parts.OF_ONE_CHAT and worker.row.found == 1:
            raise
        missed = NotTaken(draft.title, refusal.code, refusal.full)
        record_skipped_chat(worker, missed, place=place, mark=mark, in_file=draft.counted)
    except Exception as error:  # noqa: BLE001  # one chat holds up no other
        databases.raise_if_passing(error)
        missed = build_fault(error, title=draft.title, what=f"chat {place} of {worker.row.pk}")
        record_skipped_chat(worker, missed, place=place, mark=mark, in_file=draft.counted)
    else:
        if worker.row.found == 1 and made.added:
            # A single chat is indexed at once; a due job indexes many in steps.
            request_indexing_of_chat(made.chat)


def request_indexing_of_chat(chat: Chat) -> None:
    """Request indexing of an imported chat, unless it has been erased since."""
    found = Branch.objects.select_related("chat").filter(chat=chat.pk, pk=F("chat__active_branch"))
    if (branch := found.first()) is not None:
        index_schedule.request_indexing(branch)


def record_imported_chat(
    worker: ImportWork, made: Imported, *, place: int, mark: tuple[int, int]
) -> None:
    """Record an imported chat, in the transaction that stores it. Raises `LeaseLost`."""
    ImportOutcome.objects.create(
        file=worker.row,
        place=place,
        chat=made.chat,
        messages=made.added,
        was_here=made.was_here,
        in_file=made.counted,
        here=made.here,
        losses=limit_losses(made.losses),
    )
    worker.lease.renew(
        place=place,
        tries=0,
        added=F("added") + int(not made.was_here),
        were_here=F("were_here") + int(made.was_here),
        grown=F("grown") + int(made.was_here and made.added > 0),
        messages=F("messages") + made.added,
        messages_in_file=F("messages_in_file") + made.counted,
        messages_here=F("messages_here") + made.here,
        mark_part=mark[0],
        mark_offset=mark[1],
    )


def record_skipped_chat(
    worker: ImportWork, missed: NotTaken, *, place: int, mark: tuple[int, int], in_file: int = 0
) -> None:
    """Record a chat that could not be imported. Raises `LeaseLost`."""
    with transaction.atomic():
        ImportOutcome.objects.create(
            file=worker.row,
            place=place,
            title=sanitise_text(missed.title)[:200],
            code=missed.code,
            **imports.build_reason_columns(missed.reason),
            in_file=in_file,
        )
        worker.lease.renew(
            place=place,
            tries=0,
            not_taken=F("not_taken") + 1,
            messages_in_file=F("messages_in_file") + in_file,
            mark_part=mark[0],
            mark_offset=mark[1],
        )


def finish_import(worker: ImportWork, *, code: str = "", reason: str | Promise = "") -> None:
    """End the import; with a `code`, as failed. Raises `LeaseLost`."""
    with transaction.atomic():
        worker.lease.renew()
        row = FileImport.objects.get(pk=worker.row.pk)
        state = FileImport.State.FAILED if code else FileImport.State.DONE
        now = worker.clock()
        imports.end_import(row, state=state, actor="system", now=now, code=code, reason=reason)
