"""axe finds no serious problem on any page: light and dark, desktop and phone, two languages.

The languages change places after each round of days.
"""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.faults.shares import DAY, PARTS
from tests.support.accessibility import find_accessibility_faults
from tests.support.browser_chats import PHONE
from tests.support.page_addresses import CHAT_PAGES, PAGES

LISTS = (
    "/admin/auth/user/",
    "/admin/chats/provideraccount/",
    "/admin/chats/receipt/",
    "/admin/chats/turn/",
    "/admin/contextpolicy/auditevent/",
    "/admin/contextpolicy/modelspec/",
    "/admin/contextpolicy/policyassignment/",
    "/chats/list",
)
LOCALES = ("en-US", "zh-CN")


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("width", "scheme", "turn"),
    [
        (1280, "dark", 0),
        (390, "light", 0),
        (1280, "light", 1),
        (390, "dark", 1),
    ],
)
def test_axe_finds_nothing_serious_on_any_page(
    open_tab: Callable[..., Person],
    product: Product,
    signed_in: Any,
    scheme: str,
    width: int,
    turn: int,
) -> None:
    options: dict[str, Any] = PHONE if width == 390 else {}
    locale = LOCALES[(turn + DAY // PARTS) % len(LOCALES)]
    # Without animations colours have their final values.
    options = {**options, "color_scheme": scheme, "reduced_motion": "reduce", "locale": locale}
    # axe itself tests a style.
    options["bypass_csp"] = True
    person = open_tab(product, storage_state=signed_in, **options)
    person.open("/chats/new")
    person.page.locator("#composer-text").fill("What do you know?")
    person.page.locator("#send").click()
    expect(person.page.locator("#context-meter")).to_be_visible()
    person.wait_for_reply()
    chat = person.page.url.removeprefix(product.url)
    person.page.locator(".msg__more, .msg__acts .menu > summary").last.click()
    found = {"a chat, a menu open": find_accessibility_faults(person)}
    message = person.page.locator("article.msg").first.get_attribute("id") or ""
    actions = f"messages/{message.removeprefix('message-')}/"
    receipt = person.page.locator("a[href*='/receipt']").first.get_attribute("href")
    for path in (*PAGES, *LISTS, receipt, *(f"{chat}{page}" for page in (*CHAT_PAGES, actions))):
        person.open(str(path))
        if str(path).endswith("/docs"):
            expect(person.page.locator(".opblock").first).to_be_visible()
        found[str(path)] = find_accessibility_faults(person)
    wrong = [f"{path}: {fault}" for path, faults in found.items() for fault in faults]
    assert not wrong, "\n".join(wrong)


def test_axe_finds_nothing_serious_where_a_stranger_comes(
    open_tab: Callable[..., Person], product: Product
) -> None:
    # The pages answer once the link is printed.
    product.printed_link()
    person = open_tab(product, bypass_csp=True)
    for path in ("/login/", "/login/link/none/", "/nowhere"):
        person.open(path)
        assert find_accessibility_faults(person) == [], path
