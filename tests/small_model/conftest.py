"""One installation with the real small model, shared by all tests of this folder."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.small_model.beside import Beside, needed_model

HERE = Path(__file__).parent
# Celery warns when it runs as root, and it reports the processes that a test kills.
EXPECTED = ("SecurityWarning: You're running the worker", "small model ended")
# A longer reply would test nothing more.
REPLY_TOKENS = 40
# A busy machine reads a prompt ten times as slowly.
PATIENT = {
    "PROVIDER_FIRST_TOKEN_TIMEOUT": "120",
    "PROVIDER_GAP_TIMEOUT": "120",
    "SUMMARY_SECONDS": "300",
    "WORKER_DRAIN_SECONDS": "1",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder: they need the model and run one after the other."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.small_model)
            item.add_marker(pytest.mark.processes)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real in these tests."""


@pytest.fixture(scope="module")
def running() -> Iterator[Beside]:
    """An installation with the model connected."""
    needed_model()
    beside = Beside(**PATIENT)
    try:
        beside.connect()
        yield beside
    finally:
        beside.close()


@pytest.fixture
def beside(running: Beside) -> Iterator[Beside]:
    """The running installation. Fails if its log has new warnings after the test."""
    values = {"max_output": REPLY_TOKENS, "context_window": 8192}
    running.desk.ask("change_model", slug=running.slug, values=values)
    running.desk.ask("govern", preset="long-chats")
    yield running
    assert warnings(running) == []


@pytest.fixture
def chat(beside: Beside) -> str:
    """A chat with the small model."""
    return str(beside.desk.ask("new_chat", model=beside.slug))


def warnings(beside: Beside) -> list[str]:
    """The warnings in the installation's log."""
    marks = ("Warning:", " WARNING ", " ERROR ", "Traceback")
    lines = beside.product.program.said().splitlines()
    return [
        line
        for line in lines
        if any(mark in line for mark in marks) and not any(word in line for word in EXPECTED)
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the output of the processes to the report of a failed test."""
    report = yield
    beside = getattr(item, "funcargs", {}).get("beside")
    if report.failed and isinstance(beside, Beside):
        report.sections.append(("product", beside.product.program.said()[-3000:]))
        report.sections.append(("small model", beside.log.read_text(encoding="utf-8")[-3000:]))
    return report
