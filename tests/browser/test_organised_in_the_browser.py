"""Folders, keys and servers in the browser."""

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, expect

from tests.browser.desk import Person
from tests.browser.product import SAVE_SERVER, Product
from tests.fakes.fake_server import FakeServer
from tests.support.browser_chats import PHONE


def open_chat_menu(person: Person) -> Locator:
    """Open the chat's menu and return its entries."""
    person.page.locator("summary[aria-label='Chat actions']").click()
    return person.page.locator(".chat__actions .menu__panel:has([name=pinned])")


def menu(person: Person, entry: str) -> Locator:
    """The entry of the chat's menu that a selector finds. Opens the menu first."""
    return open_chat_menu(person).locator(entry)


def in_list(person: Person, title: str) -> Locator:
    """A chat in the list."""
    return person.page.locator("#chat-list .navitem", has_text=title)


def test_a_chat_is_pinned_and_filed_and_its_folder_opens_in_place(admin: Person) -> None:
    page = admin.page
    admin.new_chat("Pressure of the heat pump")
    admin.wait_for_reply()
    open_chat_menu(admin).locator("[name=pinned]").click()
    pinned = page.locator(".navgroup", has=page.get_by_role("heading", name="Pinned"))
    expect(pinned.locator(".navitem", has_text="Pressure")).to_be_visible()
    menu(admin, "[name=pinned]").click()
    expect(page.get_by_role("heading", name="Pinned")).to_have_count(0)

    menu(admin, "a[href$='/folder']").click()
    page.locator("#folder-name").fill("Warranty cases")
    page.get_by_role("button", name="Move chat").click()
    folder = page.locator(".navfolder", has_text="Warranty cases")
    expect(folder).to_have_attribute("open", "")
    expect(folder.locator("[aria-current=page]")).to_contain_text("Pressure")

    admin.open("/chats/new")
    expect(in_list(admin, "Pressure")).not_to_be_visible()
    admin.mark_page()
    folder.locator("summary").click()
    expect(in_list(admin, "Pressure")).to_be_visible()
    assert not admin.was_reloaded()
    in_list(admin, "Pressure").click()
    expect(admin.reply).to_be_visible()

    folder.locator("a.navitem--quiet").click()
    page.get_by_role("button", name="Delete folder").click()
    expect(page.locator(".navfolder")).to_have_count(0)
    expect(in_list(admin, "Pressure")).to_be_visible()


def test_an_empty_folder_is_opened_in_the_list_and_deleted(admin: Person) -> None:
    page = admin.page
    admin.new_chat("Drawings of the boiler")
    admin.wait_for_reply()
    menu(admin, "a[href$='/folder']").click()
    page.locator("#folder-name").fill("Empty soon")
    page.get_by_role("button", name="Move chat").click()
    menu(admin, "a[href$='/folder']").click()
    page.get_by_label("No folder").check()
    with page.expect_navigation():
        page.get_by_role("button", name="Move chat").click()

    admin.open("/chats/new")
    folder = page.locator(".navfolder", has_text="Empty soon")
    folder.locator("summary").click()
    expect(folder.locator("[data-note=empty-folder]")).to_be_visible()
    folder.locator("a.navitem--quiet").click()
    page.get_by_role("button", name="Delete folder").click()
    expect(page.locator("#chat-list")).to_be_visible()
    expect(folder).to_have_count(0)


def test_a_chat_is_archived_and_deleted_and_both_are_taken_back(admin: Person) -> None:
    page = admin.page
    admin.new_chat("Tariffs of the winter")
    admin.wait_for_reply()
    menu(admin, "[name=archived]").click()
    expect(page.locator(".chat__bar .chip", has_text="Archived")).to_be_visible()
    page.locator("#sidebar a[href='/chats/archive']").click()
    unarchive = page.get_by_role("button", name="Unarchive chat")
    unarchive.click()
    expect(unarchive).to_have_count(0)
    page.get_by_role("link", name="Newest chat").click()
    expect(in_list(admin, "Tariffs")).to_be_visible()

    menu(admin, "form[action$='/delete'] [type=submit]").click()
    expect(page.get_by_role("heading", name="Chat deleted")).to_be_visible()
    page.get_by_role("button", name="Restore chat").click()
    expect(admin.reply).to_contain_text("Demo model")


