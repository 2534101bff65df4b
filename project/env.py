"""Reads the environment: typed readers, the data folder, and the keys that live in it.

Every reader names the variable in its refusal, because the person who reads the message is setting
up a server and has twenty variables before them.
"""

import base64
import fcntl
import hashlib
import os
import secrets
import tempfile
import warnings
from pathlib import Path
from urllib.parse import unquote, urlsplit

# The longest path that a unix socket address holds on every platform we run on (macOS: 104).
SOCKET_PATH_LIMIT = 100
# Settings that have another name now, by the new one. The old one works for one release.
RENAMED = {"TURNS_PER_USER": "RUNS_PER_USER", "TURNS_PER_KEY": "RUNS_PER_KEY"}
# Seconds: to wait for a connection of the pool, and for the pool to try one.
POOL_TIMEOUT = 5.0
POOL_RECONNECT = 2.0


class Misconfigured(Exception):
    """A variable of the environment has a value that cannot be used."""


def text(name: str, default: str = "") -> str:
    """Read the variable; `NAME_FILE` may name a file that holds its value (container secrets)."""
    path = os.environ.get(f"{name}_FILE")
    if path:
        return Path(path).read_text(encoding="utf-8").strip()
    if name in RENAMED and name not in os.environ and RENAMED[name] in os.environ:
        warnings.warn(
            f"{RENAMED[name]} is called {name} now. The old name works until the next release.",
            FutureWarning,
            stacklevel=2,
        )
        return os.environ[RENAMED[name]]
    return os.environ.get(name, default)


