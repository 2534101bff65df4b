"""The tables of a new instance equal those of the migrations, including checks and triggers."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.faults.programs import MANAGE, apart, python
from tests.faults.stores import Cluster

AT_ONCE = ("setup",)
STEP_BY_STEP = ("migrate", "--verbosity", "0")
# Everything in a PostgreSQL schema, by kind and name, as the server reports it.
SCHEMA = """
SELECT 'column', table_name || '.' || column_name,
       concat_ws(' ', data_type, character_maximum_length, is_nullable, column_default, is_identity)
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL
SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL
SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid)
FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT 'function', proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT 'migration', app, name FROM django_migrations
"""


def call(folder: Path, *command: str, url: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of the product on a separate database."""
    env = {**apart(folder), "DATABASE_URL": url}
    return subprocess.run(
        python(MANAGE, *command), env=env, check=False, capture_output=True, text=True, timeout=200
    )


def parts_of(statement: str) -> frozenset[str] | str:
    """The columns and checks of a table in any order; other statements unchanged."""
    if not statement.startswith("CREATE TABLE"):
        return statement
    found, part, depth = [], "", 0
    for letter in statement[statement.index("(") + 1 : statement.rindex(")")]:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append(part.strip())
            part = ""
        else:
            part += letter
    return frozenset([*found, part.strip()])


def sqlite_schema(folder: Path) -> dict[tuple[str, str], object]:
    """The schema of a file, and the applied migrations."""
    with closing(sqlite3.connect(folder / "palimpsest.sqlite3")) as database:
        rows = database.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        found: dict[tuple[str, str], object] = {
            (kind, name): parts_of(statement) for kind, name, statement in rows
        }
        for app, name in database.execute("SELECT app, name FROM django_migrations"):
            found["migration", f"{app}.{name}"] = True
    return found


@pytest.fixture(scope="module")
def migrated_halfway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file that has some of the migrations. Tests copy it."""
    folder = tmp_path_factory.mktemp("halfway")
    assert call(folder, "migrate", "chats", "0040", "--verbosity", "0").returncode == 0
    return folder


@pytest.fixture(scope="module")
def by_steps(
    migrated_halfway: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], object]:
    """The schema after every migration. All of them take half a minute."""
    folder = tmp_path_factory.mktemp("by_steps")
    shutil.copytree(migrated_halfway, folder, dirs_exist_ok=True)
    assert call(folder, *STEP_BY_STEP).returncode == 0
    return sqlite_schema(folder)


def test_a_new_file_has_the_tables_that_the_migrations_make(
    tmp_path: Path, by_steps: dict[tuple[str, str], object]
) -> None:
    assert call(tmp_path, *AT_ONCE).returncode == 0
    new, old = sqlite_schema(tmp_path), by_steps
    assert len(old) > 200
    assert {key: found for key, found in new.items() if old.get(key) != found} == {}
    assert old.keys() - new.keys() == set()


@pytest.mark.services
def test_a_new_database_of_postgresql_has_the_tables_that_the_migrations_make(
    cluster: Cluster, tmp_path: Path
) -> None:
    found = []
    for name, command in (("new", AT_ONCE), ("old", STEP_BY_STEP)):
        cluster.execute(f"CREATE DATABASE {name}_tables")
        url = cluster.url("postgres", f"{name}_tables")
        done = call(tmp_path / name, *command, url=url)
        assert done.returncode == 0, done.stderr
        with psycopg.connect(url) as connection:
            found.append(set(connection.execute(SCHEMA.encode()).fetchall()))
    new, old = found
    assert len(old) > 500
    assert new - old == set()
    assert old - new == set()


@pytest.mark.services
@pytest.mark.parametrize(
    ("command", "encoding"),
    [(AT_ONCE, "SQL_ASCII"), (STEP_BY_STEP, "LATIN1")],
    ids=["setup", "migrate"],
)
def test_a_database_with_another_encoding_is_refused_before_tables_are_created(
    cluster: Cluster, tmp_path: Path, encoding: str, command: tuple[str, ...]
) -> None:
    name = f"encoding_{encoding}_{command[0]}".lower()
    cluster.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    url = cluster.url("postgres", name)
    refused = call(tmp_path, *command, url=url)
    assert refused.returncode != 0
    assert encoding in refused.stderr
    assert "Traceback" not in refused.stderr
    with psycopg.connect(url) as connection:
        assert connection.execute(
            b"SELECT count(*) FROM pg_tables WHERE tableowner"
            b" = current_user AND schemaname = 'public'"
        ).fetchall() == [(0,)]


# As `setup` begins, but the last step of the product's tables fails.
BROKEN = """
import django
django.setup()
from project import tables
tables.BESIDES = (*tables.BESIDES, ("chats.migrations.0026_search_of_a_person", "create"))
tables.create_in_empty_database()
"""


def test_tables_that_could_not_be_created_at_once_are_made_step_by_step(
    tmp_path: Path, by_steps: dict[tuple[str, str], object]
) -> None:
    env = {**apart(tmp_path), "DJANGO_SETTINGS_MODULE": "project.settings", "DATABASE_URL": ""}
    broken = subprocess.run(
        [sys.executable, "-c", BROKEN], env=env, check=False, capture_output=True, text=True
    )
    assert "already exists" in broken.stderr
    assert not [name for _, name in sqlite_schema(tmp_path) if name.startswith("chats_")]
    assert call(tmp_path, *AT_ONCE).returncode == 0
    assert sqlite_schema(tmp_path) == by_steps


def test_tables_that_are_there_are_left_to_the_migrations(
    tmp_path: Path, migrated_halfway: Path, by_steps: dict[tuple[str, str], object]
) -> None:
    shutil.copytree(migrated_halfway, tmp_path, dirs_exist_ok=True)
    assert call(tmp_path, *AT_ONCE).returncode == 0
    assert sqlite_schema(tmp_path) == by_steps
