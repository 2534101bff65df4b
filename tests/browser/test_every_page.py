"""Every page on a phone, in dark mode, by keyboard, and after signing out."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_chats import PHONE, start_chat_with_reply
from tests.support.page_addresses import CHAT_PAGES, PAGES, PAGES_OF_USERS

OPEN_LIST, CLOSE_LIST = "#chat-bar a[href='#sidebar']", "#sidebar a[href='#main']"
WORDS = "A wide table:\n\n| a | b | c |\n|---|---|---|\n| " + " | ".join(["x" * 60] * 3) + " |"


def test_no_page_violates_the_content_security_policy(admin: Person) -> None:
    chat = start_chat_with_reply(admin)
    admin.page.get_by_role("link", name="Prompt receipt").click()
    expect(admin.page.get_by_role("heading", name="Prompt receipt")).to_be_visible()
    for path in (*PAGES, chat, *(f"{chat}{page}" for page in CHAT_PAGES)):
        admin.open(path)
        expect(admin.page.locator("body")).to_be_visible()
        assert admin.page.title()
    assert admin.complaints == []
    assert admin.foreign == []


def test_no_page_scrolls_sideways_on_a_phone(
    open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    person = open_tab(product, storage_state=signed_in, **PHONE)
    person.open("/chats/new")
    person.page.locator("#composer-text").fill(WORDS)
    person.page.get_by_role("button", name="Send").click()
    person.wait_for_reply()
    assert not person.scrolls_sideways()
    person.page.locator("#context-meter > summary").click()
    assert not person.scrolls_sideways()
    chat = person.page.url.removeprefix(product.url)
    for path in (*PAGES_OF_USERS, *(f"{chat}{page}" for page in CHAT_PAGES)):
        person.open(path)
        assert not person.scrolls_sideways(), path
    person.open(chat)
    person.page.get_by_role("link", name="Prompt receipt").click()
    assert not person.scrolls_sideways()


def test_the_chat_list_opens_over_the_chat_on_a_phone(
    open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    person = open_tab(product, storage_state=signed_in, **PHONE)
    person.open("/chats/new")
    expect(person.page.locator("#new-chat")).not_to_be_visible()
    person.page.locator(OPEN_LIST).click()
    expect(person.page.locator("#new-chat")).to_be_visible()
    person.page.locator(CLOSE_LIST).click()
    expect(person.page.locator("#new-chat")).not_to_be_visible()


@pytest.mark.parametrize(("scheme", "is_dark"), [("dark", True), ("light", False)])
@pytest.mark.in_turn
def test_pages_are_as_dark_as_the_system(
    open_tab: Callable[..., Person], product: Product, signed_in: Any, scheme: str, is_dark: bool
) -> None:
    person = open_tab(product, storage_state=signed_in, color_scheme=scheme)
    pages = ("/chats/new", "/settings/", "/admin/contextpolicy/contextpolicy/", "/api/v1/docs")
    for path in pages:
        person.open(path)
        ground = brightness(person, "backgroundColor")
        ink = brightness(person, "color")
        assert (ground < 64) == is_dark, path
        assert abs(ground - ink) > 128, path
    # The page of the API leads back and to its guide.
    expect(person.page.get_by_role("link", name="Help")).to_have_attribute("href", "/help/api/")
    person.page.locator("nav a[href='/']").click()
    expect(person.page.locator("#new-chat")).to_be_visible()


def brightness(person: Person, name: str) -> float:
    """The brightness of a colour of the page, 0 to 255."""
    css = str(person.value(f"getComputedStyle(document.body).{name}"))
    if css == "rgba(0, 0, 0, 0)":
        css = str(person.value(f"getComputedStyle(document.documentElement).{name}"))
    numbers = [float(number) for number in re.findall(r"[\d.]+", css)[:3]]
    return sum(numbers) / 3


def test_the_keyboard_alone_is_enough(admin: Person) -> None:
    page, keys = admin.page, admin.page.keyboard
    admin.open("/chats/new")
    expect(page.locator("#composer-text")).to_be_focused()
    keys.type("By keyboard")
    keys.press("Shift+Enter")
    keys.type("in two lines")
    keys.press("Enter")
    admin.wait_for_reply()
    assert "By keyboard\nin two lines" in page.locator(".msg--user").inner_text()

    keys.press("Alt+c")
    expect(page.locator("#context-meter .popover")).to_be_visible()
    keys.press("Escape")
    expect(page.locator("#context-meter .popover")).not_to_be_visible()
    expect(page.locator("#context-meter > summary")).to_be_focused()
    keys.press("Alt+ArrowUp")
    expect(page.locator("article.msg").last).to_be_focused()
    keys.press("?")
    expect(page.locator("#keys")).to_be_visible()
    keys.press("Escape")
    expect(page.locator("#keys")).not_to_be_visible()
    tab_to(admin, "Regenerate reply")
    keys.press("ArrowLeft")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Prompt receipt")).to_be_visible()


def tab_to(person: Person, name: str) -> None:
    """Press Tab until the link or button with a name has the focus."""
    for _ in range(40):
        person.page.keyboard.press("Tab")
        words = "document.activeElement.ariaLabel ?? document.activeElement.innerText?.trim()"
        if person.value(words) == name:
            return
    raise AssertionError(f"Tab never reaches {name}")


def test_a_person_sets_a_password_leaves_and_comes_back(
    open_tab: Callable[..., Person], fresh: Product
) -> None:
    person = open_tab(fresh)
    page = person.page
    person.sign_in(fresh.printed_link())
    chat = start_chat_with_reply(person)
    page.locator(".sidebar__name a[href*=password]").click()
    expect(page.get_by_role("heading", name="Set password")).to_be_visible()
    password = "a long walk by the sea"
    for field in page.locator("input[type=password]").all():
        field.fill(password)
    page.get_by_role("button", name="Set password").click()
    expect(page.locator("#composer-text")).to_be_visible()

    person.open(chat)
    person.open("/settings/")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.go_back()
    expect(page.locator("body")).not_to_contain_text("What do you know?")
    person.open(chat)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()

    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(password)
    page.keyboard.press("Enter")
    expect(person.reply).to_contain_text("Demo model")
    assert page.url == fresh.url + chat


@pytest.mark.parametrize("button", [OPEN_LIST, CLOSE_LIST])
@pytest.mark.in_turn
def test_the_menu_button_is_as_large_as_a_finger(
    open_tab: Callable[..., Person], product: Product, signed_in: Any, button: str
) -> None:
    person = open_tab(product, storage_state=signed_in, **PHONE)
    person.open("/chats/new#sidebar" if button == CLOSE_LIST else "/chats/new")
    size = person.page.locator(button).bounding_box()
    assert size is not None
    assert min(size["width"], size["height"]) >= 44


def test_a_browser_that_sizes_no_field_keeps_the_style_policy(
    open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    person = open_tab(product, storage_state=signed_in)
    person.page.context.add_init_script(
        "const known = CSS.supports;"
        "CSS.supports = (name, ...value) => name !== 'field-sizing' && known(name, ...value);"
    )
    person.new_chat("A question")
    person.wait_for_reply()
    person.page.locator("#composer-text").fill("one\ntwo\nthree\nfour\nfive")
    height = person.value("document.querySelector('#composer-text').style.height")
    assert height.endswith("px")
    person.send("Another question")
    assert person.complaints == []
