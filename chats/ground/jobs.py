"""Leased background jobs: one worker at a time works on a row.

If the worker dies, another one continues. A `Job` describes the rows of a table that
has the columns `lease_token` and `lease_until`. Each claim writes a new random token
(fencing), and each later write of the worker requires it. The writes of a worker that
lost its lease match no row.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Model, Q, QuerySet

from chats.ground import leases, queue
from chats.ground.background_lock import give_way
from chats.ground.leases import LeaseLost

logger = logging.getLogger(__name__)
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Job(Generic[Row]):
    """A kind of leased job.

    `is_open`: the condition for rows with work left. `task`: the name of the task that
    works on a row. `argument`: the task argument that receives the row's key; if it is
    empty, the task finds its row itself. `length`: the length of a lease, if it is not
    `LEASE_SECONDS`.
    """

    model: type[Row]
    task: str = ""
    argument: str = ""
    is_open: Q = field(default_factory=Q)
    length: timedelta | None = None

    @property
    def every_row(self) -> QuerySet[Row]:
        return self.model._default_manager.all()  # noqa: SLF001  # Django's public name

    def select_rows(self) -> QuerySet[Row]:
        return self.every_row.filter(self.is_open)

    def select_free_rows(self) -> QuerySet[Row]:
        """Return the open rows that no live worker holds."""
        return self.select_rows().filter(leases.match_free_leases())

    def claim(self, key: Any, *conditions: Q, **changes: Any) -> "JobLease[Row] | None":
        """Claim a row and change its columns.

        None if the row is not open, another worker holds it, or it does not meet the
        conditions.
        """
        lease = self.create_lease(key)
        rows = self.select_free_rows().filter(*conditions, pk=key)
        return lease if rows.update(**lease.columns, **changes) else None

    def create_lease(self, key: Any) -> "JobLease[Row]":
        """Return a new lease for a row. It takes effect once its columns are stored in the row."""
        return JobLease(self, key, secrets.token_hex(16))

    def get_lease(self, row: Row) -> "JobLease[Row]":
        """Return the lease that a loaded row contains, which may have been lost since."""
        return JobLease(self, row.pk, str(getattr(row, "lease_token")))  # noqa: B009  # of each job

    def enqueue(self, key: Any) -> None:
        """Enqueue the task that works on a row, after the commit."""
        queue.enqueue(self.task, **({self.argument: key} if self.argument else {}))

    def enqueue_rows(self, rows: Iterable[Any]) -> int:
        """Enqueue the tasks of rows, given by their keys. Returns the count."""
        keys = list(rows)
        for key in keys:
            self.enqueue(key)
        return len(keys)

    def enqueue_free_rows(self) -> int:
        """Enqueue the task of each open row that no worker holds. Returns the count."""
        return self.enqueue_rows(self.select_free_rows().values_list("pk", flat=True))

    def expire_leases(self, *, worker: str) -> int:
        """Expire the leases of dead workers whose names begin with `worker`. Returns the count.

        The table must have the column `worker`.
        """
        held = self.every_row.filter(lease_until__isnull=False, worker__startswith=worker)
        return held.update(lease_until=leases.compute_expired_end())

    def get_no_lease(self) -> dict[str, Any]:
        """Return the column values of a row without a lease."""
        token = self.model._meta.get_field("lease_token")  # noqa: SLF001  # Django's public name
        return {"lease_token": None if token.null else "", "lease_until": None}


@dataclass(frozen=True, slots=True)
class JobLease(Generic[Row]):
    """A worker's claim on a row, identified by a fencing token."""

    job: Job[Row]
    key: Any
    token: str

    @property
    def columns(self) -> dict[str, Any]:
        """The columns that store this lease in a row. Its duration starts now."""
        length = self.job.length or leases.get_lease_duration()
        return {"lease_token": self.token, "lease_until": leases.add_to_now(length)}

    def select_row(self) -> QuerySet[Row]:
        """Return the open row while the lease holds, else an empty queryset."""
        return self.job.select_rows().filter(pk=self.key, lease_token=self.token)

    def lock_row(self) -> Row:
        """Return the row, locked for the transaction. Raises `LeaseLost`."""
        row = self.select_row().select_for_update(no_key=True).first()
        if row is None:
            raise LeaseLost(self.key)
        return row

    def renew(self, **changes: Any) -> None:
        """Renew the lease and change columns of the row. Raises `LeaseLost`."""
        if not self.select_row().update(**changes, lease_until=self.columns["lease_until"]):
            raise LeaseLost(self.key)

    def release(self, **changes: Any) -> bool:
        """Release the row, and set the given columns. Returns False if the lease was lost."""
        return bool(self.select_row().update(**changes, **self.job.get_no_lease()))

    def finish(self, **changes: Any) -> None:
        """Release the row, and set the given columns. Raises `LeaseLost`."""
        if not self.release(**changes):
            raise LeaseLost(self.key)

    def hand_on(self, **changes: Any) -> None:
        """Release the row and enqueue the next task for it.

        Does nothing if the lease was lost.
        """
        if self.release(**changes):
            self.job.enqueue(self.key)

    def run_steps(
        self,
        steps: Iterable[None],
        *,
        seconds: float,
        is_closing: Callable[[], bool],
        pause: float = 0.0,
    ) -> bool:
        """Run steps for a few seconds, with a pause after each. Return True if all were run.

        Returns False if time ran out or the worker stops, in which case a later task continues, or
        if the lease was lost.
        """
        until = time.monotonic() + seconds
        try:
            for _ in steps:
                if is_closing() or time.monotonic() > until:
                    self.hand_on()
                    return False
                give_way(pause)
        except LeaseLost:
            return False
        return True


class PacedRenewal:
    """Renews a lease on call, at most once per `HEARTBEAT_EVERY`."""

    def __init__(self, lease: JobLease[Any]) -> None:
        self.lease = lease
        self.at = time.monotonic()

    def __call__(self) -> None:
        """Renew the lease if due. Raises `LeaseLost`."""
        if time.monotonic() - self.at > settings.HEARTBEAT_EVERY:
            self.lease.renew()
            self.at = time.monotonic()


@contextmanager
def renewed_by_thread(lease: JobLease[Any], *, seconds: float) -> Iterator[None]:
    """Renew a lease from a thread while the block runs, for at most `seconds`.

    Use it for steps that cannot renew the lease themselves. The thread ends with its process, so
    the lease of a killed worker expires as usual.
    """
    ended = threading.Event()
    thread = threading.Thread(target=renew_until, args=(lease, ended, seconds), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def renew_until(lease: JobLease[Any], ended: threading.Event, seconds: float) -> None:
    """Renew a lease on this thread's own connection until the event is set.

    Ends earlier if the lease is lost, or after `seconds`.
    """
    until = time.monotonic() + seconds
    try:
        while not ended.wait(settings.HEARTBEAT_EVERY) and time.monotonic() < until:
            try:
                lease.renew()
            except DatabaseError as error:
                logger.warning("lease of %s not renewed: %s", lease.key, type(error).__name__)
            except LeaseLost:
                # The step notices the loss at its next write.
                return
    finally:
        connection.close()
