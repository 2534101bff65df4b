"""Fixed times, and a clock that tests set."""

from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Clock:
    """A clock that tests set."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def wait(self, **duration: float) -> datetime:
        """Advance the clock."""
        self.now += timedelta(**duration)
        return self.now
