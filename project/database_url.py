"""Database settings from `DATABASE_URL`. No message contains a part of the URL."""

import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

from project.env import Misconfigured, read_bool, read_positive_int, read_string

# Seconds to wait for a connection of the pool, and for the pool's connection attempt.
POOL_TIMEOUT = 5.0
POOL_RECONNECT = 2.0
# Executions of a statement on a connection before PostgreSQL keeps its plan.
PREPARE_AFTER = 2
# Compiled statements that a SQLite connection keeps, 15 kB each. Each request thread has its own
# connection. Python's default of 128 takes 2 MB for each.
CACHED_STATEMENTS = 64
LAST_PORT = 65_535
# Each connection sets these timeouts when it starts.
TIMEOUTS = "-c lock_timeout=5s -c idle_in_transaction_session_timeout=30s -c statement_timeout=30s"
DEFAULT_PORT = "5432"
# The part of a PostgreSQL URL after user and password. Several hosts have commas between them.
HOST = r"(?:\[[0-9A-Fa-f:.]+(?:%25[\w.-]+)?\]|(?:[\w.-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{1,6})?"
SERVER = re.compile(
    rf"(?P<hosts>{HOST}(?:,{HOST})*)(?:/(?P<name>[^/?#@]*))?(?:\?(?P<options>.*))?", re.DOTALL
)
# The options of libpq 18, without user, password, port and database, which are in the URL itself,
# and without `replication`.
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
        "oauth_client_id",
        "oauth_client_secret",
        "oauth_issuer",
        "oauth_scope",
        "options",
        "passfile",
        "require_auth",
        "requirepeer",
        "scram_client_key",
        "scram_server_key",
        "service",
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


def build_database_settings(data: Path) -> dict[str, object]:
    """Return the database settings for `DATABASE_URL`.

    The format is postgres://user:password@host:port/name, or sqlite:// and a full path. If the
    variable is not set, the database is SQLite in the data folder. Raises Misconfigured for another
    database; no message contains a part of the URL.
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
        "HOST": server["host"],
        "PORT": server["port"],
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


def build_sqlite_settings(path: Path) -> dict[str, object]:
    """Return the settings of the embedded SQLite database.

    Transactions are IMMEDIATE, because a deferred read that becomes a write fails at once, whatever
    the timeout. `synchronous` is FULL, because an acknowledged reply must survive a power failure.
    `recursive_triggers` is on, so that REPLACE fires the ledger's delete trigger.
    """
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
            "cached_statements": CACHED_STATEMENTS,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;"
            "PRAGMA recursive_triggers=ON;PRAGMA mmap_size=134217728;"
            "PRAGMA cache_size=-20000;PRAGMA temp_store=MEMORY;"
            # Without this, SQLite's build options decide whether deleted bytes stay in the file.
            "PRAGMA secure_delete=ON",
        },
    }


def format_sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file, given by its full path, in the format of `DATABASE_URL`."""
    return f"sqlite://{quote(str(path))}"


def parse_sqlite_path(rest: str) -> Path:
    """Return the path of a SQLite URL after `://`. Raises Misconfigured."""
    path, has_options, _ = rest.partition("?")
    if has_options:
        raise Misconfigured("DATABASE_URL: a sqlite:// address has no options.")
    if not path.startswith("/") or path.endswith(("/", ":memory:")) or "\0" in unquote(path):
        raise Misconfigured(
            "DATABASE_URL: a sqlite:// address needs the full path of a file, such as"
            " sqlite:///var/lib/palimpsest/chats.sqlite3."
        )
    return Path(unquote(path))


def parse_postgres_url(rest: str) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return the parts and the options of a PostgreSQL URL after `://`. Raises Misconfigured."""
    if "\0" in unquote(rest):
        # The client would read only the part before the NUL.
        raise Misconfigured("DATABASE_URL has a NUL character (%00).")
    server = parse_postgres_server(rest)
    given = parse_libpq_options(server["options"] or "")
    if not server["name"]:
        raise Misconfigured(
            "DATABASE_URL names no database: postgres://user:password@host:5432/name."
        )
    if server["host"] and "host" in given:
        raise Misconfigured("DATABASE_URL has two hosts: one before the ?, one as an option.")
    return server, given


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
        host, port = parse_hosts(found["hosts"])
        user, _, password = rest[: max(place, 0)].partition(":")
        return {**found.groupdict(), "host": host, "port": port, "user": user, "password": password}
    raise Misconfigured(
        "DATABASE_URL cannot be read. It must look like postgres://user:password@host:5432/name."
        " Write these characters of a password in percent form: @ as %40, % as %25."
    )


def parse_hosts(hosts: str) -> tuple[str, str]:
    """Return the hosts and the ports of a URL in libpq's format. Raises Misconfigured."""
    names, ports = [], []
    for each in hosts.split(","):
        found = re.fullmatch(r"(.*?)(?::([0-9]+))?", each, re.DOTALL)
        name, port = found.groups() if found else (each, None)
        if port and not 0 < int(port) <= LAST_PORT:
            raise Misconfigured(f"DATABASE_URL: the port must be 1 to {LAST_PORT}.")
        names.append(unquote(name).strip("[]"))
        ports.append(port or "")
    if len(set(ports)) > 1:
        # A host without a port gets the default port, as in libpq.
        ports = [port or DEFAULT_PORT for port in ports]
    return ",".join(names), ports[0] if len(set(ports)) == 1 else ",".join(ports)


def has_known_options(found: re.Match[str]) -> bool:
    """Return True if all options of a URL are known to PostgreSQL's client."""
    try:
        parse_libpq_options(found["options"] or "")
    except Misconfigured:
        return False
    return True


def parse_libpq_options(query: str) -> dict[str, str]:
    """Return the options after the `?` of a PostgreSQL URL, such as `sslmode=verify-full`.

    Raises Misconfigured for an option that libpq does not know. The message does not
    contain the option's value.
    """
    try:
        # libpq reads a plus sign as itself, not as a space.
        plain = query.replace("+", "%2B")
        given = parse_qsl(plain, keep_blank_values=True, strict_parsing=bool(query))
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
