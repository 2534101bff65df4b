"""What a worker does beside its streams, for all its turns at once: renew leases, save texts.

One transaction for all of them: with twenty replies at the same time, twenty of their own would
cost more than everything else that is written of a reply.
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
from chats.turns.lease import Beat, Lease, Partial

logger = logging.getLogger(__name__)


class Run(Protocol):
    """What is needed of a running turn."""

    lease: Lease

    def unsaved(self) -> Partial | None:
        """The text so far, when there is more of it than was saved; called once per checkpoint."""
        ...

    def obey(self, beat: Beat) -> None:
        """Hear what the row said: go on, stop, or leave it alone."""
        ...


class Database(Protocol):
    """Runs a function of the database off the loop."""

    async def db(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """The function's result."""
        ...


class Beats:
    """The two timers of a worker."""

    def __init__(self, *, worker: Database, runs: Mapping[uuid.UUID, Run]) -> None:
        self.worker = worker
        self.runs = runs

    async def keep_leases(self) -> None:
        """Renew every lease on its own timer, whether or not tokens arrive."""
        while True:
            await asyncio.sleep(settings.HEARTBEAT_EVERY)
            runs = list(self.runs.values())
            if runs:
                await self.tell(runs, partial(leases.renew, leases=[run.lease for run in runs]))

    async def checkpoint(self) -> None:
        """Save the texts so far, at most once a second."""
        while True:
            await asyncio.sleep(settings.CHECKPOINT_EVERY)
            texts = [(run, text) for run in self.runs.values() if (text := run.unsaved())]
            if texts:
                runs = [run for run, _ in texts]
                await self.tell(runs, partial(leases.save, texts=[text for _, text in texts]))

    async def tell(self, runs: list[Run], write: Callable[[], list[Beat]]) -> None:
        """Write, and let each run hear how it stands.

        A database that stays away is tried again at the next beat: giving up here would leave
        the turns running without a lease.
        """
        try:
            beats = await self.worker.db(write)
        except DatabaseError as error:
            logger.warning("%d turns: no beat: %s", len(runs), type(error).__name__)
            return
        for run, beat in zip(runs, beats, strict=True):
            run.obey(beat)
