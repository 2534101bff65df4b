"""The example front end of docs/examples/use_chat in a browser: `make clients`."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import browser
from tests.support.client_programs import CLIENTS, send_in_example

__all__ = ["browser"]

pytestmark = [
    pytest.mark.clients,
    pytest.mark.processes,
    pytest.mark.skipif(not CLIENTS.exists(), reason="make clients has installed nothing yet"),
]


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


@pytest.fixture
def page(browser: Browser, front_end: str) -> Iterator[Page]:
    """The example in a tab."""
    tab = browser.new_page()
    tab.goto(front_end)
    yield tab
    tab.close()


def test_a_chat_is_sent_reloaded_edited_regenerated_and_stopped(page: Page) -> None:
    replies = page.locator("article.assistant")
    send_in_example(page, "Hello from the example")
    expect(replies).to_contain_text(" 19@", timeout=30_000)
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)

    page.reload()
    expect(page.locator("article")).to_have_count(2)
    expect(page.locator("article.user")).to_contain_text("Hello from the example")

    page.get_by_role("button", name="Edit").click()
    send_in_example(page, "Other words", "Save")
    expect(page.locator("article.user")).to_have_text("Other wordsEdit")
    expect(replies).to_contain_text(" 19@", timeout=30_000)

    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=30_000)
    expect(page.locator("article")).to_have_count(2)

    send_in_example(page, "Count slowly [[fake tokens=2000 ms=50]]")
    expect(replies.last).to_contain_text(" 10@", timeout=30_000)
    page.reload()
    # The stream is resumed from its start.
    expect(replies.last).to_contain_text(" 20@", timeout=30_000)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=30_000)
    shown = replies.last.locator("p").inner_text()
    page.reload()
    expect(replies.last).to_contain_text(" 20@", timeout=30_000)
    assert replies.last.locator("p").inner_text().startswith(shown)
    expect(page.get_by_role("alert")).to_have_count(0)
