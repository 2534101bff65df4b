"""Typed text stays when the page around it is redrawn, and shortcuts do not take its keys."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_summaries import SEND_EDIT

# Presses a key in the focused field. Returns true if no shortcut took it.
PRESS = """
(event) => document.activeElement.dispatchEvent(
  new KeyboardEvent("keydown", { bubbles: true, cancelable: true, ...event })
)
"""


def test_an_edit_stays_open_while_the_end_of_the_chat_is_drawn_anew(
    admin: Person, open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    admin.new_chat("A question")
    admin.wait_for_reply()
    mine = admin.page.locator(".msg--user").first
    admin.acts_of(mine).locator("[data-act=edit]").click()
    field = admin.page.get_by_label("Edit message")
    expect(field).to_be_focused()
    field.fill("A better question, half wri")
    admin.mark_page()

    other = open_tab(product, storage_state=signed_in)
    other.page.goto(admin.page.url)
    other.send("Meanwhile in another tab")
    expect(admin.page.locator(".msg--user", has_text="Meanwhile")).to_be_visible()
    admin.wait_for_reply()

    expect(field).to_have_value("A better question, half wri")
    expect(field).to_be_focused()
    admin.page.keyboard.type("tten")
    expect(field).to_have_value("A better question, half written")
    assert not admin.was_reloaded()
    admin.page.get_by_role("link", name="Cancel").click()
    expect(field).to_have_count(0)


def test_an_edit_that_was_kept_is_sent(
    admin: Person, open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    admin.new_chat("A question")
    admin.wait_for_reply()
    admin.acts_of(admin.page.locator(".msg--user").first).locator("[data-act=edit]").click()
    admin.page.get_by_label("Edit message").fill("A better question")
    other = open_tab(product, storage_state=signed_in)
    other.page.goto(admin.page.url)
    other.send("Meanwhile in another tab")
    expect(admin.page.locator(".msg--user", has_text="Meanwhile")).to_be_visible()
    admin.wait_for_reply()
    admin.page.locator(SEND_EDIT).click()
    expect(admin.page.locator(".msg--user", has_text="A better question")).to_be_visible()
    expect(admin.page.locator(".msg--user", has_text="Meanwhile")).to_have_count(0)
    admin.wait_for_reply()


def test_the_options_of_a_summary_stay_when_a_reply_ends(admin: Person) -> None:
    admin.new_chat("A question")
    admin.wait_for_reply()
    admin.type("Another one")
    expect(admin.page.locator("[data-live]")).to_have_count(1)
    admin.page.locator("#context-meter > summary").click()
    options = admin.page.locator("#context-meter input[name=focus]")
    options.fill("the prices")
    admin.wait_for_reply()
    expect(options).to_have_value("the prices")
    expect(options).to_be_focused()


def test_letters_and_words_are_left_to_the_box_and_the_rest_is_a_shortcut(admin: Person) -> None:
    admin.open("/chats/new")
    admin.mark_page()
    admin.page.locator("#composer-text").focus()
    for event in (
        {"code": "KeyN", "key": "ń", "altKey": True},
        {"code": "KeyC", "key": "ć", "altKey": True},
        {"code": "KeyO", "key": "Dead", "altKey": True},
        {"code": "ArrowLeft", "key": "ArrowLeft", "altKey": True},
        {"code": "Escape", "key": "Escape", "isComposing": True},
    ):
        assert admin.page.evaluate(PRESS, event), event
    assert not admin.was_reloaded()
    assert not admin.page.evaluate(PRESS, {"code": "KeyN", "key": "n", "altKey": True})
