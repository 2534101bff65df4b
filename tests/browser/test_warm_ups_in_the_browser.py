"""Typing in an idle chat starts a cache warm-up; opening the chat does not."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Request, expect

from tests.browser.desk import Person
from tests.browser.product import SAVE_SERVER, Product
from tests.fakes.fake_server import FakeServer
from tests.faults.programs import until


@pytest.fixture
def near(browser: Browser, fake: FakeServer) -> Iterator[Product]:
    """An installation with a local model server; a chat is idle after half a second."""
    running = Product(ALLOWED_PRIVATE_PROVIDERS=fake.host, WARM_UP_REST_SECONDS="0.5")
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def local(near: Product, open_tab: Callable[..., Person], fake: FakeServer) -> Person:
    """The installation's administrator, with the server connected."""
    person = open_tab(near)
    person.sign_in(near.printed_link())
    person.open("/setup/")
    person.page.get_by_label("Address").fill(fake.base_url)
    person.page.get_by_label("Name", exact=True).fill("The server here")
    person.page.locator(SAVE_SERVER).click()
    expect(person.page.locator(".card", has_text="The server here")).to_contain_text("In use")
    return person


def test_typing_in_a_rested_chat_sends_one_warm_up_and_opening_it_none(
    local: Person, fake: FakeServer
) -> None:
    fake.configure(tokens=5)
    local.new_chat("The first message")
    local.wait_for_reply()
    asked: list[Request] = []
    local.page.on("request", lambda r: asked.append(r) if r.url.endswith("/warm-up") else None)
    fake.forget_requests()
    local.page.wait_for_timeout(1000)
    local.page.reload()
    expect(local.page.locator("#composer-text")).to_be_visible()
    local.page.wait_for_timeout(500)
    assert (asked, fake.requests()) == ([], [])

    local.page.locator("#composer-text").click()
    local.page.keyboard.type("And now?")
    until(lambda: fake.requests() and fake.requests()[0]["outcome"] == "done", seconds=60)
    local.page.wait_for_timeout(500)
    (warm,) = fake.requests()
    assert warm["body"]["max_tokens"] == 1
    assert [request.method for request in asked] == ["POST"]

    local.page.keyboard.press("Enter")
    until(lambda: len(fake.requests()) == 2, seconds=60, what="the request for the reply")
    local.wait_for_reply()
    _, reply = fake.requests()
    sent, read = reply["body"]["messages"], warm["body"]["messages"]
    assert sent[: len(read)] == read
    assert [message["content"] for message in sent[len(read) :]] == ["And now?"]
    assert len(asked) == 1
