"""Stops asking for a while what came too late several times in a row, in this process."""

import time
from collections.abc import Callable

# So many misses in a row, and for so many seconds nobody asks.
MISSES = 3
REST_SECONDS = 60.0


class LatenessBreaker:
    """Counts what came too late, in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.misses = 0
        self.until = 0.0

    def is_open(self) -> bool:
        """Tell whether nothing is asked now."""
        return self.clock() < self.until

    def missed(self) -> None:
        """Count what came too late."""
        self.misses += 1
        if self.misses >= MISSES:
            self.misses, self.until = 0, self.clock() + REST_SECONDS

    def came(self) -> None:
        """Note that an answer came in time."""
        self.misses = 0
