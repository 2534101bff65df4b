"""Reads the environment: typed readers, the data folder, and the keys stored in it.

Every error message names the variable, because the person who sets up a server has many of them.
"""

import base64
import errno
import fcntl
import hashlib
import ipaddress
import os
import re
import secrets
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from project import trouble

# The longest unix socket path that all supported platforms allow (macOS: 104).
SOCKET_PATH_LIMIT = 100
# Renamed settings, by new name. The old name works for one release.
RENAMED = {"TURNS_PER_USER": "RUNS_PER_USER", "TURNS_PER_KEY": "RUNS_PER_KEY"}
# Seconds to wait for a connection of the pool, and for the pool's connection attempt.
REDIS_URL_FORM = (
    "REDIS_URL must look like redis://host:6379/0, rediss://host:6379/0 or"
    " unix:///path/to/redis.sock."
)
POOL_TIMEOUT = 5.0
POOL_RECONNECT = 2.0
LAST_PORT = 65_535
MOST_PROXIES = 20
# Each connection sets these when it starts.
TIMEOUTS = "-c lock_timeout=5s -c idle_in_transaction_session_timeout=30s -c statement_timeout=30s"
HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?")
# The part of a PostgreSQL URL after user and password.
SERVER = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%25[\w.-]+)?\]|(?:[\w.,-]|%[0-9A-Fa-f]{2})*)(?::(?P<port>\d{1,6}))?"
    r"(?:/(?P<name>[^/?#@]*))?(?:\?(?P<options>.*))?",
    re.DOTALL,
)
# The options of libpq 18, without user, password, host and database, which are in the URL itself.
LIBPQ_OPTIONS = frozenset(
    {
        "application_name",
        "channel_binding",
        "client_encoding",
        "connect_timeout",
        "fallback_application_name",
        "gssdelegation",
        "gssencmode",
        "gsslib",
        "hostaddr",
        "host",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "krbsrvname",
        "load_balance_hosts",
        "max_protocol_version",
        "min_protocol_version",
        "options",
        "passfile",
        "require_auth",
        "requirepeer",
        "scram_client_key",
        "scram_server_key",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "sslcert",
        "sslcertmode",
        "sslcompression",
        "sslcrl",
        "sslcrldir",
        "sslkey",
        "sslkeylogfile",
        "sslmode",
        "sslnegotiation",
        "sslpassword",
        "sslrootcert",
        "sslsni",
        "target_session_attrs",
        "tcp_user_timeout",
    }
)


# Options of libpq that are parts of the URL itself.
OF_ADDRESS = frozenset({"dbname", "password", "port", "user"})


class Misconfigured(Exception):
    """An environment variable has an unusable value."""


def read_string(name: str, default: str = "") -> str:
    """Read the variable; `NAME_FILE` may name a file that holds its value (container secrets).

    Raises Misconfigured if that file cannot be read.
    """
    path = os.environ.get(f"{name}_FILE")
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text"
            raise Misconfigured(
                f"{name}_FILE names a file that cannot be read: {reason}."
            ) from error
    if name in RENAMED and name not in os.environ and RENAMED[name] in os.environ:
        warnings.warn(
            f"{RENAMED[name]} was renamed to {name}. The old name works until the next release.",
            FutureWarning,
            stacklevel=2,
        )
        return os.environ[RENAMED[name]]
    return os.environ.get(name, default)


