"""People with and without permissions, and an object of Alice's for every URL."""

import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import httpx2
import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from chats.ground import rates
from chats.providers import accounts
from tests.contextpolicy.people import signed_in
from tests.fakes.fake_server import FakeServer
from tests.faults.harness import new_folder
from tests.faults.programs import python, run
from tests.faults.shares import EVERY_ROW, one_of_both
from tests.faults.stores import Cluster, Database, Postgres, SQLite
from tests.security.instance import SETUP, Instance, new_client
from tests.security.world import World, build

HERE = Path(__file__).parent
# Runs every day: erased text that stays anywhere would be the worst fault.
ERASURE = "test_S27_erased_instance.py"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the folder's slow imports when no slow test is selected."""
    is_left_out = collection_path == HERE / "test_every_endpoint.py"
    return (is_left_out and "not slow" in config.option.markexpr) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each test of a served instance on one database, in turn; `make faults` runs both.

    Schemathesis gives its tests the operation as a name, but equal ids, of which xdist runs one.
    """
    for item in items:
        if item.path == HERE / "test_every_endpoint.py":
            path, _, _ = item.nodeid.partition("::")
            item._id = type(item.id).parse(f"{path}::{item.name}")
    if not EVERY_ROW:
        items[:] = [item for item in items if not is_left_to_another_database(item)]
    for item in items:
        is_served = "instance" in getattr(item, "fixturenames", ())
        if HERE in item.path.parents and is_served and item.path.name != ERASURE:
            item.add_marker(pytest.mark.in_turn)


def is_left_to_another_database(item: pytest.Item) -> bool:
    """Return True if the test is assigned to the other database."""
    if HERE not in item.path.parents or not isinstance(item, pytest.Function):
        return False
    callspec = getattr(item, "callspec", None)
    database = callspec.params.get("instance") if callspec else None
    return database not in (None, one_of_both(item.name.replace(str(database), "")))


@pytest.fixture(autouse=True)
def quiet(settings: Settings, empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset rate limits for each test, and disable the search for local model servers."""
    settings.STATIC_ROOT = empty_folder
    settings.API_REQUESTS_PER_MINUTE = 1_000_000
    settings.MESSAGES_PER_MINUTE = 1_000_000
    rates.REQUESTS.clear()
    rates.MESSAGES.clear()
    monkeypatch.setattr(accounts, "find_unconnected_servers", list)


@pytest.fixture
def world(alice: User, now: datetime) -> World:
    """The objects that Alice owns."""
    return build(alice=alice, now=now)


@pytest.fixture
def page(alice: User) -> Client:
    """Alice's browser."""
    return signed_in(alice)


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def instance(request: pytest.FixtureRequest) -> Iterator[Instance]:
    """Web process, worker and broker on a database, with the most verbose logs."""
    folder, cluster_folder = new_folder(), new_folder()
    cluster = Cluster(cluster_folder) if request.param == "postgres" else None
    database: Database = Postgres(cluster, "safe") if cluster else SQLite(folder)
    with FakeServer() as fake:
        tree = Instance(folder=folder, database=database, fake=fake)
        tree.env |= {"LOG_LEVEL": "DEBUG", "STREAM_RECHECK_SECONDS": "0.5"}
        try:
            tree.broker.start()
            tree.prepare()
            tree.said_at_setup = run(python("-c", SETUP), env=tree.env)
            tree.worker()
            tree.web()
            yield tree
        finally:
            tree.close()
            if cluster:
                cluster.stop()
            for used in (folder, cluster_folder):
                shutil.rmtree(used)


@pytest.fixture
def http(instance: Instance) -> Iterator[httpx2.Client]:
    """A client without a session that does not follow redirects."""
    with new_client(instance) as client:
        yield client
