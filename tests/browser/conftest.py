"""Chromium and the product it looks at: one installation for all tests, people in tabs of it."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.desk import Person, must_be_quiet
from tests.browser.product import Product
from tests.fakes.fake_server import FakeServer
from tests.faults.programs import needed_browser

HERE = Path(__file__).parent
DESKTOP = {"width": 1280, "height": 800}
# The machine has other tests beside it.
expect.set_options(timeout=15_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a browser and real processes; a file shares one installation."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.processes)


@pytest.fixture(autouse=True)
def sent() -> None:
    """Here the broker is real: nothing is caught on its way to it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium; each tab gets a profile of its own."""
    program = needed_browser()
    # Chromium's own sandbox cannot start for root or inside a container.
    options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeServer]:
    """A model server that says what a test tells it."""
    with FakeServer() as server:
        yield server


@pytest.fixture(scope="module")
def product(browser: Browser, fake: FakeServer) -> Iterator[Product]:
    """The installation of most tests; it may reach the fake model server."""
    running = Product(ALLOWED_PRIVATE_PROVIDERS=fake.host, MESSAGES_PER_MINUTE="1000")
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def fresh(browser: Browser) -> Iterator[Product]:
    """An installation that nobody has seen yet."""
    running = Product()
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def signed_in(browser: Browser, product: Product) -> Any:
    """The cookies of the administrator's session."""
    context = browser.new_context()
    person = Person(context.new_page(), product)
    person.sign_in(product.printed_link())
    must_be_quiet(person)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Callable[..., Person]]:
    """Open a tab: `open_tab(product, **options of the context)`.

    At the end no tab may have complained of anything or asked another origin (S6, S10).
    """
    opened: list[Person] = []

    def opening(product: Product, **options: Any) -> Person:
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        context.set_default_timeout(30_000)
        person = Person(context.new_page(), product)
        opened.append(person)
        return person

    yield opening
    # Before they are closed: a tab that goes away in the middle of a stream tells of its end.
    for person in opened:
        must_be_quiet(person)
        person.page.context.close()


@pytest.fixture
def admin(open_tab: Callable[..., Person], product: Product, signed_in: Any) -> Person:
    """The administrator in a tab, signed in."""
    return open_tab(product, storage_state=signed_in)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a failure comes what the product's processes said."""
    report = yield
    for product in getattr(item, "funcargs", {}).values():
        if report.failed and isinstance(product, Product) and product.log.exists():
            report.sections.append(("product", product.log.read_text(encoding="utf-8")[-4000:]))
            report.sections.append(("newest turns", product.newest_turns()))
    return report
