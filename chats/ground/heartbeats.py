"""Heartbeats of the workers and the schedule, stored in the broker.

Not in the database: a write every ten seconds per worker would occupy SQLite's writer.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from chats.ground import broker_facts, queues

logger = logging.getLogger(__name__)
KEY = "palimpsest:heartbeats"
SCHEDULE = "schedule"
# The last sweep, by the schedule or a worker.
SWEEP = "sweep"
TURN = "palimpsest:sweeping"
EVERY = 10.0
# Age in seconds after which a heartbeat is late, and after which it is deleted.
LATE = 45.0
FORGOTTEN = 900.0


@dataclass(frozen=True, slots=True)
class HeartbeatAge:
    """The last heartbeat of a process: its age in seconds, and the queues that it consumes."""

    name: str
    age: float
    queues: Sequence[str] = ()


def store_heartbeat(name: str, *, taken: Sequence[str] = ()) -> None:
    """Store a heartbeat in the broker until it expires. Raises RedisError or OSError."""
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
            if now - at > FORGOTTEN and name not in {SCHEDULE, SWEEP}:
                client.hdel(KEY, name)
                continue
            found.append(HeartbeatAge(name, max(now - at, 0.0), taken))
    return sorted(found, key=lambda one: one.name)


def describe_late_processes(found: Sequence[HeartbeatAge]) -> list[str]:
    """Return a sentence for each late process: the schedule, a worker, or all reply workers."""
    ages = {one.name: one.age for one in found}
    said = []
    if ages.get(SCHEDULE, LATE) >= schedule_limit():
        since = f"for {ages[SCHEDULE]:.0f} s" if SCHEDULE in ages else "since the start"
        said.append(f"schedule: no heartbeat {since}; workers run the sweep instead")
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
    return [one for one in found if one.name not in {SCHEDULE, SWEEP}]


def schedule_limit() -> float:
    """Return the age, in seconds, from which the schedule's heartbeat counts as late."""
    return max(3 * float(settings.SWEEP_EVERY), LATE)


def note_schedule() -> None:
    """Record a sweep of the schedule, in the broker, and in a file for health checks."""
    with suppress(OSError):
        Path(settings.SCHEDULE_FILE).touch()
    with suppress(RedisError, OSError):
        store_heartbeat(SCHEDULE)


def note_sweep() -> None:
    """Record in the broker when a sweep last ran, so that workers notice a dead schedule."""
    with suppress(RedisError, OSError):
        store_heartbeat(SWEEP)


class WorkerHeartbeat:
    """A worker's heartbeat thread, which also sweeps if the last sweep is overdue."""

    def __init__(self, name: str, *, taken: Sequence[str], sweep: Callable[[], None]) -> None:
        """Prepare the thread. `sweep` runs the schedule's sweep."""
        self.name = name
        self.taken = taken
        self.sweep = sweep
        self.begun = time.monotonic()
        self.ending = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self.run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        self.ending.set()
        delete_heartbeat(self.name)

    def run(self) -> None:
        """Send heartbeats periodically. Sweeps if the schedule is dead."""
        while not self.ending.is_set():
            try:
                self.beat()
            except (RedisError, OSError) as error:
                logger.info("heartbeat not sent: %s", type(error).__name__)
            except Exception:
                logger.exception("a sweep by this worker failed")
            self.ending.wait(EVERY)

    def beat(self) -> None:
        """Send one heartbeat, and sweep if it is due. Raises RedisError or OSError."""
        store_heartbeat(self.name, taken=self.taken)
        since = [one.age for one in list_heartbeats() if one.name == SWEEP]
        waited = min([*since, time.monotonic() - self.begun])
        if waited >= schedule_limit() and self.is_first():
            self.sweep()
            note_sweep()

    def is_first(self) -> bool:
        """Return True if no other worker is sweeping."""
        with broker_facts.connect_to_broker(settings.REDIS_URL) as client:
            return bool(client.set(TURN, self.name, nx=True, ex=int(LATE)))


def _clock(client: Redis) -> float:
    """Return the broker's time, so that the hosts' clocks need not agree."""
    seconds, micros = client.time()
    return float(seconds) + float(micros) / 1e6
