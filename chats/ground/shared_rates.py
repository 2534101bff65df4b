"""Counts request rates across all web processes, in their shared broker.

Each request costs one round trip. If the broker is unavailable, full or slow, no request is refused
or delayed: each process counts separately, and retries the broker after ten seconds.
"""

from dataclasses import dataclass
from functools import cache

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.exceptions import RedisError
from redis.retry import Retry

AWAY_SECONDS = 10.0
# Uses the broker's clock, so that the hosts' clocks need not agree. KEYS: the bucket. ARGV: its
# capacity, which is also the number of tokens it regains per minute.
TAKE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local limit = tonumber(ARGV[1])
local held = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = math.min(tonumber(held[1]) or limit, limit)
local passed = math.max(0, now - (tonumber(held[2]) or now))
level = math.min(limit, level + passed * limit / 60)
local allowed = level >= 1
if allowed then level = level - 1 end
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], 61)
return {allowed and 1 or 0, string.format('%.6f', level)}
"""


@dataclass(slots=True)
class SharedBuckets:
    """Buckets that all processes share, as long as the broker answers."""

    away_until: float = 0.0

    def take(self, bucket: str, *, limit: int, now: float) -> tuple[bool, float] | None:
        """Count one request. Returns True if it is allowed, and the remaining tokens.

        None if no broker is shared or it does not answer. `now` is in monotonic seconds.
        """
        if not settings.RATES_URL or now < self.away_until:
            return None
        try:
            allowed, left = get_rate_script(settings.RATES_URL)(
                keys=[f"rate:{bucket}"], args=[limit]
            )
        except RedisError:
            self.away_until = now + AWAY_SECONDS
            return None
        return bool(allowed), float(left)


@cache
def get_rate_script(url: str) -> Script:
    """Return the Lua script that counts a request in the broker.

    The script is sent once, then called by its hash.
    """
    client = Redis.from_url(
        url,
        socket_connect_timeout=0.25,
        socket_timeout=0.25,
        retry=Retry(NoBackoff(), 0),
    )
    return client.register_script(TAKE)


SHARED = SharedBuckets()
