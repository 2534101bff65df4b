"""The heartbeats of a worker, for all its turns at once: renews leases, saves texts.

They are one transaction for all turns: with twenty replies at the same time, twenty transactions
would cost more than everything else that is written of a reply.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from django.conf import settings
from django.db import DatabaseError

from chats.turns import lease as leases
from chats.turns.lease import Heartbeat, Lease, Partial

logger = logging.getLogger(__name__)


class LeasedTurn(Protocol):
    """The part of a running turn that heartbeats need."""

    lease: Lease

    def unsaved(self) -> Partial | None:
        """Return the text so far, if it grew since it was saved; called once per checkpoint."""
        ...

    def obey(self, beat: Heartbeat) -> None:
        """Heed the state of the row: continue, stop, or leave it alone."""
        ...


class Database(Protocol):
    """A runner for functions of the database, off the loop."""

    async def db(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """Return the function's result."""
        ...


def place(run: LeasedTurn) -> uuid.UUID:
    """Return the turn's id: whoever writes to several turns locks them in this order."""
    return run.lease.turn_id


class LeaseKeeper:
    """The two timers of a worker."""

    def __init__(self, *, worker: Database, runs: Mapping[uuid.UUID, LeasedTurn]) -> None:
        self.worker = worker
        self.runs = runs

    async def keep_leases(self) -> None:
        """Renew every lease on its own timer, whether or not tokens arrive."""
        while True:
            await asyncio.sleep(settings.HEARTBEAT_EVERY)
            runs = sorted(self.runs.values(), key=place)
            if runs:
                await self.tell(runs, partial(leases.renew, leases=[run.lease for run in runs]))

    async def checkpoint(self) -> None:
        """Save the texts so far, at most once a second."""
        while True:
            await asyncio.sleep(settings.CHECKPOINT_EVERY)
            runs = sorted(self.runs.values(), key=place)
            texts = [(run, text) for run in runs if (text := run.unsaved())]
            if texts:
                runs = [run for run, _ in texts]
                await self.tell(runs, partial(leases.save, texts=[text for _, text in texts]))

    async def tell(self, runs: list[LeasedTurn], write: Callable[[], list[Heartbeat]]) -> None:
        """Write, and tell each attempt the state of its turn.

        A database that cannot be reached is tried again at the next heartbeat: giving up here would
        leave the turns running without a lease.
        """
        try:
            beats = await self.worker.db(write)
        except DatabaseError as error:
            logger.warning("%d turns: no beat: %s", len(runs), type(error).__name__)
            return
        for run, beat in zip(runs, beats, strict=True):
            run.obey(beat)
