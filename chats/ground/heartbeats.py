"""Heartbeats of the workers and the schedule, stored in the broker.

They are not stored in the database, because a write every ten seconds per worker would
occupy SQLite's writer.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from chats.ground import broker_facts, queues, schedule

logger = logging.getLogger(__name__)
KEY = "palimpsest:heartbeats"
SCHEDULE = "schedule"
# The heartbeat of earlier versions, whose schedule had one entry.
OLD_SWEEP = "sweep"
# The key of the times at which the entries of the schedule last ran, by the broker's clock.
RUNS = "palimpsest:schedule"
TURN = "palimpsest:sweeping"
EVERY = 10.0
# Age in seconds after which a heartbeat is late, and after which it is deleted.
LATE = 45.0
LATE_SCHEDULE = 30.0
FORGOTTEN = 900.0
# The entries that this process ran since its last heartbeat, with `time.monotonic()`.
_ran: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class HeartbeatAge:
    """The last heartbeat of a process: its age in seconds, and the queues that it consumes."""

    name: str
    age: float
    queues: Sequence[str] = ()


def store_heartbeat(name: str, *, taken: Sequence[str] = ()) -> None:
    """Store a heartbeat and its time in the broker. Raises RedisError or OSError."""
    with broker_facts.connect_to_broker(settings.REDIS_URL) as client:
        client.hset(KEY, name, json.dumps([_clock(client), list(taken)]))


def delete_heartbeat(name: str) -> None:
    """Delete the heartbeat of a process that shuts down cleanly."""
    with (
        suppress(RedisError, OSError),
        broker_facts.connect_to_broker(settings.REDIS_URL) as client,
    ):
        client.hdel(KEY, name)


def list_heartbeats() -> list[HeartbeatAge]:
    """Return all heartbeats, and delete outdated ones. Raises RedisError or OSError."""
    with broker_facts.connect_to_broker(settings.REDIS_URL) as client:
        now = _clock(client)
        found: list[HeartbeatAge] = []
        for name, told in client.hgetall(KEY).items():
            at, taken = json.loads(told)
            if name == OLD_SWEEP or (now - at > FORGOTTEN and name != SCHEDULE):
                client.hdel(KEY, name)
                continue
            found.append(HeartbeatAge(name, max(now - at, 0.0), taken))
    return sorted(found, key=lambda one: one.name)


def describe_late_processes(found: Sequence[HeartbeatAge]) -> list[str]:
    """Return a sentence for each late process: the schedule, a worker, or all reply workers."""
    ages = {one.name: one.age for one in found}
    said = []
    if ages.get(SCHEDULE, math.inf) >= schedule_limit():
        since = f"for {ages[SCHEDULE]:.0f} s" if SCHEDULE in ages else "since the start"
        said.append(f"schedule: no heartbeat {since}; workers run its jobs instead")
    workers = select_workers(found)
    if not any(queues.REPLIES in one.queues and one.age < LATE for one in workers):
        said.append("workers: no reply worker is alive, so replies wait")
    said += [
        f"workers: {one.name} has no heartbeat for {one.age:.0f} s"
        for one in workers
        if one.age >= LATE
    ]
    return said


def select_workers(found: Sequence[HeartbeatAge]) -> list[HeartbeatAge]:
    return [one for one in found if one.name != SCHEDULE]


def schedule_limit() -> float:
    """Return the age in seconds at which the schedule's heartbeat counts as late."""
    return max(3 * float(settings.SWEEP_EVERY), LATE_SCHEDULE)


def note_schedule() -> None:
    """Record that the schedule is alive, in the broker, and in a file for health checks."""
    with suppress(OSError):
        Path(settings.SCHEDULE_FILE).touch()
    with suppress(RedisError, OSError):
        store_heartbeat(SCHEDULE)


def note_run(entry: str) -> None:
    """Record that this process ran an entry of the schedule.

    The next heartbeat stores the time in the broker.
    """
    _ran[entry] = time.monotonic()


class WorkerHeartbeat:
    """A worker's heartbeat thread, which also runs overdue entries of the schedule."""

    def __init__(self, name: str, *, taken: Sequence[str], run: Callable[[str], None]) -> None:
        """Prepare the thread. `run` runs a schedule entry by its name."""
        self.name = name
        self.taken = taken
        self.run_entry = run
        self.begun = time.monotonic()
        self.ending = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self.run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        self.ending.set()
        delete_heartbeat(self.name)

    def run(self) -> None:
        """Send heartbeats periodically, and run overdue entries."""
        while not self.ending.is_set():
            try:
                self.beat()
            except (RedisError, OSError) as error:
                logger.info("heartbeat not sent: %s", type(error).__name__)
            except Exception:
                logger.exception("an entry of the schedule failed in this worker")
            self.ending.wait(EVERY)

    def beat(self) -> None:
        """Send one heartbeat, and run the overdue entries. Raises RedisError or OSError."""
        with broker_facts.connect_to_broker(settings.REDIS_URL) as client:
            now = _clock(client)
            client.hset(KEY, self.name, json.dumps([now, list(self.taken)]))
            store_runs(client, now=now)
            overdue = self.list_overdue_entries(client, now=now)
            # Only one worker runs the overdue entries.
            if not overdue or not client.set(TURN, self.name, nx=True, ex=int(EVERY)):
                return
            for entry in overdue:
                self.run_entry(entry)
            store_runs(client, now=_clock(client))

    def list_overdue_entries(self, client: Redis, *, now: float) -> list[str]:
        """Return the overdue entries of the schedule.

        If the schedule is late, an entry is overdue after one period. Otherwise it is overdue
        after three periods, because then the workers that should run it are dead or busy.
        """
        alive = time.monotonic() - self.begun
        heard, runs = client.hget(KEY, SCHEDULE), client.hgetall(RUNS)
        silence = min(now - json.loads(heard)[0], alive) if heard else alive
        is_late = silence >= schedule_limit()
        return [
            entry
            for entry, periods in schedule.PERIODS.items()
            if min(now - float(runs.get(entry, 0)), alive)
            >= settings.SWEEP_EVERY * periods * (1 if is_late else 3)
        ]


def store_runs(client: Redis, *, now: float) -> None:
    """Store when this process last ran schedule entries. Raises RedisError or OSError."""
    ran: dict[Any, Any] = {
        entry: now - (time.monotonic() - _ran.pop(entry)) for entry in list(_ran)
    }
    if ran:
        client.hset(RUNS, mapping=ran)


def _clock(client: Redis) -> float:
    """Return the broker's time, so that the hosts' clocks need not agree."""
    seconds, micros = client.time()
    return float(seconds) + float(micros) / 1e6
