"""The trees of the fault tests, one per database, each repaired before and checked after a test.

A row that both databases have runs on one of them, half of the rows on each. Most rows take turns
in `make test-all`. `make faults` runs all rows on both.
"""

import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.fakes.fake_server import FakeServer
from tests.faults.client import Client
from tests.faults.harness import SHORT_LEASE, Tree, new_folder
from tests.faults.programs import Program
from tests.faults.promises import assert_promises
from tests.faults.shares import EVERY_ROW, one_of_both
from tests.faults.stores import Database, Postgres, SQLite

HERE = Path(__file__).parent
# Lost or doubled replies would be the worst faults.
EVERY_DAY = {"test_worker_rows.py", "test_round_kills.py"}
DATABASES = [
    pytest.param("sqlite"),
    pytest.param("postgres", marks=pytest.mark.services),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests as serial, and select the database of each row."""
    is_left_out = is_for_another_database if EVERY_ROW else is_left_to_another_database
    items[:] = [item for item in items if not is_left_out(item)]
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.processes)
            if item.path.name not in EVERY_DAY:
                item.add_marker(pytest.mark.in_turn)


def is_for_another_database(item: pytest.Item) -> bool:
    """Return True if the test's fixture names one database and it got the other one's tree."""
    if HERE not in item.path.parents or not isinstance(item, pytest.Function):
        return False
    asked = {"sqlite", "postgres"} & set(item.fixturenames)
    callspec = getattr(item, "callspec", None)
    return bool(asked) and callspec is not None and callspec.params["planted"] not in asked


def is_left_to_another_database(item: pytest.Item) -> bool:
    """Return True if the test's fixture names the other database, or the row is assigned to it."""
    if HERE not in item.path.parents or not isinstance(item, pytest.Function):
        return False
    callspec = getattr(item, "callspec", None)
    database = callspec.params.get("planted") if callspec else None
    if database is None or {"sqlite", "postgres"} & set(item.fixturenames):
        return is_for_another_database(item)
    return bool(database != one_of_both(item.name.replace(database, "")))


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real in these tests."""


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeServer]:
    """The model server of all trees."""
    with FakeServer() as server:
        yield server


@pytest.fixture(scope="session", params=DATABASES)
def planted(request: pytest.FixtureRequest, fake: FakeServer) -> Iterator[Tree]:
    """A tree on one of the databases, prepared and running."""
    folder = new_folder()
    database: Database
    if request.param == "sqlite":
        database = SQLite(folder)
    else:
        database = Postgres(request.getfixturevalue("cluster"), "tree")
    tree = Tree(folder=folder, database=database, fake=fake)
    try:
        tree.broker.start()
        tree.prepare()
        yield tree
    finally:
        tree.close()
        shutil.rmtree(folder)
    assert not [program.name for program in tree.programs if program.left_behind()]


@pytest.fixture
def long_lease(planted: Tree) -> Iterator[None]:
    """Use a long lease in tests that count calls, because an expired lease would add calls."""
    planted.lease = "20"
    yield
    planted.lease = SHORT_LEASE


@pytest.fixture
def tree(planted: Tree) -> Iterator[Tree]:
    """The tree in its usual state. After the test every promise must be fulfilled."""
    planted.settle()
    planted.fake.forget_requests()
    # Remove the settings of the model server that a failed test left.
    planted.fake.configure(faults=[], replies=[])
    yield planted
    planted.settle()
    assert_promises(planted)


@pytest.fixture
def web(tree: Tree) -> Iterator[Program]:
    """A web process of the tree. The test may end it and start others."""
    tree.clear("web")
    yield tree.web()
    tree.clear("web")


@pytest.fixture
def alice(tree: Tree, web: Program) -> Iterator[Client]:
    """An API client with Alice's key."""
    with Client(tree) as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the output of the tree's processes to the report of a failed test."""
    report = yield
    tree = getattr(item, "funcargs", {}).get("tree")
    if report.failed and isinstance(tree, Tree) and tree.folder.exists():
        report.sections.append(("processes", tree.said()))
    return report
