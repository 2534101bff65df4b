"""Metrics that processes share through the broker, for `/metrics`.

These are the numbers that the database does not contain. A restart of the broker resets them, as
Prometheus expects of counters.
"""

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from chats.ground.broker_facts import connect_to_broker

COUNTERS = "palimpsest:counters"
STREAMS = "palimpsest:open-streams"
LEASE_LOSSES = "lease_losses"
# Seconds between two reports of a web process, and after which its report is dropped.
EVERY = 10.0
OUTDATED = 45.0


def is_switched_on() -> bool:
    """Return True if the settings allow a client to read the metrics."""
    return bool(settings.METRICS_TOKEN or settings.METRICS_ADDRESSES)


def count_lease_loss() -> None:
    """Count a turn whose worker died, if metrics are enabled. Never raises."""
    if not is_switched_on():
        return
    with suppress(RedisError, OSError), connect_to_broker(settings.REDIS_URL) as client:
        client.hincrby(COUNTERS, LEASE_LOSSES, 1)


def store_open_streams(process: str, count: int) -> None:
    """Store the number of event streams of a web process. Never raises."""
    with suppress(RedisError, OSError), connect_to_broker(settings.REDIS_URL) as client:
        client.hset(STREAMS, process, json.dumps([client.time()[0], count]))


def report_open_streams(count: Callable[[], int], *, until: threading.Event) -> None:
    """Start a thread that stores the number of this process's streams, if metrics are enabled."""
    if not is_switched_on():
        return
    process = f"{socket.gethostname()}:{os.getpid()}"

    def report() -> None:
        while not until.wait(EVERY):
            store_open_streams(process, count())

    threading.Thread(target=report, name="open-streams", daemon=True).start()


def load_lease_losses(client: Redis) -> int:
    """Return the number of counted lease losses. Raises RedisError or OSError."""
    return int(client.hget(COUNTERS, LEASE_LOSSES) or 0)


def load_open_streams(client: Redis) -> dict[str, int]:
    """Return the open streams of each web process; ended processes are deleted.

    Raises RedisError or OSError.
    """
    now = client.time()[0]
    found: dict[str, int] = {}
    for process, text in client.hgetall(STREAMS).items():
        at, count = json.loads(text)
        if now - at > OUTDATED:
            client.hdel(STREAMS, process)
        else:
            found[str(process)] = int(count)
    return found
