"""Makes the chats of a file in the background, one after the other, under a lease.

A chat, its outcome and the place of the import are one transaction. A worker that is killed loses
the chat that it was at, and who goes on behind the place doubles nothing. Between two chats, and
between the messages of a long one, a stop is seen.
"""

import logging
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any, cast

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet

from chats.exchange import importing, storing
from chats.exchange.drafts import ImportRefused, NotTaken
from chats.exchange.importing import MOST_CHATS
from chats.exchange.storing import Imported
from chats.ground import databases, leases, queue
from chats.ground.computing import give_way
from chats.ground.leases import LeaseLost
from chats.ground.refusals import Refusal
from chats.memory import archive as index
from chats.models import FileImport, ImportOutcome
from chats.record import imports
from chats.record.messages import UNSTORABLE
from contextpolicy.engine.tokens import TokenCounter

logger = logging.getLogger(__name__)
# Seconds that one task takes.
SECONDS = 20.0
# Between two chats: who waits for SQLite's only writer, or for the lock of background work.
REST = 0.001
# So much of the file is held in memory; the rest lies on the disk while it is read.
IN_MEMORY = 4 * 1024 * 1024
LONGEST_REASON = 1_000
FAULT = "A fault of this server kept it out; its log says more. Tell an operator."
INCOMPLETE = "The file did not arrive completely. Send it again."
LOST = (
    "The import was begun {times} times at the same chat and each time its worker ended. What"
    " stands below is here. Send the file again; if it happens again, tell an operator."
)


@dataclass(frozen=True, slots=True)
class ImportLease:
    """The right to work on an import."""

    import_id: uuid.UUID
    token: uuid.UUID


class PacedRenewal:
    """Renews a lease when it is called, not more often than it has to."""

    def __init__(self, lease: ImportLease) -> None:
        self.lease = lease
        self.at = time.monotonic()

    def __call__(self) -> None:
        """Renew the lease if that is due. Raises `LeaseLost`."""
        if time.monotonic() - self.at > settings.HEARTBEAT_EVERY:
            book(self.lease)
            self.at = time.monotonic()


class Pace:
    """Renews a lease between two pieces of a file, and lets others come to their turn."""

    def __init__(self, lease: ImportLease) -> None:
        self.renew = PacedRenewal(lease)

    def __call__(self) -> None:
        """Rest for a moment. Raises `LeaseLost`."""
        give_way(0)
        self.renew()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportWork:
    """An import under work, with its lease, and what the work needs."""

    row: FileImport
    lease: ImportLease
    counter: TokenCounter
    clock: Callable[[], datetime]
    is_closing: Callable[[], bool]


def go_on(
    *,
    import_id: uuid.UUID,
    counter: TokenCounter,
    clock: Callable[[], datetime],
    is_closing: Callable[[], bool],
) -> None:
    """Make chats of a file for some seconds, and ask for the next task if more is left."""
    lease = claim(import_id, now=clock())
    if lease is None:
        return
    row = FileImport.objects.select_related("owner").get(pk=import_id)
    worker = ImportWork(row=row, lease=lease, counter=counter, clock=clock, is_closing=is_closing)
    with suppress(LeaseLost):
        try:
            work(worker)
        except LeaseLost:
            raise
        except Refusal as refusal:
            finish(worker, code=refusal.code, reason=refusal.sentence)
        except Exception as error:
            if databases.may_pass(error):
                # The database's trouble, not this file's: a later task begins here again.
                raise
            told(error, what=f"import {import_id}")
            finish(worker, code="import_fault", reason=FAULT)


def claim(import_id: uuid.UUID, *, now: datetime) -> ImportLease | None:
    """Take an import that is under way; None if it is over, or somebody works on it.

    One whose workers die again and again fails.
    """
    lease = ImportLease(import_id, uuid.uuid4())
    rows = FileImport.objects.filter(imports.free(), pk=import_id, state__in=imports.OPEN)
    taken = rows.update(
        state=FileImport.State.RUNNING,
        lease_token=lease.token,
        lease_until=leases.until(),
        tries=F("tries") + 1,
    )
    if not taken:
        return None
    with transaction.atomic():
        row = mine(lease).select_for_update().first()
        if row is not None and row.tries > settings.MAX_ATTEMPTS:
            reason = LOST.format(times=settings.MAX_ATTEMPTS)
            failed = FileImport.State.FAILED
            imports.end(
                row, state=failed, actor="system", now=now, code="worker_lost", reason=reason
            )
            return None
    return lease


def mine(lease: ImportLease) -> QuerySet[FileImport]:
    """Return the row that a lease lets one write, if it still does."""
    return FileImport.objects.filter(
        pk=lease.import_id, lease_token=lease.token, state=FileImport.State.RUNNING
    )


def book(lease: ImportLease, **changes: Any) -> None:
    """Write down how far an import has come, and renew its lease. Raises `LeaseLost`."""
    if not mine(lease).update(**changes, lease_until=leases.until()):
        raise LeaseLost(lease.import_id)


