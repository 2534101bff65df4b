"""Search in the browser: the palette on every page, and the search page with its filters."""

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person, wait_until
from tests.browser.product import Product
from tests.support.browser_chats import PHONE

QUESTION = "#palette-question"
AXE = "axe.run(document, {resultTypes: ['violations']})"


def serious(person: Person) -> list[str]:
    """axe's serious problems of the current page."""
    source = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    person.value(source)
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}"
        for each in person.value(AXE)["violations"]
    ]


def found_in_palette(person: Person, words: str) -> Any:
    """The palette's options for some words, after the background job has indexed them."""
    page = person.page
    options = page.locator("#palette-list [role=option]")
    for _ in range(60):
        page.locator(QUESTION).fill("")
        expect(page.locator("#palette-found")).to_have_attribute("data-question", "")
        page.locator(QUESTION).press_sequentially(words)
        expect(page.locator("#palette-found")).to_have_attribute("data-question", words)
        if options.count() > 1:
            break
        page.wait_for_timeout(250)
    return options


def shot(person: Person, name: str) -> None:
    """Save a screenshot if requested."""
    if folder := os.environ.get("SHOTS"):
        person.page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.mark.memory_case(36)
@pytest.mark.memory_case(37)
def test_the_palette_finds_while_somebody_types_and_opens_the_place(admin: Person) -> None:
    page = admin.page
    admin.new_chat("Pressure of the zanzibar pump")
    admin.wait_for_reply()
    chat = page.url
    admin.open("/settings/")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()
    expect(page.locator(QUESTION)).to_be_focused()
    options = found_in_palette(admin, "zanzib")
    expect(options.locator("mark").first).to_have_text("zanzibar")
    shot(admin, "palette")
    box = page.locator(QUESTION)
    expect(box).to_have_attribute("aria-expanded", "true")
    expect(box).to_have_attribute("aria-activedescendant", options.first.get_attribute("id") or "")
    page.keyboard.press("ArrowDown")
    chosen = page.locator("#palette-list [aria-selected=true]")
    expect(box).to_have_attribute("aria-activedescendant", chosen.get_attribute("id") or "")
    assert serious(admin) == []
    # The Enter key of an input method opens nothing, whether or not its composition has ended.
    for detail in ("isComposing: true", "keyCode: 229"):
        admin.value(
            f"document.querySelector('{QUESTION}').dispatchEvent(new KeyboardEvent('keydown',"
            f" {{key: 'Enter', bubbles: true, cancelable: true, {detail}}}))"
        )
    assert page.url.endswith("/settings/")
    page.keyboard.press("Enter")
    expect(page.locator("article.msg").first).to_contain_text("zanzibar")
    assert page.url.startswith(chat)
    page.go_back()
    assert page.url.endswith("/settings/")
    assert admin.complaints == []


@pytest.mark.memory_case(38)
def test_a_slow_answer_to_older_words_never_replaces_a_newer_one(admin: Person) -> None:
    page = admin.page
    held: list[Any] = []

    def hold(route: Any) -> None:
        if "q=old" in route.request.url:
            held.append(route)
        else:
            route.continue_()

    admin.open("/settings/")
    page.route("**/search/palette*", hold)
    page.keyboard.press("Control+k")
    page.locator(QUESTION).press_sequentially("old")
    wait_until(page, lambda: bool(held), "the held request")
    page.locator(QUESTION).fill("")
    page.locator(QUESTION).press_sequentially("newer")
    expect(page.locator("#palette-found")).to_have_attribute("data-question", "newer")
    for route in held:
        route.abort() if page.is_closed() else route.continue_()
    page.wait_for_timeout(300)
    expect(page.locator("#palette-found")).to_have_attribute("data-question", "newer")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).not_to_be_visible()
    # A newer request replaced a late one: not an error of the page.
    assert admin.complaints == []


def test_the_page_follows_what_is_typed_and_back_returns_to_the_list(
    open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    person = open_tab(product, storage_state=signed_in, **PHONE)
    page = person.page
    person.open("/chats/new")
    page.locator("#composer-text").fill("Where is the marabou now?")
    page.get_by_role("button", name="Send").click()
    person.wait_for_reply()
    hits = page.locator("#hits .hits__list mark")
    for _ in range(60):
        person.open("/search?q=marabou")
        if hits.count():
            break
        page.wait_for_timeout(250)
    assert not person.scrolls_sideways()
    person.open("/search")
    page.locator("#search-question").press_sequentially("marab")
    expect(hits.first).to_have_text("marabou")
    shot(person, "search-phone")
    assert "q=marab" in page.url
    assert serious(person) == []
    page.locator("#hits a.found__item", has=page.locator("mark")).first.click()
    expect(page.locator("article.msg").first).to_contain_text("marabou")
    page.go_back()
    expect(hits.first).to_have_text("marabou")