def test_a_temporary_chat_says_so_and_is_erased_by_its_button(admin: Person) -> None:
    page = admin.page
    admin.open("/chats/new")
    page.get_by_label("Temporary chat").check()
    admin.type("Only for now")
    expect(page.locator(".chat__bar .chip", has_text="Temporary")).to_be_visible()
    admin.wait_for_reply()
    address = page.url
    open_chat_menu(admin).locator("form[action$='/delete'] [type=submit]").click()
    expect(page.locator("#welcome")).to_be_visible()
    expect(in_list(admin, "Only for now")).to_have_count(0)
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 404
    expect(page.locator("#refusal")).to_be_visible()


def test_a_key_is_made_copied_and_revoked(admin: Person) -> None:
    page = admin.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    admin.open("/settings/")
    page.get_by_role("link", name="API keys").click()
    page.get_by_label("Name", exact=True).fill("warehouse-bot")
    page.locator("[name=scopes][value='audit:read']").check()
    page.get_by_role("button", name="Create key").click()
    secret = page.locator("#new-key code").first.inner_text()
    assert secret.startswith("plm_")
    page.locator("#new-key").get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert admin.value("navigator.clipboard.readText()") == secret
    answer = page.request.get(
        admin.product.url + "/api/v1/chats", headers={"Authorization": f"Bearer {secret}"}
    )
    assert answer.status == 200
    admin.open("/settings/keys/")
    expect(page.locator("body")).not_to_contain_text(secret)
    row = page.locator("tr", has_text="warehouse-bot")
    expect(row).to_contain_text("audit:read")
    row.get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")


def test_a_server_is_connected_edited_refused_twice_and_disconnected(
    admin: Person, fake: FakeServer
) -> None:
    page = admin.page
    fake.configure(models=[{"id": "quick", "meta": {"n_ctx": 4096}}, {"id": "bge-m3"}])
    admin.open("/setup/")
    page.get_by_label("Address").fill(fake.base_url)
    page.get_by_label("Name", exact=True).fill("Shelf")
    page.locator(SAVE_SERVER).click()
    expect(page.locator(".notice--ok")).to_contain_text(
        re.compile(r"Shelf responded in \d+\.\d+ s\. Chat models: 1\.")
    )
    card = page.locator("#provider-shelf")
    expect(card).to_contain_text("quick, 4096 tokens")
    expect(card).not_to_contain_text("bge-m3")
    # Again: the error appears, and the typed text is still there.
    page.get_by_label("Address").fill(fake.base_url)
    page.get_by_label("Key").fill("sk-typed")
    page.locator(SAVE_SERVER).click()
    expect(page.locator("#server-refusal")).to_contain_text("already connected as “Shelf”")
    expect(page.get_by_label("Key")).to_have_value("sk-typed")

    card.get_by_role("button", name="Test again").click()
    expect(page.locator(".notice--ok")).to_contain_text("Shelf responded in")
    card.locator("a[href^='/setup/']").click()
    # The page that is left has a field with this name too.
    page.wait_for_url(re.compile(r"/setup/[^?#]"))
    page.get_by_label("Name", exact=True).fill("Rack")
    page.locator(SAVE_SERVER).click()
    expect(card).to_contain_text("Rack")
    card.locator("a[href^='/setup/']").click()
    page.get_by_role("button", name="Disconnect").click()
    expect(page.get_by_text("Rack was disconnected")).to_be_visible()
    expect(card).to_have_count(0)


def test_the_new_pages_fit_a_phone(
    open_tab: Callable[..., Person], product: Product, signed_in: Any
) -> None:
    person = open_tab(product, storage_state=signed_in, **PHONE)
    person.open("/chats/new")
    person.page.locator("#composer-text").fill("On the phone " + "x" * 120)
    person.page.get_by_role("button", name="Send").click()
    person.wait_for_reply()
    chat = person.page.url.removeprefix(product.url)
    for path in ("/chats/archive", "/settings/keys/", "/setup/", f"{chat}folder"):
        person.open(path)
        assert not person.scrolls_sideways(), path