def flag(name: str, *, default: bool = False) -> bool:
    """Read a yes/no variable: 1, true, yes, on or 0, false, no, off.

    Raises Misconfigured for anything else.
    """
    value = text(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise Misconfigured(f"{name} must be 1 or 0, not {value!r}.")


def positive_int(name: str, default: int) -> int:
    """Read a whole number above zero; raises Misconfigured for anything else."""
    value = text(name)
    if not value:
        return default
    if not value.isascii() or not value.isdigit() or int(value) == 0:
        raise Misconfigured(f"{name} must be a positive whole number, not {value!r}.")
    return int(value)


def share(name: str) -> float | None:
    """Read a percentage of 0 to 100 as a share; None where nothing is set.

    Raises Misconfigured for anything else.
    """
    value = text(name)
    if not value:
        return None
    try:
        percent = float(value)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise Misconfigured(f"{name} must be a percentage of 0 to 100, not {value!r}.")
    return percent / 100


def seconds(name: str, default: float) -> float:
    """Read a duration in seconds above zero; raises Misconfigured for anything else."""
    value = text(name)
    if not value:
        return default
    try:
        duration = float(value)
    except ValueError:
        duration = 0.0
    if not 0 < duration < float("inf"):
        raise Misconfigured(f"{name} must be a number of seconds above 0, not {value!r}.")
    return duration


def host_and_port(url: str) -> str:
    """Return `host:port` of an http(s) address, the port written out.

    Raises Misconfigured for any other address.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if not port or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Misconfigured(f"{url!r} is no http:// or https:// address.")
    return f"{parts.hostname}:{port}"


def https_address(name: str) -> str:
    """Read an https:// address without its last slash; empty where none is set.

    Raises Misconfigured for any other address.
    """
    value = text(name).rstrip("/")
    parts = urlsplit(value)
    if value and (parts.scheme != "https" or not parts.hostname):
        raise Misconfigured(f"{name} must be an https:// address.")
    return value


def items(name: str, default: str = "") -> list[str]:
    """Read a comma-separated list without empty items."""
    return [item.strip() for item in text(name, default).split(",") if item.strip()]


def origins(name: str) -> list[str]:
    """Read a list of origins, such as `https://example.org` or `http://127.0.0.1:3000`.

    Raises Misconfigured for anything else.
    """
    found = items(name)
    for origin in found:
        parts = urlsplit(origin)
        if parts.scheme not in {"http", "https"} or origin != f"{parts.scheme}://{parts.netloc}":
            raise Misconfigured(
                f"{name} needs origins such as https://example.org, without a path. "
                f"{origin!r} is none."
            )
    return found


def history_window() -> int:
    """Read HISTORY_WINDOW, or the older name TG_HISTORY_WINDOW where the new one is absent."""
    if text("HISTORY_WINDOW"):
        return positive_int("HISTORY_WINDOW", 12)
    return positive_int("TG_HISTORY_WINDOW", 12)


def data_folder(default: Path) -> Path:
    """Return the folder of everything that must be backed up, readable by its owner only."""
    folder = Path(text("PALIMPSEST_DATA") or default).expanduser().resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def kept_key(path: Path, *, make: str) -> str:
    """Return the key in a file of the data folder; made on the first start, mode 0600.

    Processes that start at once agree on one key: it is made under a lock, and its file is there
    whole or not at all. A file without a key is one that an interrupted start left behind.
    """
    if key := stored_key(path):
        return key
    with path.with_name("keys.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if key := stored_key(path):
            return key
        key = fernet_key() if make == "fernet" else secrets.token_urlsafe(64)
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    return key


def stored_key(path: Path) -> str:
    """Return the key in a file; empty if there is none."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""


def fernet_key() -> str:
    """Make a key as `Fernet.generate_key` does, without its package: the launcher needs none."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def redis_url(data: Path) -> str:
    """Return `REDIS_URL`, else the socket of the server that `manage.py serve` supervises."""
    return text("REDIS_URL") or f"unix://{embedded_socket(data)}"


def embedded_socket(data: Path) -> Path:
    """Return the path on which the embedded broker listens.

    It is in the data folder if the path fits a socket address.
    """
    path = data / "run" / "broker.sock"
    if len(str(path)) <= SOCKET_PATH_LIMIT:
        return path
    name = hashlib.sha256(str(data).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"palimpsest-{name}" / "broker.sock"


def broker_url(url: str) -> str:
    """Write the address as kombu does for a unix socket."""
    if url.startswith("unix://"):
        return "redis+socket://" + url.removeprefix("unix://")
    return url


def database(data: Path) -> dict[str, object]:
    """Return the database settings for `DATABASE_URL` (postgres://user:password@host:port/name).

    Without it: SQLite in the data folder. IMMEDIATE because a deferred read that becomes a write
    fails at once, whatever the timeout; FULL because a reply that was acknowledged must survive a
    power cut; recursive_triggers so that REPLACE fires the ledger's delete trigger. Raises
    Misconfigured for another database.
    """
    url = text("DATABASE_URL")
    if not url:
        return sqlite_database(data / "palimpsest.sqlite3")
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite_database(Path(unquote(parts.path)))
    if parts.scheme not in {"postgres", "postgresql"}:
        raise Misconfigured(
            "DATABASE_URL must begin with postgres:// or sqlite://; leave it out for SQLite."
        )
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "pool": {
                "min_size": 1,
                "max_size": positive_int("DATABASE_POOL_SIZE", 12),
                # A request learns soon that the database is away. An attempt to connect is given
                # up soon too, so that the next request makes a fresh one: the pool would pause
                # longer and longer between its own, and notice a return minutes late.
                "timeout": POOL_TIMEOUT,
                "reconnect_timeout": POOL_RECONNECT,
            },
            "options": "-c lock_timeout=5s -c idle_in_transaction_session_timeout=30s"
            " -c statement_timeout=30s",
        },
    }


def sqlite_database(path: Path) -> dict[str, object]:
    """Return the settings of SQLite as the embedded default runs it."""
    return {
        "ENGINE": "project.sqlite",
        "NAME": str(path),
        # Named, because pytest-django knows only Django's own engine as one that tests in memory.
        "TEST": {"NAME": ":memory:"},
        # A new connection reads the whole schema again: several milliseconds for each request.
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;"
            "PRAGMA recursive_triggers=ON;PRAGMA mmap_size=134217728;"
            "PRAGMA cache_size=-20000;PRAGMA temp_store=MEMORY;"
            # Whether the bytes of what is deleted stay in the file is otherwise up to the build.
            "PRAGMA secure_delete=ON",
        },
    }
