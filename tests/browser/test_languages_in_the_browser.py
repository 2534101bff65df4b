"""Languages in a browser: the choice, long words from right to left, and nothing cut off."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests import pseudo
from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_chats import PHONE
from tests.support.page_addresses import CHAT_PAGES, PAGES_OF_USERS

HAN = re.compile(r"[\u4e00-\u9fff]")
# Elements whose text is wider or higher than they are, and hidden there. Titles that people wrote
# end in an ellipsis on purpose, and menus scroll.
CUT = """
    [...document.querySelectorAll("body *")].filter((one) => {
      const style = getComputedStyle(one);
      const ways = [style.overflowX, style.overflowY];
      const isHiding = ways.some((way) => ["hidden", "clip"].includes(way));
      const isShown = one.clientWidth > 1 && one.clientHeight > 1 && one.checkVisibility();
      const isWider = one.scrollWidth > one.clientWidth + 1;
      const isHigher = one.scrollHeight > one.clientHeight + 1;
      const isElsewhere = one.closest(".sr-only, bdi, svg, [hidden]");
      const isMarked = style.textOverflow === "ellipsis";
      return isHiding && isShown && (isWider || isHigher) && !isElsewhere && !isMarked
        && one.innerText?.includes("⟦");
    }).map((one) => `${one.tagName.toLowerCase()}.${one.className}: ${one.innerText.slice(0, 60)}`)
"""


@pytest.fixture(scope="module")
def product(browser: Browser) -> Iterator[Product]:
    """An installation with the pseudo-locale."""
    running = Product(DJANGO_SETTINGS_MODULE="tests.pseudo_settings", MESSAGES_PER_MINUTE="1000")
    try:
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_long_words_from_right_to_left_are_not_cut_off(
    open_tab: Callable[..., Person], product: Product, signed_in: Any, width: int
) -> None:
    options: dict[str, Any] = PHONE if width == 390 else {}
    person = open_tab(product, storage_state=signed_in, locale=pseudo.CODE, **options)
    person.open("/chats/new")
    expect(person.page.locator("html")).to_have_attribute("dir", "rtl")
    person.page.locator("#composer-text").fill("What do you know?")
    person.page.locator("#composer-box button[type=submit]").last.click()
    person.wait_for_reply()
    chat = person.page.url.removeprefix(product.url)
    found = {}
    for path in (chat, *PAGES_OF_USERS, *(f"{chat}{page}" for page in CHAT_PAGES)):
        person.open(path)
        cut = person.page.evaluate(CUT)
        if cut or person.scrolls_sideways():
            found[path] = cut or "scrolls sideways"
    assert found == {}


def test_a_person_chooses_chinese_and_every_page_follows(
    open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    person = open_tab(product, storage_state=signed_in)
    person.open("/settings/appearance/")
    person.page.locator("#id_language").select_option("zh-hans")
    person.page.locator("main form button[type=submit]").click()
    expect(person.page.locator("html")).to_have_attribute("lang", "zh-hans")
    expect(person.page.locator(".notice--ok")).to_have_text(HAN)
    for path in ("/chats/new", "/admin/", "/help/policies/", "/admin/contextpolicy/contextpolicy/"):
        person.open(path)
        expect(person.page.locator("html")).to_have_attribute("lang", "zh-hans")
        expect(person.page.locator("h1").first).to_have_text(HAN)
    # Sentences of the scripts, too.
    person.open("/chats/new")
    words = person.page.evaluate("window.django.gettext('Try again')")
    assert HAN.search(words)
    person.open("/settings/appearance/")
    person.page.locator("#id_language").select_option("")
    person.page.locator("main form button[type=submit]").click()
    expect(person.page.locator("html")).to_have_attribute("lang", "en")
