"""Fixtures of the browser tests: Chromium, one shared installation, and tabs of several people."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.desk import Person, must_be_quiet
from tests.browser.product import SAVE_SERVER, Product
from tests.fakes.fake_server import FakeServer
from tests.faults.programs import needed_browser

HERE = Path(__file__).parent
DESKTOP = {"width": 1280, "height": 800}
# Other tests run on the machine at the same time.
expect.set_options(timeout=15_000)

# Sending, errors, tabs and the four kinds of users: a fault there affects all people.
EVERY_DAY = {"test_failed_requests.py", "test_tabs.py", "test_four_people.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder as serial; the tests of a file share an installation."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.processes)
            if item.path.name not in EVERY_DAY:
                item.add_marker(pytest.mark.file_in_turn)


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real in these tests."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium; each tab has a separate profile."""
    program = needed_browser()
    # Chromium's sandbox cannot start as root or inside a container.
    options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeServer]:
    """A scriptable model server."""
    with FakeServer() as server:
        yield server


@pytest.fixture(scope="module")
def product(browser: Browser, fake: FakeServer) -> Iterator[Product]:
    """The installation of most tests; it may call the fake model server."""
    running = Product(ALLOWED_PRIVATE_PROVIDERS=fake.host, MESSAGES_PER_MINUTE="1000")
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def fresh(browser: Browser) -> Iterator[Product]:
    """An unused installation."""
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

    After the test it fails on console errors and on requests to other origins (S6, S10).
    """
    opened: list[Person] = []

    def opening(product: Product, **options: Any) -> Person:
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        context.set_default_timeout(30_000)
        person = Person(context.new_page(), product)
        opened.append(person)
        return person

    yield opening
    # Before they are closed: a tab that closes during a stream reports the broken stream.
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
    """Add the output of the product's processes to the report of a failed test."""
    report = yield
    for product in getattr(item, "funcargs", {}).values():
        if report.failed and isinstance(product, Product) and product.log.exists():
            report.sections.append(("product", product.log.read_text(encoding="utf-8")[-4000:]))
            report.sections.append(("newest turns", product.newest_turns()))
    return report


@pytest.fixture(scope="module")
def connected(browser: Any, product: Product, signed_in: Any, fake: FakeServer) -> str:
    """The fake server, connected on the setup page as an operator does; its host."""
    context = browser.new_context(storage_state=signed_in)
    person = Person(context.new_page(), product)
    page = person.page
    person.open("/setup/")
    page.get_by_label("Address").fill(fake.base_url)
    page.get_by_label("Name", exact=True).fill("The test server")
    page.locator(SAVE_SERVER).click()
    expect(page.locator(".card", has_text="The test server")).to_contain_text("In use")
    must_be_quiet(person)
    context.close()
    return fake.host


@pytest.fixture
def scripted(fake: FakeServer) -> Iterator[FakeServer]:
    """The fake server without a script."""
    yield fake
    fake.configure(replies=[], faults=[])


@pytest.fixture
def context(browser: Any, product: Product, signed_in: Any) -> Any:
    """A browser profile in which the administrator is signed in."""
    made = browser.new_context(storage_state=signed_in)
    yield made
    made.close()


@pytest.fixture
def team(admin: Person, connected: str) -> Iterator[str]:
    """A team of three, created from the first draft on the page; its name."""
    del connected
    admin.open("/teams/")
    admin.page.get_by_role("link", name="Planner, critic, writer").last.click()
    admin.page.get_by_label("Name").first.fill("Trip planners")
    admin.page.get_by_role("button", name="Save team").click()
    expect(admin.page.get_by_role("link", name="Trip planners", exact=True)).to_be_visible()
    yield "Trip planners"
    admin.open("/teams/")
    admin.page.get_by_role("button", name="Delete team Trip planners").first.click()
    must_be_quiet(admin)


@pytest.fixture
def items(admin: Person) -> Any:
    """The files of the message box, in a new chat."""
    admin.open("/chats/new")
    return admin.page.locator("#composer-files > .attachment")
