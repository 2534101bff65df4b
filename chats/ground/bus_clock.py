"""The clock of the live bus, from which the ids of its entries are derived.

Pages and change notices are compared by its time, so the clocks of the hosts need not agree.
"""

import time
from dataclasses import dataclass
from functools import cache

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

# Seconds between two readings of the bus's clock, and after one that failed. In between, the
# monotonic clock of this host continues it.
MEASURE_EVERY, AWAY_SECONDS = 30.0, 10.0
# Longest wait for the bus, in seconds.
WAIT_SECONDS = 0.25


@dataclass(slots=True)
class BusClock:
    """The clock of the bus as last read by this process."""

    # What to add to this host's monotonic milliseconds. None: the clock was not read yet.
    ahead_ms: float | None = None
    measure_at: float = 0.0

    def read_time_ms(self) -> int:
        """Return the Unix time of the bus in milliseconds, never later than its clock.

        Before the first reading, this host's clock is used. Never raises, and waits for the bus
        only if the last reading is old.
        """
        now = time.monotonic()
        if now >= self.measure_at:
            self.measure()
        if self.ahead_ms is None:
            return int(1000 * time.time())
        return int(1000 * time.monotonic() + self.ahead_ms)

    def measure(self) -> None:
        """Read the clock of the bus. If the bus does not answer, the last reading is kept."""
        # Other threads do not wait for this reading.
        self.measure_at = time.monotonic() + AWAY_SECONDS
        try:
            seconds, microseconds = get_clock_client(settings.REDIS_URL).time()
        except (RedisError, OSError):
            return
        # The bus answered before now, so its time is not overestimated.
        now = time.monotonic()
        self.ahead_ms = 1000 * seconds + microseconds / 1000 - 1000 * now
        self.measure_at = now + MEASURE_EVERY


@cache
def get_clock_client(url: str) -> Redis:
    """Return a client with short timeouts, because pages wait for it."""
    return Redis.from_url(
        url,
        socket_connect_timeout=WAIT_SECONDS,
        socket_timeout=WAIT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


CLOCK = BusClock()


def parse_entry_time_ms(entry_id: str) -> int:
    """Return the time of an entry of the bus, which is the first part of its id."""
    return int(entry_id.partition("-")[0])