def read_bool(name: str, *, default: bool = False) -> bool:
    """Read a yes/no variable: 1, true, yes, on or 0, false, no, off.

    Raises Misconfigured for anything else.
    """
    value = read_string(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise Misconfigured(f"{name} must be 1 or 0, not {value!r}.")


def read_positive_int(name: str, default: int) -> int:
    """Read an integer above zero; raises Misconfigured for any other value."""
    value = read_string(name)
    if not value:
        return default
    if not value.isascii() or not value.isdigit() or int(value) == 0:
        raise Misconfigured(f"{name} must be a positive whole number, not {value!r}.")
    return int(value)


def read_percentage(name: str) -> float | None:
    """Read a percentage of 0 to 100 as a share; None if it is not set.

    Raises Misconfigured for any other value.
    """
    value = read_string(name)
    if not value:
        return None
    try:
        percent = float(value)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise Misconfigured(f"{name} must be a percentage of 0 to 100, not {value!r}.")
    return percent / 100


def read_seconds(name: str, default: float) -> float:
    """Read a duration in seconds above zero; raises Misconfigured for any other value."""
    value = read_string(name)
    if not value:
        return default
    try:
        duration = float(value)
    except ValueError:
        duration = 0.0
    if not 0 < duration < float("inf"):
        raise Misconfigured(f"{name} must be a number of seconds above 0, not {value!r}.")
    return duration


def extract_host_port(url: str) -> str:
    """Return `host:port` of an http(s) URL, always with the port.

    Raises Misconfigured for any other URL.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if not port or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Misconfigured(f"{url!r} is not an http:// or https:// address.")
    return f"{parts.hostname}:{port}"


def read_https_url(name: str) -> str:
    """Read an https:// URL without its trailing slash; empty if it is not set.

    Raises Misconfigured for any other URL.
    """
    value = read_string(name).rstrip("/")
    parts = urlsplit(value)
    if value and (parts.scheme != "https" or not parts.hostname):
        raise Misconfigured(f"{name} must be an https:// address.")
    return value


def read_public_url(name: str) -> str:
    """Read the https:// URL of this instance: a scheme, a host and optionally a port.

    Raises Misconfigured for any other URL, including one with a path: cookies, links and the
    content security policy apply to a whole host.
    """
    value = read_string(name).strip().rstrip("/")
    if not value:
        return ""
    parts = parse_url(value)
    if parts is None or parts.scheme != "https" or not parts.hostname:
        raise Misconfigured(f"{name} must be an https:// address.")
    if parts.path or "?" in value or "#" in value or parts.username is not None:
        raise Misconfigured(
            f"{name} must be only a host, such as https://chat.example.org. A path, a query "
            "or a user is not supported: give Palimpsest its own host name."
        )
    origin = format_origin(parts)
    if not origin:
        raise Misconfigured(f"{name}: {parts.netloc!r} is not a host name.")
    return origin


def parse_url(value: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is malformed or its port is not 1 to 65535."""
    try:
        parts = urlsplit(value)
        return None if parts.port == 0 else parts
    except ValueError:
        return None


def format_origin(parts: SplitResult) -> str:
    """Return an origin as browsers send it: lower case, ASCII, without the usual port.

    Empty if it has no host name or address.
    """
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    else:
        with suppress(UnicodeError):
            host = host.encode("idna").decode("ascii")
        if not HOST.fullmatch(host):
            return ""
    usual = {"https": 443, "http": 80}.get(parts.scheme)
    port = "" if parts.port in {None, usual} else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def read_proxy_count(name: str) -> int:
    """Read the number of proxies in front, each of which appends to X-Forwarded-For.

    "off" and 0 mean none, "on" means one. Raises Misconfigured for any other value.
    """
    value = read_string(name)
    if value.isascii() and value.isdigit() and int(value) <= MOST_PROXIES:
        return int(value)
    try:
        return int(read_bool(name))
    except Misconfigured:
        raise Misconfigured(
            f"{name} must be the number of proxies in front, 0 to {MOST_PROXIES}, not {value!r}."
        ) from None


def read_list(name: str, default: str = "") -> list[str]:
    """Read a comma-separated list without empty items."""
    return [item.strip() for item in read_string(name, default).split(",") if item.strip()]


def read_networks(name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Read a list of IP addresses and networks, such as `10.0.0.0/8`.

    Raises Misconfigured for any other value.
    """
    try:
        return [ipaddress.ip_network(item) for item in read_list(name)]
    except ValueError as error:
        raise Misconfigured(
            f"{name} needs addresses or networks such as 10.0.0.0/8: {error}."
        ) from None


def read_origins(name: str) -> list[str]:
    """Read a list of origins, such as `https://example.org` or `http://127.0.0.1:3000`.

    Raises Misconfigured for any other value.
    """
    found = read_list(name)
    for origin in found:
        parts = parse_url(origin)
        if parts is None or parts.scheme not in {"http", "https"} or origin != format_origin(parts):
            raise Misconfigured(
                f"{name} needs origins as browsers send them, such as https://example.org: lower "
                f"case, without a path. {origin!r} is not one."
            )
    return found


def read_history_window() -> int:
    """Read HISTORY_WINDOW, or the older name TG_HISTORY_WINDOW if the new one is not set."""
    if read_string("HISTORY_WINDOW"):
        return read_positive_int("HISTORY_WINDOW", 12)
    return read_positive_int("TG_HISTORY_WINDOW", 12)


def prepare_data_folder(default: Path) -> Path:
    """Return the folder of all data that needs a backup, readable only by its owner.

    A folder of another owner is used unchanged if its group may write, as in Kubernetes volumes
    with an `fsGroup`. Raises Misconfigured if it cannot be used.
    """
    folder = Path(read_string("PALIMPSEST_DATA") or default).expanduser()
    try:
        folder = folder.resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(0o700)
    except OSError as error:
        raise build_path_error(folder, error) from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        is_read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
        number = errno.EROFS if is_read_only else errno.EACCES
        raise build_path_error(folder, OSError(number, os.strerror(number)))
    make_temporary_folder(folder)
    return folder


def make_temporary_folder(folder: Path) -> None:
    """Create the folder of TMPDIR if it is inside the data folder, as in containers.

    Raises Misconfigured if it cannot be created.
    """
    place = Path(os.environ.get("TMPDIR") or "/").absolute()
    if place.parent == folder:
        try:
            place.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise build_path_error(place, error) from error


def build_path_error(path: Path, error: OSError) -> Misconfigured:
    """Return the exception for an unusable file or folder, with the reason."""
    said = trouble.describe_file_error(error, what=str(path))
    return Misconfigured(said or f"{path} cannot be used: {error.strerror}.")


def load_or_create_key(path: Path, *, make: str) -> str:
    """Return the key in a file of the data folder; created on the first start, mode 0600.

    Processes that start at once get the same key: it is created under a lock, and the file is
    written atomically. An interrupted start may leave a file without a key.
    """
    try:
        return read_key_file(path) or create_key_file(path, make=make)
    except OSError as error:
        raise build_path_error(path, error) from error


def create_key_file(path: Path, *, make: str) -> str:
    """Create a key under a lock and return it, or the one that another process just created."""
    with path.with_name("keys.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if key := read_key_file(path):
            return key
        key = generate_fernet_key() if make == "fernet" else secrets.token_urlsafe(64)
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    return key


def read_key_file(path: Path) -> str:
    """Return the key in a file; empty if there is none."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""


def read_encryption_keys(name: str, path: Path) -> list[str]:
    """Read the keys that encrypt stored secrets, newest first, or the key of the data folder.

    Raises Misconfigured if one is not 32 bytes in base64. Without this check, the first secret
    could be neither stored nor read, long after the start.
    """
    found = read_list(name)
    for key in found or [load_or_create_key(path, make="fernet")]:
        if not is_fernet_key(key):
            place = f"{name} has a key that" if found else f"{path}: the key"
            raise Misconfigured(
                f"{place} is not 32 bytes in URL-safe base64 (44 characters). Restore the key that"
                " belongs to the data."
            )
    return found or [load_or_create_key(path, make="fernet")]


def is_fernet_key(key: str) -> bool:
    """Return True if the text is 32 bytes in URL-safe base64."""
    try:
        return len(base64.urlsafe_b64decode(key)) == 32
    except ValueError:
        return False


def generate_fernet_key() -> str:
    """Create a key as `Fernet.generate_key` does, without importing its package."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def resolve_redis_url(data: Path) -> str:
    """Return `REDIS_URL`, else the socket of the server that `manage.py serve` supervises.

    Raises Misconfigured for another scheme. The message does not contain the URL, which may have a
    password.
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


# Executions of a statement on a connection before PostgreSQL keeps its plan.
PREPARE_AFTER = 2


def build_database_settings(data: Path) -> dict[str, object]:
    """Return the database settings for `DATABASE_URL` (postgres://user:password@host:port/name).

    Without it: SQLite in the data folder. IMMEDIATE because a deferred read that becomes a write
    fails at once, whatever the timeout. FULL because an acknowledged reply must survive a power
    failure. recursive_triggers so that REPLACE fires the ledger's delete trigger. Raises
    Misconfigured for another database; no message contains a part of the URL.
    """
    url = read_string("DATABASE_URL").strip()
    if not url:
        return build_sqlite_settings(data / "palimpsest.sqlite3")
    scheme, mark, rest = url.partition("://")
    if scheme == "sqlite" and mark:
        return build_sqlite_settings(parse_sqlite_path(rest))
    if scheme not in {"postgres", "postgresql"} or not mark:
        raise Misconfigured(
            "DATABASE_URL must begin with postgres:// or sqlite://; leave it out for SQLite."
        )
    server, given = parse_postgres_url(rest)
    is_pooled = read_bool("DATABASE_PGBOUNCER")
    if is_pooled and "options" in given:
        raise Misconfigured("DATABASE_URL has options=…, which PgBouncer does not pass on.")
    own = {} if is_pooled else {"options": f"{TIMEOUTS} {given.pop('options', '')}".rstrip()}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(server["name"] or ""),
        "USER": unquote(server["user"] or ""),
        "PASSWORD": unquote(server["password"] or ""),
        "HOST": unquote(server["host"] or "").strip("[]"),
        "PORT": server["port"] or "",
        "CONN_HEALTH_CHECKS": True,
        # Behind PgBouncer the next statement of a transaction may run on another connection.
        "DISABLE_SERVER_SIDE_CURSORS": is_pooled,
        "OPTIONS": {
            "pool": {
                "min_size": 1,
                "max_size": read_positive_int("DATABASE_POOL_SIZE", 12),
                # A request fails soon if the database is unavailable. A connection attempt also
                # ends soon, so that the next request starts a new one: the pool's own retries use a
                # growing pause, and would notice a recovery minutes later.
                "timeout": POOL_TIMEOUT,
                "reconnect_timeout": POOL_RECONNECT,
            },
            # Planning takes a third of the server's time for a turn. Prepared statements belong to
            # one connection of the server, which PgBouncer shares.
            "server_side_binding": not is_pooled,
            "prepare_threshold": None if is_pooled else PREPARE_AFTER,
            **own,
            **given,
        },
    }


def parse_postgres_url(rest: str) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return the parts and the options of a PostgreSQL URL after `://`. Raises Misconfigured."""
    server = parse_postgres_server(rest)
    given = parse_libpq_options(server["options"] or "")
    if not server["name"]:
        raise Misconfigured(
            "DATABASE_URL names no database: postgres://user:password@host:5432/name."
        )
    if server["host"] and "host" in given:
        raise Misconfigured("DATABASE_URL has two hosts: one before the ?, one as an option.")
    return server, given


def parse_sqlite_path(rest: str) -> Path:
    """Return the path of a SQLite URL after `://`. Raises Misconfigured."""
    path, has_options, _ = rest.partition("?")
    if has_options:
        raise Misconfigured("DATABASE_URL: a sqlite:// address has no options.")
    if not path.startswith("/") or path.endswith(("/", ":memory:")):
        raise Misconfigured(
            "DATABASE_URL: a sqlite:// address needs the full path of a file, such as"
            " sqlite:///var/lib/palimpsest/chats.sqlite3."
        )
    return Path(unquote(path))


def parse_postgres_server(rest: str) -> dict[str, str | None]:
    """Return the parts of a PostgreSQL URL after `://`.

    A password may contain any character: it ends at the last part that looks like a host. Raises
    Misconfigured.
    """
    places = [-1, *(place for place, mark in enumerate(rest) if mark == "@")]
    fits = [
        (place, found)
        for place in places[1:] or places[:1]
        if (found := SERVER.fullmatch(rest, place + 1))
    ]
    # Use the first match with known options, because a password may look like a host with options.
    for place, found in [fit for fit in fits if has_known_options(fit[1])] or fits[-1:]:
        if found["port"] and not 0 < int(found["port"]) <= LAST_PORT:
            raise Misconfigured(f"DATABASE_URL: the port must be 1 to {LAST_PORT}.")
        user, _, password = rest[: max(place, 0)].partition(":")
        return {**found.groupdict(), "user": user, "password": password}
    raise Misconfigured(
        "DATABASE_URL cannot be read. It must look like postgres://user:password@host:5432/name."
        " Write these characters of a password in percent form: @ as %40, % as %25."
    )


def has_known_options(found: re.Match[str]) -> bool:
    """Return True if all options of a URL are known to PostgreSQL's client."""
    try:
        parse_libpq_options(found["options"] or "")
    except Misconfigured:
        return False
    return True


def parse_libpq_options(query: str) -> dict[str, str]:
    """Return the options after the `?` of a PostgreSQL URL, such as `sslmode=verify-full`.

    Raises Misconfigured for one that libpq does not know; its value is not repeated.
    """
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise Misconfigured("DATABASE_URL: an option behind ? has no value.") from None
    for name, _ in given:
        if name in OF_ADDRESS:
            raise Misconfigured(
                f"DATABASE_URL has the option {name}. Write it before the ?, as in"
                " postgres://user:password@host:5432/name."
            )
        if name not in LIBPQ_OPTIONS:
            shown = name if name.isidentifier() and len(name) <= 40 else "behind ?"
            raise Misconfigured(
                f"DATABASE_URL has the option {shown}, which PostgreSQL's client does not know."
                " Common ones are sslmode, sslrootcert, connect_timeout and application_name."
            )
    return dict(given)


def build_sqlite_settings(path: Path) -> dict[str, object]:
    """Return the settings of the embedded SQLite database."""
    return {
        "ENGINE": "project.sqlite",
        "NAME": str(path),
        # Named explicitly, because pytest-django tests in memory only with Django's own engine.
        "TEST": {"NAME": ":memory:"},
        # A new connection reads the whole schema again, which takes several milliseconds per
        # request.
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;"
            "PRAGMA recursive_triggers=ON;PRAGMA mmap_size=134217728;"
            "PRAGMA cache_size=-20000;PRAGMA temp_store=MEMORY;"
            # Without it, the build decides whether deleted bytes stay in the file.
            "PRAGMA secure_delete=ON",
        },
    }
