"""The address of Redis: `REDIS_URL`, or the socket of the embedded broker."""

import hashlib
import tempfile
from pathlib import Path

from project.env import Misconfigured, parse_url, read_string

# The longest unix socket path that all supported platforms allow (macOS: 104).
SOCKET_PATH_LIMIT = 100
REDIS_URL_FORM = (
    "REDIS_URL must look like redis://host:6379/0, rediss://host:6379/0 or"
    " unix:///path/to/redis.sock."
)


def resolve_redis_url(data: Path) -> str:
    """Return `REDIS_URL`, else the socket of the server that `manage.py serve` supervises.

    Raises Misconfigured for another scheme. The message does not contain the URL, because the URL
    may contain a password.
    """
    url = read_string("REDIS_URL").strip()
    if not url:
        return f"unix://{resolve_broker_socket(data)}"
    parts = parse_url(url)
    if parts is None or parts.scheme not in {"redis", "rediss", "unix"}:
        raise Misconfigured(REDIS_URL_FORM)
    return url


def resolve_broker_socket(data: Path) -> Path:
    """Return the socket path of the embedded broker.

    It is in the data folder if the path is short enough for a socket.
    """
    path = data / "run" / "broker.sock"
    if len(str(path)) <= SOCKET_PATH_LIMIT:
        return path
    name = hashlib.sha256(str(data).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"palimpsest-{name}" / "broker.sock"


def format_broker_url(url: str) -> str:
    """Return the URL in kombu's notation for a unix socket."""
    if url.startswith("unix://"):
        return "redis+socket://" + url.removeprefix("unix://")
    return url
