"""Memory in the browser: enable it, state a preference, see it under the reply, undo it."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.product import Product

TURN_ON, TURN_OFF = "[name=to][value=on]", "[name=to][value=off]"


@pytest.mark.requirement("S1.2", by="user")
def test_what_a_person_tells_is_noted_under_the_reply_and_used_elsewhere(
    open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    person = open_tab(product, storage_state=signed_in)
    page = person.page
    person.open("/settings/")
    page.get_by_role("link", name="Memory", exact=True).click()
    expect(page.locator(TURN_ON)).to_be_visible()
    expect(page.locator(TURN_OFF)).to_have_count(0)
    with page.expect_navigation():
        page.locator(TURN_ON).click()
    page.locator("#instructions").fill("Be brief.")
    with page.expect_navigation():
        page.get_by_role("button", name="Save instructions").click()
    expect(page.locator(TURN_OFF)).to_be_visible()

    person.new_chat("Remember that I am vegan. What can I cook?")
    person.wait_for_reply()
    noted = page.get_by_text("Saved: Diet: I am vegan")
    expect(noted).to_be_visible()

    person.new_chat("And here?")
    person.wait_for_reply()
    page.get_by_role("link", name="Prompt receipt").click()
    expect(page.get_by_text("- diet: I am vegan")).to_be_visible()
    expect(page.get_by_text("Be brief.")).to_be_visible()

    person.open("/settings/memory/")
    with page.expect_navigation():
        page.get_by_role("button", name="Delete I am vegan").click()
    expect(page.get_by_text("I am vegan", exact=True)).not_to_be_visible()
    expect(page.locator("[data-note=no-preferences]")).to_be_visible()
    page.locator(TURN_OFF).click()
    assert person.complaints == []
