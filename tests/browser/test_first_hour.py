"""The main workflow of a new user: a chat whose context a policy governs."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_policies import find_strategy_card
from tests.support.browser_summaries import send_until_the_marker_appears


@pytest.mark.short
@pytest.mark.requirement("S5")
@pytest.mark.requirement("S0.3", by="admin")
@pytest.mark.requirement("S0.5", by="auditor")
@pytest.mark.requirement("S4.4", by="user")
def test_a_newcomer_chats_sees_a_summary_and_changes_the_policy(
    fresh: Product, open_tab: Callable[..., Person]
) -> None:
    person = open_tab(fresh)
    page = person.page
    person.sign_in(fresh.printed_link())
    expect(page.get_by_text("Demo model ·")).to_be_visible()

    tokens_arrive(person)
    person.mark_page()
    send_until_the_marker_appears(person)
    read_what_lies_under_the_marker(person)
    assert not person.was_reloaded()

    chat = page.url
    narrow_the_window(person)
    page.goto(chat)
    the_next_turn_obeys(person)
    the_ledger_tells_it(person)


def tokens_arrive(person: Person) -> None:
    """The first reply grows before it ends."""
    person.new_chat("The order 4711 of Anna Berg goes to Oslo on 3 May 2026.")
    expect(person.live).to_contain_text("Demo model")
    early = person.live.inner_text()
    person.wait_for_reply()
    assert len(early) < len(person.reply.inner_text())
    expect(person.reply).to_contain_text("1 of 1 were sent")


def read_what_lies_under_the_marker(person: Person) -> None:
    """Summary, facts, and the original messages; a line links to its source."""
    page = person.page
    page.locator("details.marker > summary").click()
    expect(page.locator(".marker__title")).to_contain_text("Summary sent instead of messages 1 to")
    expect(page.locator(".marker")).to_contain_text(re.compile(r"\d+ of \d+ checked facts kept"))
    page.locator("[data-original]").first.click()
    expect(page.locator(".under__msg.is-shown")).to_be_visible()
    expect(page.locator(".under")).to_contain_text("The order 4711 of Anna Berg goes to Oslo")


def narrow_the_window(person: Person) -> None:
    """Change the policy's strategy in the administration to the newest two messages only."""
    page = person.page
    page.get_by_role("link", name="Administration").click()
    page.get_by_role("link", name="Policies", exact=True).click()
    page.get_by_role("link", name="Demo", exact=True).click()
    find_strategy_card(page, "simple").click()
    page.locator("#id_window_size").fill("2")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".messagelist")).to_contain_text("Demo")


def the_next_turn_obeys(person: Person) -> None:
    """The next prompt has the newest messages only; reply and receipt show it."""
    reply = person.send("What do you know about the order now?")
    expect(reply).to_contain_text("strategy simple, window of 2 messages")
    expect(reply).to_contain_text("older than the window")
    reply.get_by_role("link", name="Prompt receipt").click()
    page = person.page
    expect(page.locator(".pseg", has=page.get_by_text("History", exact=True))).to_have_count(2)
    expect(page.locator("[data-reason=window]")).to_be_visible()


def the_ledger_tells_it(person: Person) -> None:
    """The audit list has the compaction and the policy change, and its chains are valid."""
    page = person.page
    person.open("/admin/contextpolicy/auditevent/")
    for event in ("compaction.published", "policy.version_created", "context.compressed"):
        expect(page.get_by_role("link", name=event).first).to_be_visible()
    person.open("/admin/contextpolicy/auditevent/verify/")
    expect(page.locator("#content .palimpsest-notice--ok")).to_be_visible()
