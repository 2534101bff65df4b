"""An administrator decides by what is known: a count before a policy governs, a draft beside it."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.browser.test_compaction_journeys import administer

ADD = "/admin/contextpolicy/contextpolicy/add/"
# What happened so far in the evaluation happened a day before.
A_DAY_LATER = """
from datetime import timedelta
from django.db.models import F
from contextpolicy.models import EvaluatedTurn, Evaluation
EvaluatedTurn.objects.update(at=F("at") - timedelta(days=1))
Evaluation.objects.update(started_at=F("started_at") - timedelta(days=1))
"""


@pytest.fixture
def counting(browser: Browser) -> Iterator[Product]:
    """An installation in which what governs people is counted first."""
    running = Product(BLAST_RADIUS_LIMIT="0", MESSAGES_PER_MINUTE="1000")
    try:
        yield running
    finally:
        running.close()


def talked(person: Person, texts: list[str]) -> str:
    """Say something in a new chat; its address."""
    person.type(texts[0])
    person.wait_for_reply()
    for text in texts[1:]:
        person.send(text)
    return person.page.url


def assign_to_everyone(page: Page) -> None:
    """By the link of the policy's page."""
    page.get_by_role("link", name="Assign it").click()
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
    page.locator("label.policy-card", has_text="Newest messages, counted").click()
    page.locator("#id_window_size").fill("2")
    page.locator("#id_try-chat").select_option(label="The seeded chat begins.")
    page.get_by_role("button", name="Preview", exact=True).click()
    expect(page.locator(".policy-side").last).to_contain_text("Trusted, as it is written")
    # Each line of both prompts stands on a line of its own.
    page.get_by_text("The exact prompts, line by line").click()
    lines = page.locator(".policy-diff").inner_text().splitlines()
    assert lines[:2] == ["--- now", "+++ proposed"]
    page.get_by_role("button", name="Save and continue editing").click()
    expect(page.locator(".messagelist")).to_contain_text("was added successfully")

    # It governs nobody before its chats were counted.
    editor = page.url
    assign_to_everyone(page)
    expect(page.locator(".messagelist")).to_contain_text("This instance asks for a count before")
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
    """By the button of the finding."""
    page.locator("label.policy-card", has_text="a summary of the rest").click()
    page.locator("#id_token_budget").fill("8000")
    page.locator("#id_keep_last_messages").fill("20")
    expect(page.locator("#policy-told")).to_contain_text("each turn would compact again")
    page.get_by_role("button", name="Set “Longest summary” to").click()
    expect(page.locator("#policy-told")).not_to_contain_text("each turn would compact again")


def is_counted(page: Page) -> None:
    """In the background, over all chats in use."""
    page.locator("#id_try-chat").select_option(
        label="All chats in use: their count, in the background"
    )
    page.locator("#id_try-place").select_option("instance")
    page.get_by_role("button", name="Preview", exact=True).click()
    page.get_by_role("link", name="how far it is and what it found").click()
    expect(page.locator("#radius-progress")).to_contain_text("1 of 1 chats", timeout=30_000)
    expect(page.get_by_role("row", name="Would change").first).to_contain_text("1 (100")


def test_a_draft_judges_a_day_is_compared_put_in_force_and_rolled_back(
    open_tab: Callable[..., Person], fresh: Product
) -> None:
    person = open_tab(fresh)
    page = person.page
    person.sign_in(fresh.printed_link())
    editor, compared = evaluates_a_draft(person)

    # Yesterday and today.
    person.open("/chats/new")
    chat = talked(person, ["Day one begins.", "It goes on.", "And on."])
    judged(page, compared, 3)
    administer(fresh, A_DAY_LATER)
    page.goto(chat)
    expect(person.send("Day two.")).to_contain_text("window of 6 messages")
    person.send("Day two ends.")
    judged(page, compared, 5)
    # Two messages and the question are all there is in the first two.
    expect(page.get_by_role("row", name="Prompts with other content")).to_contain_text("3")
    expect(page.locator("table", has_text="By day").locator("tbody tr")).to_have_count(2)

    page.get_by_role("button", name="Put this version in force").click()
    expect(page.locator(".messagelist")).to_contain_text("is in force")
    expect(page.locator("#content")).to_contain_text("It is over since")
    page.goto(chat)
    expect(person.send("Which window now?")).to_contain_text("window of 2 messages")

    # Back with one click.
    page.goto(editor)
    with page.expect_navigation():
        page.get_by_role("button", name="Restore as new").first.click()
    page.goto(chat)
    expect(person.send("And now?")).to_contain_text("window of 6 messages")
    assert person.complaints == []


def evaluates_a_draft(person: Person) -> tuple[str, str]:
    """Write a policy for everybody, and a draft that judges; the pages of both."""
    page = person.page
    person.open(ADD)
    page.locator("#id_name").fill("Shadowed")
    page.locator("label.policy-card", has_text="Newest messages, counted").click()
    page.locator("#id_window_size").fill("6")
    page.get_by_role("button", name="Save and continue editing").click()
    expect(page.locator(".messagelist")).to_contain_text("was added successfully")
    editor = page.url
    assign_to_everyone(page)
    page.goto(editor)
    page.locator("#id_window_size").fill("2")
    with page.expect_navigation():
        page.get_by_role("button", name="Save as a draft").click()
    page.goto(editor)
    page.get_by_role("button", name="Evaluate it for 7 days").click()
    expect(page.locator("#evaluation-coverage")).to_contain_text("No reply ended yet")
    return editor, page.url


def judged(page: Page, compared: str, count: int) -> None:
    """Read the evaluation's page until so many replies were judged."""

    def is_told() -> bool:
        page.goto(compared)
        words = page.locator("#evaluation-coverage").inner_text()
        return words.startswith(f"{count} of {count} replies")

    for _second in range(40):
        if is_told():
            return
        page.wait_for_timeout(1_000)
    assert is_told()
