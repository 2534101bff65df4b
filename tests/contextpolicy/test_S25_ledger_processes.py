"""S25 with real processes: many writers make one gap-free chain, and roles of PostgreSQL hold."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.faults.harness import new_folder
from tests.faults.stores import Cluster

ROOT = Path(__file__).resolve().parents[2]
WRITERS, EVENTS_EACH = 4, 25

MIGRATE = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", skip_checks=True, verbosity=0)
"""
WRITE = """
import sys
import django
django.setup()
from django.db import transaction
from django.utils import timezone
from contextpolicy.ledger import record
sys.stdin.readline()
for number in range(int(sys.argv[1])):
    try:
        with transaction.atomic():
            record("policy.assigned", actor="system", now=timezone.now(), data={"n": number})
            if number % 5 == 4:
                raise RuntimeError("this one is rolled back")
    except RuntimeError:
        pass
"""
VERIFY = """
import django
django.setup()
from django.core.management import call_command
call_command("ledger_verify")
"""


def environment(folder: Path, url: str) -> dict[str, str]:
    """The environment of a process that uses this database and none of the developer's settings."""
    return {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "PALIMPSEST_DATA": str(folder),
        "DATABASE_URL": url,
    }


def run(code: str, env: dict[str, str], *arguments: str) -> str:
    """The output of a process that must succeed."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=env,
        check=True,
        text=True,
        capture_output=True,
        timeout=90,
    ).stdout


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of our own."""
    folder = new_folder()
    server = Cluster(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def postgres(cluster: Cluster) -> str:
    """The address of an empty database on the PostgreSQL server."""
    name = f"ledger_{uuid.uuid4().hex}"
    cluster.execute(f"CREATE DATABASE {name}")
    return cluster.url("postgres", name)


@pytest.mark.processes
@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.services)]
)
def test_S25_writers_at_the_same_time_make_one_gap_free_chain(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = "" if database == "sqlite" else request.getfixturevalue("postgres")
    env = environment(tmp_path, url)
    run(MIGRATE, env)

    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, str(EVENTS_EACH)],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    outcomes = [(writer.communicate(timeout=90)[1], writer.returncode) for writer in writers]

    assert outcomes == [("", 0)] * WRITERS
    kept = WRITERS * EVENTS_EACH * 4 // 5
    assert run(VERIFY, env) == f"1 chains hold, {kept} rows.\n"


@pytest.mark.services
@pytest.mark.processes
def test_S25_the_application_role_of_postgresql_cannot_step_around_the_triggers(
    postgres: str, tmp_path: Path
) -> None:
    run(MIGRATE, environment(tmp_path, postgres))
    role = sql.Identifier(f"app_{uuid.uuid4().hex}")
    with psycopg.connect(postgres, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(role))
        try:
            grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}"
            owner.execute(sql.SQL(grant).format(role))
            grant = "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {}"
            owner.execute(sql.SQL(grant).format(role))
            owner.execute(sql.SQL("SET ROLE {}").format(role))
            refused_to_the_application(owner)
        finally:
            owner.execute("RESET ROLE")
            owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
            owner.execute(sql.SQL("DROP ROLE {}").format(role))


def refused_to_the_application(connection: psycopg.Connection) -> None:
    """The role may append, and every way around fails."""
    zeros = "0" * 64
    connection.execute(
        "INSERT INTO contextpolicy_ledgerhead (scope, count, last_hash) VALUES ('x', 0, %s)",
        [zeros],
    )
    connection.execute(
        "INSERT INTO contextpolicy_auditevent"
        " (scope, seq, type, at, actor, data, previous_hash, hash)"
        " VALUES ('x', 1, 'policy.created', now(), 'system', '{}', %s, 'a')",
        [zeros],
    )
    connection.execute("UPDATE contextpolicy_ledgerhead SET count = 1, last_hash = 'a'")
    for statement in (
        b"UPDATE contextpolicy_auditevent SET actor = 'user:9'",
        b"DELETE FROM contextpolicy_auditevent",
        b"UPDATE contextpolicy_ledgerhead SET count = 0",
        b"DELETE FROM contextpolicy_ledgerhead",
    ):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            connection.execute(statement)
    for statement in (
        b"TRUNCATE contextpolicy_auditevent",
        b"DROP TRIGGER ledger_no_update ON contextpolicy_auditevent",
        b"ALTER TABLE contextpolicy_auditevent DISABLE TRIGGER ALL",
        b"SET session_replication_role = replica",
        b"DROP FUNCTION ledger_refuse() CASCADE",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)
