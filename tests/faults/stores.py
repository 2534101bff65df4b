"""The stores of a fault test: a Redis server, and an SQLite file or a PostgreSQL cluster."""

import os
import pwd
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg.rows import dict_row
from redis import Redis

from project.broker import BrokerMissing, wait_until_ready
from project.broker import build_broker_command as embedded_broker
from tests.faults.programs import (
    Program,
    absent,
    create_tables,
    free_port,
    needed,
    put_tables,
    run,
    until,
)

Row = dict[str, Any]


class Broker:
    """A Redis-compatible server on a unix socket of the tree's folder, as the launcher runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.command = embedded_broker(folder)
        except BrokerMissing as error:
            absent(str(error))
        self.url = f"unix://{folder / 'run' / 'broker.sock'}"
        self.program: Program | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.program = Program(
            "broker", self.command, env=os.environ, log=self.folder / "broker.log"
        )
        if not wait_until_ready(self.url, seconds=10):
            raise RuntimeError(self.program.said())

    def kill(self) -> None:
        """Kill it; data that was not written to its file is lost."""
        if self.program is not None:
            self.program.kill()

    def flush(self) -> None:
        """Delete all data: tasks, streams, positions."""
        with Redis.from_url(self.url) as client:
            client.flushall()


class Database(Protocol):
    """The database of a tree, and how a test reads it."""

    kind: str
    # For the processes of the product, and for migrations.
    url: str
    owner_url: str

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows of a query on a new connection; `%s` is a placeholder."""
        ...

    def put_tables(self, env: Mapping[str, str]) -> None:
        """Create the tables for the tree with this environment."""
        ...

    def close(self) -> None:
        """Release resources outside the tree's folder."""
        ...


class SQLite:
    """The file in the data folder."""

    kind = "sqlite"
    url = ""
    owner_url = ""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "palimpsest.sqlite3"

    def put_tables(self, _env: Mapping[str, str]) -> None:
        """Make the tables."""
        put_tables(self.path.parent)

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """Read concurrently with writers, which WAL allows."""
        connection = sqlite3.connect(self.path, timeout=20)
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query.replace("%s", "?"), values)]
        finally:
            connection.close()

    def takes_writers(self) -> bool:
        """Return True if no process holds the write lock of the file."""
        connection = sqlite3.connect(self.path, timeout=0.5, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()
        return True

    def close(self) -> None:
        """Do nothing: a file needs no release."""


class Cluster:
    """A PostgreSQL server with one role that owns the tables and one that uses them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.control = needed("pg_ctl")
        self.as_user = unprivileged()
        if self.as_user:
            shutil.chown(folder, self.as_user[2])
        encoded = ("-E", "UTF8", "--no-sync")
        self.call(needed("initdb"), *encoded, "-A", "trust", "-U", "postgres", "-D", self.data)
        self.start()
        self.execute("CREATE ROLE owner LOGIN CREATEDB", "CREATE ROLE app LOGIN")
        self.has_tables = False

    @property
    def data(self) -> str:
        """The server's data folder."""
        return str(self.folder / "data")

    def call(self, *command: str) -> None:
        """Run a program as a user that PostgreSQL accepts: it refuses root."""
        prefix = [self.as_user[0], *self.as_user[1]] if self.as_user else []
        run([*prefix, *command], env={**os.environ, "HOME": str(self.folder)})

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        # Tests kill processes, never the machine, so writes in the kernel's buffers survive.
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"
            f" -c unix_socket_directories={self.folder}"
        )
        log = str(self.folder / "server.log")
        self.call(self.control, "-D", self.data, "-w", "-o", options, "-l", log, "start")

    def stop(self, *, mode: str = "immediate") -> None:
        """Stop the server; for clients `immediate` is like a crash."""
        self.call(self.control, "-D", self.data, "-m", mode, "-w", "stop")

    def url(self, role: str, name: str) -> str:
        """The address of a database for a role."""
        return f"postgres://{role}@127.0.0.1:{self.port}/{name}"

    def execute(self, *statements: str, name: str = "postgres", role: str = "postgres") -> None:
        """Run statements outside a transaction."""
        with psycopg.connect(self.url(role, name), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


class Postgres:
    """One database in the cluster."""

    kind = "postgres"

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.url = cluster.url("app", name)
        self.owner_url = cluster.url("owner", name)
        template = TABLES if cluster.has_tables else "template1"
        cluster.execute(f"CREATE DATABASE {name} OWNER owner TEMPLATE {template}")
        if not cluster.has_tables:
            cluster.execute(*GRANTS, name=name, role="owner")

    def put_tables(self, env: Mapping[str, str]) -> None:
        """Create the tables as their owner.

        The next database of the cluster is copied from them.
        """
        if self.cluster.has_tables:
            return
        owner = {**env, "DATABASE_URL": self.owner_url}
        create_tables(owner)
        self.cluster.execute(f"CREATE DATABASE {TABLES} OWNER owner TEMPLATE {self.name}")
        self.cluster.has_tables = True

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """Read on a new connection, because the server may have been restarted."""
        connect = psycopg.connect(
            self.cluster.url("postgres", self.name), row_factory=dict_row, autocommit=True
        )
        with connect as connection:
            return connection.execute(query.encode(), values).fetchall()

    def close(self) -> None:
        """Remove the database."""
        self.cluster.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


# The template database of a cluster: all tables, no rows.
TABLES = "tables"
# The processes may change rows, but cannot truncate tables or change triggers.
GRANTS = (
    "ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO app",
    "ALTER DEFAULT PRIVILEGES GRANT USAGE, SELECT ON SEQUENCES TO app",
    "GRANT USAGE ON SCHEMA public TO app",
    "GRANT CREATE ON SCHEMA public TO owner",
)


def unprivileged() -> tuple[str, list[str], str] | None:
    """The command prefix and the user for programs that refuse root, or None if not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    user = "postgres" if "postgres" in known else "nobody"
    entry = pwd.getpwnam(user)
    given = [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--"]
    return needed("setpriv"), given, user


def count(database: Database, table: str, where: str = "1 = 1", *values: object) -> int:
    """The number of matching rows of a table."""
    query = f"SELECT count(*) AS n FROM {table} WHERE {where}"  # noqa: S608  # texts of the tests
    return int(database.rows(query, values)[0]["n"])


def wait_for_rows(database: Database, query: str, *values: object, seconds: float = 15) -> Row:
    """The first row of a query, as soon as there is one."""
    return until(lambda: database.rows(query, values), seconds=seconds, what=query)[0]