def work(worker: ImportWork) -> None:
    """Read the file and make the chats behind the place. Raises `LeaseLost` and `Refusal`."""
    row, lease = worker.row, worker.lease
    with file_of(row) as file, ExitStack() as kept:
        if file.seek(0, 2) != row.size:
            raise ImportRefused("import_incomplete", INCOMPLETE)
        file.seek(0)
        outline = dict(row.outline or {})
        source = importing.read(file, kept=kept, tick=Pace(lease), outline=outline)
        row.form, row.found = source.form, source.total
        book(lease, form=row.form, found=row.found, outline=outline)
        until = time.monotonic() + SECONDS
        mark = (row.mark_part, row.mark_offset)
        for place, read in enumerate(source.behind(row.place, mark), start=row.place + 1):
            if place > MOST_CHATS:
                keep_out(worker, importing.too_many(), place=place, mark=read.mark)
                break
            take(worker, read, place=place, kept_as=source.kept_as)
            give_way(REST)
            is_late = time.monotonic() > until and place < source.total
            if is_late or worker.is_closing():
                book(lease, tries=0)
                mine(lease).update(lease_until=None, lease_token=None)
                queue.enqueue(queue.IMPORT_FILE, import_id=row.pk)
                return
    finish(worker)


def file_of(row: FileImport) -> IO[bytes]:
    """Return the file of an import, put together, at its beginning; whoever reads it closes it."""
    file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  # the reader closes it
    for piece in row.pieces.order_by("number").values_list("data", flat=True).iterator(1):
        file.write(piece)
    file.seek(0)
    return cast(IO[bytes], file)


def take(worker: ImportWork, read: importing.FileRead, *, place: int, kept_as: str) -> None:
    """Make one chat, or note why it is not made. Raises `LeaseLost`, and refusals of one chat."""
    draft, mark = read.draft, read.mark
    if isinstance(draft, NotTaken):
        keep_out(worker, draft, place=place, mark=mark)
        return
    try:
        made = storing.store(
            draft,
            owner=worker.row.owner,
            form=kept_as,
            counter=worker.counter,
            now=worker.clock(),
            between=PacedRenewal(worker.lease),
            book=lambda made: keep(worker, made, place=place, mark=mark),
        )
    except LeaseLost:
        raise
    except Refusal as refusal:
        if worker.row.form in importing.OF_ONE_CHAT:
            raise
        missed = NotTaken(draft.title, refusal.code, refusal.sentence)
        keep_out(worker, missed, place=place, mark=mark, in_file=draft.counted)
    except Exception as error:  # noqa: BLE001  # one chat holds up no other
        databases.raise_if_passing(error)
        told(error, what=f"chat {place} of import {worker.row.pk}")
        missed = NotTaken(draft.title, "import_fault", FAULT)
        keep_out(worker, missed, place=place, mark=mark, in_file=draft.counted)
    else:
        branch = made.chat.active_branch
        if worker.row.found == 1 and made.added and branch is not None:
            # One is searched soon; the sweep finds many, some at a time.
            index.catch_up(branch)


def keep(worker: ImportWork, made: Imported, *, place: int, mark: tuple[int, int]) -> None:
    """Note a chat that is here, in the transaction that made it. Raises `LeaseLost`."""
    ImportOutcome.objects.create(
        file=worker.row,
        place=place,
        chat=made.chat,
        messages=made.added,
        was_here=made.was_here,
        in_file=made.counted,
        here=made.here,
        losses=[storable(loss) for loss in made.losses],
    )
    book(
        worker.lease,
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


def keep_out(
    worker: ImportWork, missed: NotTaken, *, place: int, mark: tuple[int, int], in_file: int = 0
) -> None:
    """Note a chat that could not be taken. Raises `LeaseLost`."""
    with transaction.atomic():
        ImportOutcome.objects.create(
            file=worker.row,
            place=place,
            title=storable(missed.title)[:200],
            code=missed.code,
            reason=storable(missed.reason)[:LONGEST_REASON],
            in_file=in_file,
        )
        book(
            worker.lease,
            place=place,
            tries=0,
            not_taken=F("not_taken") + 1,
            messages_in_file=F("messages_in_file") + in_file,
            mark_part=mark[0],
            mark_offset=mark[1],
        )


def finish(worker: ImportWork, *, code: str = "", reason: str = "") -> None:
    """End the import; with a code it failed. Raises `LeaseLost`."""
    with transaction.atomic():
        book(worker.lease)
        row = FileImport.objects.get(pk=worker.row.pk)
        state = FileImport.State.FAILED if code else FileImport.State.DONE
        now = worker.clock()
        reason = storable(reason)[:LONGEST_REASON]
        imports.end(row, state=state, actor="system", now=now, code=code, reason=reason)


def storable(text: str) -> str:
    """Return a text, which may have words of the file, as every database takes it."""
    return UNSTORABLE.sub("\ufffd", text)


def told(error: Exception, *, what: str) -> None:
    """Tell the log of a fault; never its text: a database puts the row's values into it."""
    logger.error("%s was not taken: %s", what, type(error).__name__)
