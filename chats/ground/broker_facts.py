"""Reads the broker's eviction policy and persistence settings.

Managed servers often refuse CONFIG. INFO has the same information, except for planned snapshots.
"""

from redis import Redis
from redis.exceptions import ResponseError

DISK = (
    "The broker writes to disk, so erased replies can remain in its files. On the Redis server set"
    ' appendonly no and save "", then delete its old files.'
)


def read_eviction_policy(url: str) -> str:
    """Return the broker's `maxmemory-policy`. Empty if it is unknown.

    Raises RedisError or OSError if the broker does not answer.
    """
    with connect_to_broker(url) as client:
        client.ping()
        return _setting(client, "maxmemory-policy", info=("memory", "maxmemory_policy"))


def has_disk_persistence(url: str) -> bool:
    """Return True if the broker is known to write an append-only file or snapshots.

    Raises RedisError or OSError if the broker does not answer.
    """
    with connect_to_broker(url) as client:
        if _setting(client, "appendonly", info=("persistence", "aof_enabled")) in {"yes", "1"}:
            return True
        # If CONFIG is refused, this is the number of snapshots since the server's start.
        snapshots = _setting(client, "save", info=("persistence", "rdb_saves"))
        return snapshots not in {"", "0"}


def connect_to_broker(url: str) -> Redis:
    """Return a client with timeouts of two seconds."""
    return Redis.from_url(url, decode_responses=True, socket_connect_timeout=2, socket_timeout=2)


def _setting(client: Redis, name: str, *, info: tuple[str, str]) -> str:
    """Return a setting of the broker, or a field of INFO if CONFIG is refused.

    Empty if both are refused.
    """
    section, field = info
    try:
        return str(client.config_get(name).get(name, ""))
    except ResponseError:
        pass
    try:
        return str(client.info(section).get(field, ""))
    except ResponseError:
        return ""
