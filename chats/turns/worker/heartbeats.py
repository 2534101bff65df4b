"""The heartbeats of a worker: they renew the leases and save the partial texts of all its turns.

One transaction covers all turns. With 20 parallel replies, 20 transactions would cost more than all
other writes of a reply.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from django.conf import settings
from django.db import DatabaseError

from chats.turns import lease as leases
from chats.turns.lease import Heartbeat, Lease, Partial

logger = logging.getLogger(__name__)


class LeasedTurn(Protocol):
    """The interface of a running turn that the heartbeats use."""

    lease: Lease

    def get_unsaved_text(self) -> Partial | None:
        """Return the partial text if it grew since the last call, or None. Mark it as saved."""
        ...

    def on_heartbeat(self, beat: Heartbeat) -> None:
        """Handle the state of the row: continue, stop, or end because the lease is lost."""
        ...


class Host(Protocol):
    """The interface of the worker that the heartbeats use: database functions and the live bus."""

    async def db(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """Run a database function in a thread and return its result."""
        ...

    async def renew_streams(self, turn_ids: Iterable[uuid.UUID]) -> None:
        """Postpone the expiry of the turns' streams on the live bus."""
        ...


def get_turn_id(run: LeasedTurn) -> uuid.UUID:
    """Return the id of a running turn. Rows are locked in the order of these ids."""
    return run.lease.turn_id


class LeaseKeeper:
    """Two timers of a worker: one renews its turns' leases, the other saves their partial texts."""

    def __init__(self, *, worker: Host, runs: Mapping[uuid.UUID, LeasedTurn]) -> None:
        self.worker = worker
        self.runs = runs

    async def keep_leases(self) -> None:
        """Renew leases and streams every `HEARTBEAT_EVERY` seconds, even if no tokens arrive."""
        while True:
            await asyncio.sleep(settings.HEARTBEAT_EVERY)
            runs = sorted(self.runs.values(), key=get_turn_id)
            if runs:
                await self.tell(
                    runs, partial(leases.renew_leases, leases=[run.lease for run in runs])
                )
                # After the leases, which must not wait for the bus.
                await self.worker.renew_streams([run.lease.turn_id for run in runs])

    async def checkpoint(self) -> None:
        """Save partial texts every `CHECKPOINT_EVERY` seconds."""
        while True:
            await asyncio.sleep(settings.CHECKPOINT_EVERY)
            runs = sorted(self.runs.values(), key=get_turn_id)
            texts = [(run, text) for run in runs if (text := run.get_unsaved_text())]
            if texts:
                runs = [run for run, _ in texts]
                await self.tell(
                    runs, partial(leases.save_partial_texts, texts=[text for _, text in texts])
                )

    async def tell(self, runs: list[LeasedTurn], write: Callable[[], list[Heartbeat]]) -> None:
        """Run `write` and pass each turn's state to its attempt.

        A database error is retried at the next heartbeat. Stopping here would leave turns running
        without a lease.
        """
        try:
            beats = await self.worker.db(write)
        except DatabaseError as error:
            logger.warning("heartbeat failed for %d turns: %s", len(runs), type(error).__name__)
            return
        for run, beat in zip(runs, beats, strict=True):
            run.on_heartbeat(beat)
