"""Actions on pages cause no errors in the browser's console.

Every tab of the browser tests is checked (`Person`). These tests cover the check itself, and
controls that no other test uses.
"""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.desk import Person, must_be_quiet
from tests.browser.product import Product
from tests.support.browser_chats import start_chat_with_reply
from tests.support.page_addresses import CHAT_PAGES, PAGES

KEYS = ["Escape", "?", "?", "Escape", "Alt+c", "Alt+o", "ArrowLeft", "ArrowUp"]
KEYS += ["Alt+ArrowUp", "Alt+ArrowDown", "Alt+ArrowLeft", "Alt+ArrowRight"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("console.error('said aloud')", "said aloud"),
        ("setTimeout(() => { throw new Error('thrown') })", "thrown"),
        ("Promise.reject(new Error('left alone')); 0", "left alone"),
        ("document.body.append(Object.assign(new Image(), {src: '/static/none.svg'}))", "404"),
        ("document.body.setAttribute('style', 'color: red')", "Content Security Policy"),
        ("import('/static/js/none.js'); 0", "none.js"),
        ("open('/settings/').console.error('said elsewhere'); 0", "said elsewhere"),
    ],
)
def test_what_goes_wrong_on_a_page_is_heard(
    browser: Browser, product: Product, signed_in: Any, script: str, words: str
) -> None:
    context = browser.new_context(storage_state=signed_in)
    person = Person(context.new_page(), product)
    person.open("/settings/")
    must_be_quiet(person)
    person.value(script)
    for _ in range(50):
        if person.complaints:
            break
        person.page.wait_for_timeout(100)
    with pytest.raises(AssertionError, match=words):
        must_be_quiet(person)
    context.close()


@pytest.mark.in_turn
def test_no_key_upsets_a_page(
    open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    person = open_tab(product, storage_state=signed_in)
    chat = start_chat_with_reply(person)
    for path in (*PAGES, chat, *(f"{chat}{page}" for page in CHAT_PAGES)):
        person.open(path)
        for inside in (True, False):
            if not inside:
                person.value("document.activeElement.blur()")
            for key in KEYS:
                person.page.keyboard.press(key)
        assert person.complaints == [], path


@pytest.mark.parametrize("place", ["#12", "#a:b", "#%", "#tail", "#nowhere"])
@pytest.mark.in_turn
def test_an_address_may_name_any_place(admin: Person, place: str) -> None:
    chat = start_chat_with_reply(admin)
    admin.open("/settings/")
    admin.open(chat.split("#")[0] + place)
    # All scripts ran without an error.
    expect(admin.page.locator(".msg__acts [tabindex='0']").first).to_be_attached()
