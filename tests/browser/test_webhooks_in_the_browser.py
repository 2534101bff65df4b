"""A webhook for replies: created on the page, delivered by a real worker."""

import json
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.fakes.receiver import Receiver, receiving
from tests.faults.programs import until

PHONE: ViewportSize = {"width": 390, "height": 844}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server in the private network."""
    with receiving() as running:
        yield running


@pytest.fixture
def product(browser: Browser, receiver: Receiver) -> Iterator[Product]:
    """An installation that may call it."""
    del browser
    running = Product(ALLOWED_PRIVATE_WEBHOOKS=receiver.host, SWEEP_EVERY="1")
    try:
        yield running
    finally:
        running.close()


@pytest.mark.requirement("S3.10", by="integrator")
def test_a_reply_is_told_tried_again_and_read_in_the_log(
    product: Product, receiver: Receiver, open_tab: Callable[..., Person]
) -> None:
    person = open_tab(product)
    person.sign_in(product.printed_link())
    page = person.page
    make(person, receiver)
    person.new_chat("What is a palimpsest?")
    person.wait_for_reply()
    # Three events, the first of them twice: after five seconds the delivery is retried.
    until(lambda: len(receiver.came) == 4, seconds=60)
    names = [json.loads(body)["type"] for _, body in receiver.came]
    assert names == ["message.added", "message.added", "message.added", "turn.finished"]
    ids = [headers["webhook-id"] for headers, _ in receiver.came]
    assert (ids[0], len(set(ids))) == (ids[1], 3)

    person.open("/settings/webhooks/")
    page.get_by_role("link", name=receiver.url).click()
    expect(page.get_by_text("Delivered")).to_have_count(3)
    page.get_by_role("button", name="Send test").click()
    until(lambda: len(receiver.came) == 5, seconds=30)
    page.get_by_role("link", name="Refresh").click()
    expect(page.get_by_text("Delivered")).to_have_count(4)
    row = page.get_by_role("row", name="webhook.test")
    row.get_by_role("button", name="Send again").click()
    until(lambda: len(receiver.came) == 6, seconds=30)
    page.get_by_role("button", name="Disable webhook").click()
    expect(page.get_by_text("Disabled")).to_be_visible()
    expect(page.get_by_role("button", name="Send test")).to_have_count(0)
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def make(person: Person, receiver: Receiver) -> None:
    """Create a webhook to the receiver, and wait until every process knows it."""
    page = person.page
    person.open("/settings/")
    page.get_by_role("link", name="Webhooks").click()
    page.get_by_label("Address").fill(receiver.url)
    page.locator("[name=events][value='message.added']").check()
    page.get_by_role("button", name="Create webhook").click()
    secret = page.locator(".secret code")
    expect(secret).to_contain_text("whsec_")
    page.wait_for_timeout(6_000)
    receiver.statuses = [503]
