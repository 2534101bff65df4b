"""An administrator writes a policy in the browser, and the next reply obeys it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.desk import Person, must_be_quiet
from tests.browser.product import Product
from tests.contextpolicy.strategy_package import install

LIST = "/admin/contextpolicy/contextpolicy/"
ADD = f"{LIST}add/"
STRATEGY = """{"id": "asker", "contextStrategy": {
    "type": "plugin", "pluginId": "questions_only", "config": {"count": 4}
}}"""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def extended(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """An installation in which a package with two strategies is installed."""
    package: Path = install(tmp_path_factory)
    running = Product(PYTHONPATH=str(package), MESSAGES_PER_MINUTE="1000")
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def editor(browser: Browser, extended: Product) -> Any:
    """The cookies of that installation's administrator."""
    context = browser.new_context()
    person = Person(context.new_page(), extended)
    person.sign_in(extended.printed_link())
    must_be_quiet(person)
    state = context.storage_state()
    context.close()
    return state


def group(page: Page, title: str) -> Any:
    return page.locator("fieldset", has=page.get_by_role("heading", name=title, exact=True))


def test_groups_that_a_strategy_does_not_use_step_aside(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    person.open(ADD)
    strategy = person.page.locator("#id_strategy")
    for title in ("Summary", "Compaction", "Config of questions_only"):
        expect(group(person.page, title)).to_be_visible()

    strategy.select_option("simple")
    for title in ("Summary", "Compaction", "Config of questions_only"):
        expect(group(person.page, title)).not_to_be_visible()
    strategy.select_option("questions_only")
    expect(group(person.page, "Config of questions_only")).to_be_visible()
    expect(group(person.page, "Summary")).not_to_be_visible()

    assert person.complaints == []


def test_every_group_is_there_without_scripts(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor, java_script_enabled=False)
    person.open(ADD)
    person.page.locator("#id_strategy").select_option("simple")

    expect(group(person.page, "Summary")).to_be_visible()
    expect(group(person.page, "Config of questions_only")).to_be_visible()


def test_the_editor_fits_a_phone(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor, **PHONE)
    person.open(ADD)

    assert not person.scrolls_sideways()


def test_a_strategy_of_another_system_is_imported(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    page = person.page
    person.open(LIST)
    page.get_by_role("link", name="Import a strategy").click()
    page.get_by_label("Text").fill(STRATEGY.replace("count", "colour"))
    page.get_by_role("button", name="Import").click()
    expect(page.locator(".errornote")).to_have_text("Nothing was imported.")
    expect(page.locator(".errorlist")).to_contain_text("The config of questions_only does not fit")

    page.get_by_label("Text").fill(STRATEGY)
    page.get_by_role("button", name="Import").click()
    expect(page.locator(".messagelist")).to_contain_text("Imported as version 1 of asker.")
    expect(page.locator("#id_strategy")).to_have_value("questions_only")
    expect(page.locator("#id_config__questions_only__count")).to_have_value("4")


def test_the_import_fits_a_phone(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor, **PHONE)
    person.open(f"{LIST}import/")
    assert not person.scrolls_sideways()


@pytest.mark.requirement("S1.5", by="admin")
def test_a_layout_written_in_the_browser_governs_the_next_reply(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    page = person.page
    person.open(ADD)
    page.locator("#id_name").fill("As text")
    page.locator("#id_strategy").select_option("sliding_window")
    page.locator("#id_layout").select_option("A")
    page.locator("#id_question_prefix").fill("Asked: ")
    page.locator("#id_tool_output_rules").fill("look_up: cut 5")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".errorlist", has_text="Line 1: “cut 5” is no rule.")).to_be_visible()
    page.locator("#id_tool_output_rules").fill("look_up: limit 500, keep newest 2\n*: limit 900")
    page.get_by_role("button", name="Save and continue editing").click()
    expect(page.locator(".messagelist", has_text="as text in a user message")).to_be_visible()
    page.get_by_role("link", name="Assign it").click()
    page.locator("#id_place").select_option("instance")
    page.get_by_role("button", name="Save", exact=True).click()

    person.new_chat("First question")
    person.wait_for_reply()
    person.send("Second question")
    page.get_by_role("link", name="What the model saw").last.click()

    expect(page.get_by_text("Layout A: the history goes along as text")).to_be_visible()
    expect(page.get_by_text("Message 1, in message 1 of the request")).to_be_visible()
    assert person.complaints == []
