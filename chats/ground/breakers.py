"""Pauses the use of a service in this process after several consecutive late responses."""

import time
from collections.abc import Callable

# Late responses in a row that open the breaker, and how long it stays open, in seconds.
MISSES = 3
REST_SECONDS = 60.0


class LatenessBreaker:
    """A circuit breaker that counts consecutive late responses in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.misses = 0
        self.until = 0.0

    def is_open(self) -> bool:
        """Return True if the service must not be called now."""
        return self.clock() < self.until

    def missed(self) -> None:
        self.misses += 1
        if self.misses >= MISSES:
            self.misses, self.until = 0, self.clock() + REST_SECONDS

    def came(self) -> None:
        self.misses = 0
