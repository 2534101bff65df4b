"""An administrator writes a policy in the browser, and the next reply uses it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.desk import Person, must_be_quiet, wait_until
from tests.browser.product import Product
from tests.contextpolicy.strategy_package import install
from tests.support.browser_chats import PHONE
from tests.support.browser_policies import ADD_POLICY, POLICY_LIST, find_strategy_card

STRATEGY = """{"id": "asker", "contextStrategy": {
    "type": "plugin", "pluginId": "questions_only", "config": {"count": 4}
}}"""


@pytest.fixture(scope="module")
def extended(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """An installation with a package of two strategies."""
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


def test_a_policy_is_made_with_eight_touches_mended_previewed_and_saved(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    page = person.page
    person.open(ADD_POLICY)
    touched = 0

    def touch(act: Callable[[], Any]) -> None:
        nonlocal touched
        touched += 1
        act()

    touch(lambda: page.locator("#id_name").fill("Careful"))
    touch(find_strategy_card(page, "dynamic_summary").click)
    expect(page.locator("#id_keep_last_messages")).to_be_visible()
    expect(page.locator("#policy-first .policy-field")).to_have_count(7)
    touch(lambda: page.locator("#id_token_budget").fill("8000"))
    touch(lambda: page.locator("#id_keep_last_messages").fill("20"))
    touch(lambda: page.locator("#id_summarization_model").select_option("demo"))
    touch(page.get_by_label("Numbers", exact=True).check)
    # The description and the warnings follow the input.
    expect(page.locator("#policy-told")).to_contain_text("demo prepares a summary")
    expect(page.locator("#policy-told")).to_contain_text("kept_above_mark")
    touch(page.get_by_role("button", name="Set “Maximum summary length” to 600").click)
    expect(page.locator("#id_summary_max_tokens")).to_have_value("600")
    expect(page.locator("#policy-told")).not_to_contain_text("kept_above_mark")

    page.get_by_role("button", name="Preview", exact=True).click()
    expect(page.locator(".policy-side")).to_have_count(2)
    expect(page.locator(".policy-side").last).to_contain_text("Careful (edited)")
    touch(page.get_by_role("button", name="Save", exact=True).click)
    expect(page.locator(".messagelist")).to_contain_text("Version 1 is active")
    assert touched == 8
    assert person.complaints == []


def test_what_is_typed_while_a_strategy_is_on_its_way_stays(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    page = person.page
    person.open(ADD_POLICY)
    held: list[Route] = []
    page.route("**/contextpolicy/add/", lambda route: held.append(route))
    with page.expect_request("**/contextpolicy/add/"):
        find_strategy_card(page, "dynamic_summary").click()
    page.locator("#id_token_budget").fill("8000")
    page.get_by_label("Name", exact=True).fill("Typed meanwhile")
    wait_until(page, lambda: bool(held), "the held request")
    page.route("**/contextpolicy/add/", lambda route: route.continue_())
    for route in held:
        route.continue_()

    expect(page.locator("#id_keep_last_messages")).to_be_visible()
    expect(page.locator("#id_token_budget")).to_have_value("8000")
    expect(page.get_by_label("Name", exact=True)).to_have_value("Typed meanwhile")
    expect(page.locator("#policy-told")).to_contain_text("Sends at most 6,000 tokens")
    assert person.complaints == []


def test_a_search_finds_a_setting_while_it_is_typed(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    page = person.page
    person.open(ADD_POLICY)
    page.locator("#policy-find").fill("hide system")
    expect(page.locator("#id_hide_system_text")).to_be_visible()
    expect(page.get_by_text("1 setting matches")).to_be_visible()


def test_a_strategy_of_a_package_brings_its_own_inputs(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    page = person.page
    person.open(ADD_POLICY)
    count = page.locator("#id_config__questions_only__count")

    find_strategy_card(page, "questions_only").click()
    expect(count).to_be_visible()
    find_strategy_card(page, "simple").click()
    expect(page.locator("#id_window_size")).to_be_visible()
    expect(count).to_have_count(0)


def saved(person: Person, name: str) -> str:
    """Create a policy with a summary and stay on its page; return its address."""
    page = person.page
    person.open(ADD_POLICY)
    page.locator("#id_name").fill(name)
    find_strategy_card(page, "dynamic_summary").click()
    page.locator("#id_token_budget").fill("24000")
    page.locator("[name=_continue]").click()
    expect(page.locator(".messagelist")).to_contain_text("Version 1 is active")
    return page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_figures_in_plain_words_lead_to_their_fields_and_tell_what_changed(
    open_tab: Callable[..., Person], extended: Product, editor: Any, scheme: str, width: int
) -> None:
    screen = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    person = open_tab(extended, storage_state=editor, **screen)
    page = person.page
    saved(person, f"Figures {scheme} {width}")
    sentence = page.locator(".policy-sentence")
    expect(sentence.locator(".is-changed")).to_have_count(0)
    plain = sentence.locator("a").first.evaluate("link => getComputedStyle(link).color")

    page.locator("#id_token_budget").fill("16000")
    changed = sentence.locator(".is-changed").first
    expect(changed).to_have_text("12,000 (was 18,000)")
    expect(changed).to_have_attribute("title", "was 18,000")
    expect(page.locator("#was-token_budget")).to_have_text("was 24,000")
    expect(page.locator("#was-reserve_tokens")).to_be_hidden()
    style = changed.evaluate(
        "link => [getComputedStyle(link).color, getComputedStyle(link).textDecorationThickness]"
    )
    assert style[0] != plain
    assert style[1] == "3px"
    assert not person.scrolls_sideways()

    # A figure of a collapsed field expands it.
    refused = page.locator("#id_input_length_limit")
    expect(refused).to_be_hidden()
    sentence.get_by_role("link", name="32,000").click()
    expect(refused).to_be_focused()
    expect(refused).to_be_in_viewport()
    # For a field with several boxes the first gets the focus.
    page.locator("#field-pinned_kinds input").first.check()
    sentence.get_by_role("link", name="addresses").click()
    expect(page.locator("#id_pinned_kinds_0")).to_be_focused()
    page.locator("#id_token_budget").fill("24000")
    expect(page.locator("#was-token_budget")).to_be_hidden()
    assert person.complaints == []


def test_figures_are_anchors_without_scripts(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor, java_script_enabled=False)
    page = person.page
    person.open(ADD_POLICY)
    refused = page.locator("#id_input_length_limit")
    find_strategy_card(page, "dynamic_summary").click()
    page.get_by_role("button", name="Preview changes").click()
    expect(refused).to_be_hidden()
    page.locator(".policy-sentence").get_by_role("link", name="32,000").click()
    expect(refused).to_be_in_viewport()


def test_the_form_works_without_scripts(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor, java_script_enabled=False)
    page = person.page
    person.open(ADD_POLICY)
    find_strategy_card(page, "simple").click()
    page.get_by_role("button", name="Preview changes").click()
    expect(page.locator("#policy-first #id_window_size")).to_be_visible()
    # A lock is added with the value.
    lock = page.locator("#id_lock_window_size")
    expect(lock).not_to_be_visible()
    page.locator("#id_window_size").fill("900")
    expect(lock).to_be_visible()
    page.locator("#policy-find").fill("archive")
    page.get_by_role("button", name="Find setting").click()
    expect(page.locator("#id_archive")).to_be_visible()
    expect(page.locator("#id_window_size")).to_have_value("900")
    page.locator("#policy-told button").first.click()
    expect(page.locator("[data-note=not-saved-yet]")).to_be_visible()


def test_the_editor_fits_a_phone(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor, **PHONE)
    person.open(ADD_POLICY)

    assert not person.scrolls_sideways()


def test_a_strategy_of_another_system_is_imported(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    page = person.page
    person.open(POLICY_LIST)
    page.locator(".object-tools a[href$='/import/']").click()
    page.get_by_label("JSON:", exact=True).fill(STRATEGY.replace("count", "colour"))
    page.get_by_role("button", name="Import").click()
    expect(page.locator(".errornote")).to_be_visible()
    expect(page.locator(".messagelist")).to_have_count(0)
    expect(page.locator(".errorlist")).to_contain_text("The config of questions_only is invalid")

    page.get_by_label("JSON:", exact=True).fill(STRATEGY)
    page.get_by_role("button", name="Import").click()
    expect(page.locator(".messagelist")).to_contain_text("Imported as version 1 of asker.")
    expect(find_strategy_card(page, "questions_only").locator("input")).to_be_checked()
    expect(page.locator("#id_config__questions_only__count")).to_have_value("4")


def test_the_import_fits_a_phone(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor, **PHONE)
    person.open(f"{POLICY_LIST}import/")
    assert not person.scrolls_sideways()


@pytest.mark.requirement("S1.5", by="admin")
def test_a_layout_written_in_the_browser_governs_the_next_reply(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    page = person.page
    person.open(ADD_POLICY)
    page.locator("#id_name").fill("As text")
    find_strategy_card(page, "sliding_window").click()
    expect(page.locator("#policy-first #id_compact_to")).to_be_visible()
    page.locator("summary", has_text="Prompt contents").click()
    page.locator("#id_layout").select_option("A")
    page.locator("#id_question_prefix").fill("Asked: ")
    page.locator("summary", has_text="Tools").click()
    page.locator("#id_tool_output_rules").fill("look_up: cut 5")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".errorlist", has_text="Line 1: “cut 5” is not a rule.")).to_be_visible()
    page.locator("#id_tool_output_rules").fill("look_up: limit 500, keep newest 2\n*: limit 900")
    page.locator("[name=_continue]").click()
    expect(page.locator(".messagelist .layout_flattens_roles")).to_be_visible()
    page.get_by_role("link", name="Assign policy").click()
    page.locator("#id_place").select_option("instance")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".messagelist .success")).to_be_visible()

    person.new_chat("First question")
    person.wait_for_reply()
    person.send("Second question")
    page.get_by_role("link", name="Prompt receipt").last.click()

    expect(page.locator("[data-layout=A]")).to_be_visible()
    expect(page.get_by_text("Message 1, in message 1 of the request")).to_be_visible()
    assert person.complaints == []


def test_a_suggestion_clicked_while_the_form_reloads_is_applied(
    open_tab: Callable[..., Person], extended: Product, editor: Any
) -> None:
    person = open_tab(extended, storage_state=editor)
    page = person.page
    person.open(ADD_POLICY)
    find_strategy_card(page, "dynamic_summary").click()
    expect(page.locator("#id_keep_last_messages")).to_be_visible()
    page.locator("#id_token_budget").fill("8000")
    page.locator("#id_keep_last_messages").fill("20")
    suggestion = page.get_by_role("button", name="Set “Maximum summary length” to")
    expect(suggestion).to_be_visible()
    wanted = suggestion.inner_text().rpartition(" ")[2]
    held: list[Route] = []
    page.route("**/contextpolicy/add/", lambda route: held.append(route))
    # The warnings follow the input: their request is still running at the click, and its answer
    # replaces the button.
    page.locator("#id_keep_last_messages").fill("21")
    page.locator("#id_keep_last_messages").fill("20")
    expect(page.locator("#policy-told")).to_contain_text("kept_above_mark")
    wait_until(page, lambda: bool(held), "the request for warnings")
    page.wait_for_timeout(600)
    assert len(held) == 1
    suggestion.click()
    page.route("**/contextpolicy/add/", lambda route: route.continue_())
    for route in held:
        route.continue_()
    expect(page.locator("#id_summary_max_tokens")).to_have_value(wanted)
