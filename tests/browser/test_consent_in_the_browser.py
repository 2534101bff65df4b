"""Consent to tool calls in the browser: connect a server, allow a call, and deny one."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.desk import Person, must_be_quiet
from tests.browser.product import SAVE_SERVER, Product
from tests.browser.rest import ask, read
from tests.fakes.fake_server import FakeServer
from tests.fakes.tool_server import FakeToolServer, describe, serving_tools
from tests.support.browser_chats import open_tab_at

TOOLS = "/admin/contextpolicy/tooldefinition/"
WIDTHS = (1280, 390)
# One line, and a word that is wider than a phone.
LONG = "Write all of this: " + "many words and " * 40 + "x" * 200
# Parts that are wider than their notice.
WIDER = """(notice) => [...notice.querySelectorAll("*")].filter(
  (part) => part.getBoundingClientRect().right > notice.getBoundingClientRect().right + 1
    || part.scrollWidth > part.clientWidth + 1
).map((part) => part.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def tools() -> Iterator[FakeToolServer]:
    """A server with one tool."""
    with serving_tools() as fake:
        fake.tools = [describe("write", description="Write a line into the log.")]
        yield fake


@pytest.fixture(scope="module")
def product(browser: Browser, fake: FakeServer, tools: FakeToolServer) -> Iterator[Product]:
    """An installation that may call both servers."""
    running = Product(
        ALLOWED_PRIVATE_PROVIDERS=f"{fake.host},{tools.host}", MESSAGES_PER_MINUTE="1000"
    )
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def connected(
    browser: Browser, product: Product, signed_in: Any, fake: FakeServer, tools: FakeToolServer
) -> None:
    """Both servers, connected and approved on the pages as an operator does."""
    context = browser.new_context(storage_state=signed_in)
    person = Person(context.new_page(), product)
    page = person.page
    person.open("/setup/")
    page.locator("[name=base_url]").fill(fake.base_url)
    page.locator(SAVE_SERVER).click()
    expect(page.locator(".card", has_text=fake.host)).to_be_visible()
    person.open("/admin/contextpolicy/toolserver/add/")
    for name, value in {"name": "Files", "slug": "files", "url": tools.url}.items():
        page.locator(f"#id_{name}").fill(value)
    with page.expect_navigation():
        page.locator("[name=_save]").click()
    # A worker reads the definitions.
    expect(wait_for_rows(person)).to_have_count(1, timeout=30_000)
    page.locator("#action-toggle").check()
    page.locator("select[name=action]").select_option("approve")
    page.locator("button[name=index]").click()
    page.locator("[name=confirmed]").locator("xpath=ancestor::form//*[@type='submit']").click()
    expect(page.locator("[name=confirmed]")).to_have_count(0)
    must_be_quiet(person)
    context.close()


def wait_for_rows(person: Person) -> Any:
    """Open the list of tools until it has one; return its rows."""
    rows = person.page.locator("#result_list tbody tr")
    for _ in range(60):
        person.open(TOOLS)
        if rows.count():
            break
        person.page.wait_for_timeout(500)
    return rows


@pytest.fixture
def chat(admin: Person, connected: None, fake: FakeServer) -> Iterator[str]:
    """A chat whose policy allows the tool, and a model that calls it."""
    del connected
    slugs = [row["slug"] for row in read(admin, "policies")["data"]]
    if "tools" not in slugs:
        values = {"tools": ["files/*"]}
        ask(admin, "policies", {"slug": "tools", "name": "Tools", "values": values})
    made: str = ask(admin, "chats", {})["id"]
    ask(admin, "policies/assignments", {"policy": "tools", "level": "chat", "chat": made})
    calls = [
        {
            "match": text,
            "tool_calls": [{"name": "files__write", "id": text[:4], "arguments": {"text": text}}],
        }
        for text in ("Note this.", "Drop that.", LONG)
    ]
    fake.configure(replies=calls, faults=[])
    yield made
    fake.configure(replies=[], faults=[])


def say(person: Person, text: str) -> None:
    """Send a message with the button, and wait until it is stored."""
    person.page.locator("#composer-text").fill(text)
    person.page.locator("#send").click()
    expect(person.page.locator(".msg--user:not(.is-sending)", has_text=text)).to_be_visible()


@pytest.mark.requirement("S0.6", by="user")
def test_a_call_is_allowed_once_and_the_next_one_denied(
    admin: Person, chat: str, tools: FakeToolServer
) -> None:
    page = admin.page
    admin.open(f"/chats/{chat}/")
    request = page.locator("[data-note=tool-consent]")

    say(admin, "Note this.")
    expect(request.locator("pre")).to_contain_text("Note this.", timeout=30_000)
    # A screen reader announces the request.
    expect(page.locator("#status")).to_have_text(request.locator("h2").inner_text())
    other = open_tab_at(page.context, page.url)
    expect(other.locator("[data-note=tool-consent]")).to_be_visible()
    other.locator(".msg--user").first.hover()
    other.locator(".msg--user [data-act=pin] button").first.click()
    expect(page.locator(".msg--user")).to_have_attribute("data-marks", "pinned")
    other.close()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert not admin.scrolls_sideways()
    assert tools.calls == []
    page.reload()
    request.locator("[value=once]").click()
    expect(request).to_have_count(0)
    admin.wait_for_reply()
    assert [call["arguments"]["text"] for call in tools.calls] == ["Note this."]

    # Allowed once: the next call asks again.
    say(admin, "Drop that.")
    request.locator("[value=deny]").click(timeout=30_000)
    expect(request).to_have_count(0)
    admin.wait_for_reply()
    assert len(tools.calls) == 1
    kinds = [row["type"] for row in read(admin, "audit/events?limit=50")["data"]]
    assert {"tool.consent_given", "tool.consent_denied"} <= set(kinds)


def test_long_arguments_are_readable_before_they_are_allowed(admin: Person, chat: str) -> None:
    page = admin.page
    admin.open(f"/chats/{chat}/")
    request = page.locator("[data-note=tool-consent]")
    say(admin, LONG)
    expect(request.locator("pre")).to_contain_text("xxx", timeout=30_000)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert request.evaluate(WIDER) == []
    request.locator("[value=deny]").click()
    expect(request).to_have_count(0)
    admin.wait_for_reply()
