"""Limits the rate of requests with a token bucket per person or key.

Web processes that share a broker keep the buckets there (`ground.shared_rates`). Otherwise, and
while the broker does not answer, each process counts in memory, because the API must work without
the broker. The database is not used, because each request would cost a write. Exact limits
(parallel replies, quotas) are in `turns.start`.
"""

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass

from django.conf import settings
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.ground.shared_rates import SHARED

# Beyond this number of clients, the one idle the longest starts again with a full bucket.
CLIENTS = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """The state of a bucket.

    `remaining`: number of requests left. `reset`: seconds until the bucket is full again.
    """

    limit: int
    remaining: int
    reset: int


class RateLimited(Refusal):
    """Too many requests within a minute. `Retry-After` gives the number of seconds to wait."""

    code = "rate_limit_exceeded"
    status = 429
    sentence = gettext_noop("More than {limit} requests in a minute. Try again in {seconds} s.")

    def __init__(self, rate: Rate, *, seconds: int) -> None:
        super().__init__(limit=rate.limit, seconds=seconds, retry_after=seconds)
        self.rate = rate


class Buckets:
    """One bucket per client. A bucket starts full and refills evenly within 60 seconds."""

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self.levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.lock = threading.Lock()

    def take(self, client: str, *, now: float) -> Rate:
        """Count one request. `now` is in monotonic seconds. Raises `RateLimited`."""
        limit: int = getattr(settings, self.setting)
        per_second = limit / 60
        bucket = f"{self.setting}:{client}"
        allowed, left = SHARED.take(bucket, limit=limit, now=now) or self.own(
            client, limit=limit, now=now
        )
        rate = Rate(limit=limit, remaining=int(left), reset=math.ceil((limit - left) / per_second))
        if not allowed:
            raise RateLimited(rate, seconds=max(1, math.ceil((1 - left) / per_second)))
        return rate

    def own(self, client: str, *, limit: int, now: float) -> tuple[bool, float]:
        """Count one request in this process.

        Returns True if it is allowed, and the remaining tokens.
        """
        with self.lock:
            level, at = self.levels.pop(client, (float(limit), now))
            level = min(float(limit), level + (now - at) * limit / 60)
            allowed = level >= 1
            left = level - 1 if allowed else level
            self.levels[client] = (left, now)
            if len(self.levels) > CLIENTS:
                self.levels.popitem(last=False)
        return allowed, left

    def clear(self) -> None:
        """Refill all buckets of this process. Used by tests."""
        with self.lock:
            self.levels.clear()


REQUESTS = Buckets("API_REQUESTS_PER_MINUTE")
MESSAGES = Buckets("MESSAGES_PER_MINUTE")
WARM_UPS = Buckets("WARM_UPS_PER_MINUTE")
METER_UPDATES = Buckets("METER_UPDATES_PER_MINUTE")
GATEWAY = Buckets("GATEWAY_REQUESTS_PER_MINUTE")
