"""One installation with the real small model, for all tests of it."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.small_model.beside import Beside, needed_model

HERE = Path(__file__).parent
# As root Celery says so; and what a test kills is reported.
EXPECTED = ("SecurityWarning: You're running the worker", "small model ended")
# Words of a longer reply would say nothing more.
REPLY_TOKENS = 40
# A machine that does other work as well reads a prompt ten times as slowly.
PATIENT = {
    "PROVIDER_FIRST_TOKEN_TIMEOUT": "120",
    "PROVIDER_GAP_TIMEOUT": "120",
    "SUMMARY_SECONDS": "300",
    "WORKER_DRAIN_SECONDS": "1",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs the model and real processes, one test after the other."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.small_model)
            item.add_marker(pytest.mark.processes)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(autouse=True)
def sent() -> None:
    """Here the broker is real: nothing is caught on its way to it."""


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
    """The installation in its usual state; it has warned of nothing when the test is over."""
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
    """The lines in the installation's log that warn of something."""
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
    """With a failure comes what the processes said."""
    report = yield
    beside = getattr(item, "funcargs", {}).get("beside")
    if report.failed and isinstance(beside, Beside):
        report.sections.append(("product", beside.product.program.said()[-3000:]))
        report.sections.append(("small model", beside.log.read_text(encoding="utf-8")[-3000:]))
    return report
