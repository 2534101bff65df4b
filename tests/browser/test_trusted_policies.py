"""An administrator counts chats before a policy applies, and evaluates a draft in shadow."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_operator import run_operator_script
from tests.support.browser_policies import find_strategy_card

ADD = "/admin/contextpolicy/contextpolicy/add/"
# Moves the events of the evaluation so far to the previous day.
A_DAY_LATER = """
from datetime import timedelta
from django.db.models import F
from contextpolicy.models import EvaluatedTurn, Evaluation
EvaluatedTurn.objects.update(at=F("at") - timedelta(days=1))
Evaluation.objects.update(started_at=F("started_at") - timedelta(days=1))
"""


@pytest.fixture
def counting(browser: Browser) -> Iterator[Product]:
    """An installation that requires a count before a policy applies to people."""
    running = Product(BLAST_RADIUS_LIMIT="0", MESSAGES_PER_MINUTE="1000")
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def often(browser: Browser) -> Iterator[Product]:
    """An installation that evaluates new turns every six seconds, not every minute."""
    running = Product(SWEEP_EVERY="1", MESSAGES_PER_MINUTE="1000")
    try:
        yield running
    finally:
        running.close()


def talked(person: Person, texts: list[str]) -> str:
    """Send a message in a new chat; return its address."""
    person.type(texts[0])
    person.wait_for_reply()
    for text in texts[1:]:
        person.send(text)
    return person.page.url


def assign_to_everyone(page: Page) -> None:
    """Use the link of the policy's page."""
    page.get_by_role("link", name="Assign policy").click()
    page.get_by_label("Applies to").select_option(label="Everyone")
    with page.expect_navigation():
        page.get_by_role("button", name="Save", exact=True).click()


def test_a_policy_from_a_preset_is_mended_previewed_counted_assigned_and_obeyed(
    open_tab: Callable[..., Person], counting: Product
) -> None:
    person = open_tab(counting)
    page = person.page
    person.sign_in(counting.printed_link())
    chat = talked(person, ["The seeded chat begins.", "It goes on.", "And on."])
    person.open(ADD)
    page.locator(".policy-starts a").first.click()
    page.locator("#id_name").fill("Trusted")
    meets_a_finding_and_mends_it(page)

    # Another strategy, which changes the seeded chat.
    find_strategy_card(page, "simple").click()
    page.locator("#id_window_size").fill("2")
    page.locator("#id_try-chat").select_option(label="The seeded chat begins.")
    page.get_by_role("button", name="Preview", exact=True).click()
    expect(page.locator(".policy-side").last).to_contain_text("Trusted (edited)")
    # Each line of both prompts is on a separate line.
    page.locator("details:has(.policy-diff) > summary").click()
    lines = page.locator(".policy-diff").inner_text().splitlines()
    assert lines[:2] == ["--- now", "+++ proposed"]
    page.locator("[name=_continue]").click()
    expect(page.locator(".messagelist")).to_contain_text("Version 1 is active")

    # It applies to no chat before the count.
    editor = page.url
    assign_to_everyone(page)
    expect(page.locator(".messagelist .blast_radius_needed")).to_be_visible()
    expect(page.get_by_label("Applies to")).to_have_value("instance")
    page.goto(editor)
    is_counted(page)
    page.goto(editor)
    assign_to_everyone(page)
    expect(page.locator(".messagelist")).to_contain_text("was added successfully")

    page.goto(chat)
    expect(person.send("Which window now?")).to_contain_text("window of 2 messages")
    assert person.complaints == []


def meets_a_finding_and_mends_it(page: Page) -> None:
    """Use the button of the suggested fix."""
    find_strategy_card(page, "dynamic_summary").click()
    page.locator("#id_token_budget").fill("8000")
    page.locator("#id_keep_last_messages").fill("20")
    expect(page.locator("#policy-told")).to_contain_text("kept_above_mark")
    page.get_by_role("button", name="Set “Maximum summary length” to").click()
    expect(page.locator("#policy-told")).not_to_contain_text("kept_above_mark")


def is_counted(page: Page) -> None:
    """The background job counts all chats in use."""
    page.locator("#id_try-chat").select_option("all")
    page.locator("#id_try-place").select_option("instance")
    page.get_by_role("button", name="Preview", exact=True).click()
    page.locator("#policy-preview .policy-said a").click()
    expect(page.locator("#radius-progress")).to_contain_text("1 of 1 chats", timeout=30_000)
    expect(page.get_by_role("row", name="Would change").first).to_contain_text("1 (100")


def test_a_draft_judges_a_day_is_compared_put_in_force_and_rolled_back(
    open_tab: Callable[..., Person], often: Product
) -> None:
    person = open_tab(often)
    page = person.page
    person.sign_in(often.printed_link())
    editor, compared = evaluates_a_draft(person)

    # Yesterday and today.
    person.open("/chats/new")
    chat = talked(person, ["Day one begins.", "It goes on.", "And on."])
    judged(page, compared, 3)
    run_operator_script(often, A_DAY_LATER)
    page.goto(chat)
    expect(person.send("Day two.")).to_contain_text("window of 6 messages")
    person.send("Day two ends.")
    judged(page, compared, 5)
    # The first two prompts contain only two messages and the question.
    expect(page.get_by_role("row", name="Changed prompts 3")).to_contain_text("3")
    expect(page.locator("table", has_text="By day").locator("tbody tr")).to_have_count(2)

    page.get_by_role("button", name="Publish version").click()
    expect(page.locator(".messagelist")).to_contain_text("is published")
    expect(page.locator("#content p[data-state]")).to_have_attribute("data-state", "promoted")
    page.goto(chat)
    expect(person.send("Which window now?")).to_contain_text("window of 2 messages")

    # Undo with one click.
    page.goto(editor)
    with page.expect_navigation():
        page.locator("[name=_restore]").first.click()
    page.goto(chat)
    expect(person.send("And now?")).to_contain_text("window of 6 messages")
    assert person.complaints == []


def evaluates_a_draft(person: Person) -> tuple[str, str]:
    """Create a policy for everyone and a draft under shadow evaluation; return both pages."""
    page = person.page
    person.open(ADD)
    page.locator("#id_name").fill("Shadowed")
    find_strategy_card(page, "simple").click()
    page.locator("#id_window_size").fill("6")
    page.locator("[name=_continue]").click()
    expect(page.locator(".messagelist")).to_contain_text("Version 1 is active")
    editor = page.url
    assign_to_everyone(page)
    page.goto(editor)
    page.locator("#id_window_size").fill("2")
    with page.expect_navigation():
        page.locator("[name=_draft]").click()
    page.goto(editor)
    page.locator("[name=_evaluate]").click()
    expect(page.locator("[data-note=no-replies-yet]")).to_be_visible()
    expect(page.locator("p[data-state=open]")).to_be_visible()
    return editor, page.url


def judged(page: Page, compared: str, count: int) -> None:
    """Reload the evaluation's page until this many replies were evaluated."""

    def is_told() -> bool:
        page.goto(compared)
        words = page.locator("#evaluation-coverage").inner_text()
        return words.startswith(f"{count} of {count} replies")

    for _second in range(40):
        if is_told():
            return
        page.wait_for_timeout(1_000)
    assert is_told()
