"""Undo, redo, edit and compare a summary; pin, edit and choose versions: mouse and keyboard."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_chats import PHONE
from tests.support.browser_operator import run_operator_script
from tests.support.browser_summaries import (
    ASSIGN_SUMMARY_POLICY,
    SEND_EDIT,
    compact_now,
    start_case_chat,
)

POSITION = "#cursor [data-position]"

SET_ARCHIVE = """
from django.utils import timezone
from contextpolicy.models import ContextPolicy
from contextpolicy.publish import create_policy_version
policy = ContextPolicy.objects.select_related("current").get(slug="folding")
values = {{**policy.current.values, "archive": {archive}}}
now = timezone.now()
create_policy_version(policy=policy, values=values, locks=[], note="", actor="system", now=now)
"""


@pytest.fixture(scope="module")
def governed(product: Product, signed_in: Any) -> Product:
    """The installation, under a policy that writes summaries."""
    del signed_in
    run_operator_script(product, ASSIGN_SUMMARY_POLICY)
    return product


@pytest.fixture
def folding(open_tab: Callable[..., Person], governed: Product, signed_in: Any) -> Person:
    """A person in a chat of four turns, under a policy that writes summaries."""
    person = open_tab(governed, storage_state=signed_in)
    start_case_chat(person)
    return person


def test_the_page_of_compactions_says_the_same_everywhere_when_the_worker_is_done(
    folding: Person,
) -> None:
    page = folding.page
    page.locator("#context-meter > summary").click()
    page.locator("#context-meter a[href$='/compactions/']").click()
    expect(page.locator("[data-note=no-compactions]")).to_be_visible()
    folding.mark_page()
    page.get_by_role("button", name="Compact now").click()

    expect(page.locator("#answer [data-status=done]")).to_be_visible(timeout=20_000)

    expect(page.locator("#compactions")).to_contain_text("In use")
    expect(page.locator(POSITION)).to_have_attribute("data-position", re.compile("[1-9]"))
    expect(page.locator("[data-note=no-compactions]")).to_have_count(0)
    expect(page.locator("#compacting")).not_to_contain_text("Compaction requested")
    expect(page.get_by_role("button", name="Compact now")).to_be_visible()
    # A draft survives events that arrive while the person types.
    focus = page.locator("#compacting input[name=focus]")
    focus.fill("the prices")
    page.evaluate("document.querySelector('#compacted').dataset.old = 'yes'")
    page.evaluate("htmx.trigger('#answer', 'changed')")
    expect(page.locator("#compacted[data-old]")).to_have_count(0)
    expect(focus).to_have_value("the prices")
    expect(focus).to_be_focused()
    assert not folding.was_reloaded()


def test_words_in_the_open_breakdown_survive_a_new_count(folding: Person) -> None:
    page = folding.page
    page.locator("#context-meter > summary").click()
    focus = page.locator("#context-meter input[name=focus]")
    focus.fill("the prices")
    for text in ("A draft.", "Another draft."):
        page.evaluate("document.querySelector('#context-meter').dataset.old = 'yes'")
        page.evaluate("(text) => { document.querySelector('#composer-text').value = text }", text)
        page.evaluate("htmx.trigger(document.body, 'draft')")
        expect(page.locator("#context-meter[data-old]")).to_have_count(0)
        expect(page.locator("#context-meter[open]")).to_be_visible()
        expect(focus).to_have_value("the prices")
        expect(focus).to_be_focused()
    page.get_by_role("button", name="Compact now").click()
    expect(page.locator("[data-marker]")).to_be_visible(timeout=20_000)


def test_a_summary_is_undone_redone_edited_and_compared(folding: Person) -> None:
    page = folding.page
    folding.mark_page()
    compact_now(folding)
    page.locator("[data-marker] > summary").click()
    page.get_by_role("button", name="Undo compaction").click()
    expect(page.get_by_text("Compaction undone")).to_be_visible()
    expect(page.get_by_role("button", name="Redo compaction")).to_be_focused()
    expect(page.locator("#context-meter span[data-note=compaction-paused]")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("[data-marker]")).to_be_visible()
    assert not folding.was_reloaded()

    page.locator("[data-marker] > summary").click()
    page.get_by_role("link", name="View details").click()
    expect(page.get_by_role("heading", name="Compaction: messages 1 to 6")).to_be_visible()
    page.get_by_role("link", name="Edit summary").click()
    editor = page.locator("#summary-text")
    expect(editor).to_be_focused()
    editor.fill(editor.input_value() + "\n- Call her first")
    expect(page.locator("#weight")).to_contain_text("tokens")
    page.locator("form#summary [type=submit]").click()
    expect(page.locator("[data-note=edited-by-you]")).to_be_visible()
    expect(page.locator("ins.diff__line")).to_have_text("- Call her first")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("ins.diff__line")).to_have_text("- Call her first")
    page.locator("#summary .summary__sources a").first.click()
    expect(page.locator("#originals .is-shown")).to_be_visible()

    page.locator("#undo").click()
    expect(page.locator(".chip", has_text="Undone")).to_be_visible()
    page.locator("#redo").click()
    expect(page.locator(".chip", has_text="In use")).to_be_visible()


def test_the_focus_stays_in_a_marker_that_another_tab_changes(folding: Person) -> None:
    page = folding.page
    compact_now(folding)
    other = page.context.new_page()
    other.goto(page.url)
    other.locator("[data-marker] > summary").focus()
    page.locator("[data-marker] > summary").click()
    page.get_by_role("button", name="Undo compaction").click()
    undone = other.get_by_text("Compaction undone")
    expect(undone).to_be_visible(timeout=20_000)
    assert other.evaluate("Boolean(document.activeElement.closest('.marker'))")
    other.close()


def test_asking_is_answered_originals_are_found_and_the_list_tells_it(folding: Person) -> None:
    page = folding.page
    folding.mark_page()
    compact_now(folding)
    expect(page.locator("#answer")).to_contain_text("Compacted: 6 messages summarised")
    expect(page.locator("#status")).to_contain_text("Compacted: 6 messages summarised")

    page.locator("#find > summary").click()
    page.locator("#find-question").fill("serial")
    page.keyboard.press("Enter")
    expect(page.locator("#found mark").first).to_have_text("Serial")
    assert not folding.was_reloaded()
    page.locator(".found__item").first.click()
    expect(page.locator(".under__msg:target")).to_contain_text("AT9-2231-0457")
    page.go_back()

    page.get_by_role("link", name="1 compaction").click()
    expect(page.locator("#compactions")).to_contain_text("In use")
    page.get_by_role("button", name="Compact now").click()
    expect(page.locator("#answer [data-status=nothing]")).to_be_visible(timeout=20_000)


def test_originals_do_not_scroll_sideways_on_a_phone(
    open_tab: Callable[..., Person], folding: Person
) -> None:
    wide = "```\n" + "wide " * 80 + "\n```\n\n| a | b |\n|---|---|\n| " + "x" * 300 + " | y |"
    folding.type(wide)
    expect(folding.page.locator(".msg--user:not(.is-sending) table")).to_have_count(1)
    folding.wait_for_reply()
    folding.send("And a last one")
    state, chat = folding.page.context.storage_state(), folding.page.url
    compact_now(folding)
    person = open_tab(folding.product, storage_state=state, **PHONE)
    page = person.page
    page.goto(chat)
    page.locator("[data-marker] > summary").click()
    page.locator("[id^=originals-] > summary").click()
    expect(page.locator(".under__msg").first).to_be_visible()
    assert not person.scrolls_sideways()
    widths = page.locator(".under").first.evaluate("(one) => [one.scrollWidth, one.clientWidth]")
    assert widths[0] <= widths[1] + 1
    page.get_by_role("link", name="View details").click()
    expect(page.locator("#originals")).to_be_visible()
    assert not person.scrolls_sideways()


def test_messages_are_pinned_edited_and_their_versions_chosen(folding: Person) -> None:
    page, keys = folding.page, folding.page.keyboard
    folding.mark_page()
    mine = page.locator(".msg--user").last
    folding.acts_of(mine)
    mine.get_by_label("Pin message").click()
    expect(page.locator(".msg--pinned")).to_contain_text("always sent")
    expect(mine.get_by_label("Pin message")).to_be_focused()

    page.locator("#composer-text").focus()
    keys.press("ArrowUp")
    expect(page.get_by_label("Edit message")).to_be_focused()
    # The box has the focus some milliseconds before its buttons work.
    expect(page.locator(".htmx-settling, .htmx-added")).to_have_count(0)
    keys.press("Escape")
    expect(page.get_by_label("Edit message")).to_have_count(0)
    folding.acts_of(mine).locator("[data-act=edit]").click()
    page.get_by_label("Edit message").fill("Is the 24th still free?")
    page.locator(SEND_EDIT).click()
    folding.wait_for_reply()
    expect(folding.reply).to_contain_text("Is the 24th still free?")

    expect(page.locator(".versions").first).to_contain_text("2/2")
    mine.focus()
    keys.press("Alt+ArrowLeft")
    expect(page.locator(".msg--user").last).to_contain_text("LX-2207")
    page.locator(".msg--user").last.get_by_label("Next version").click()
    expect(page.locator(".msg--user").last).to_contain_text("the 24th")
    page.locator("#branch-menu > summary").click()
    page.locator("#branches").get_by_role("button").last.click()
    expect(page.locator(".msg--user").last).to_contain_text("LX-2207")
    assert not folding.was_reloaded()


def test_the_actions_of_a_message_are_one_stop_with_arrows(folding: Person) -> None:
    page, keys = folding.page, folding.page.keyboard
    folding.reply.focus()
    keys.press("Tab")
    expect(folding.reply.get_by_label("Regenerate reply")).to_be_focused()
    keys.press("ArrowRight")
    expect(folding.reply.get_by_label("Copy message")).to_be_focused()
    keys.press("ArrowLeft")
    keys.press("ArrowLeft")
    expect(page.get_by_role("link", name="Prompt receipt").last).to_be_focused()
    inside = "document.querySelectorAll('.msg__acts [tabindex=\"0\"]').length"
    assert folding.value(inside) == 1


def test_everything_works_as_plain_forms_on_a_phone(
    open_tab: Callable[..., Person], folding: Person
) -> None:
    chat, state = folding.page.url, folding.page.context.storage_state()
    compact_now(folding)
    options: dict[str, Any] = {"storage_state": state, "java_script_enabled": False, **PHONE}
    person = open_tab(folding.product, **options)
    page = person.page
    page.goto(chat)
    page.locator("[data-marker] > summary").click()
    page.get_by_role("button", name="Undo compaction").click()
    expect(page.get_by_text("Compaction undone")).to_be_visible()
    page.get_by_role("button", name="Redo compaction").click()
    page.locator("[data-marker] > summary").click()
    page.get_by_role("link", name="Edit summary").click()
    page.locator("#summary-text").fill("")
    page.locator("form#summary [type=submit]").click()
    expect(page.locator("#summary-error")).to_have_attribute("data-reason", "summary_empty")
    page.goto(chat)
    page.locator(".msg--user").last.get_by_role("link", name="Actions").click()
    page.locator("[data-act=edit]").click()
    page.get_by_label("Edit message").fill("Without scripts")
    page.locator(SEND_EDIT).click()
    expect(page.locator(".msg--user").last).to_contain_text("Without scripts")


@pytest.fixture
def close_archives(governed: Product) -> Iterator[Callable[[], None]]:
    """Close the archives of all chats, then open them again after the block."""
    yield lambda: run_operator_script(governed, SET_ARCHIVE.format(archive=False))
    run_operator_script(governed, SET_ARCHIVE.format(archive=True))


def test_a_closed_archive_is_said_where_it_would_be_opened(
    folding: Person, close_archives: Callable[[], None]
) -> None:
    page = folding.page
    compact_now(folding)
    chat = page.url
    close_archives()
    page.goto(chat)
    policy = re.compile(r"Folding v\d")

    page.locator("#find > summary").click()
    expect(page.locator("#find .locked")).to_contain_text(policy)
    expect(page.locator("#find-question")).to_have_count(0)
    page.keyboard.press("Escape")
    page.locator("[data-marker] > summary").click()
    expect(page.locator("[data-marker] .locked")).to_contain_text(policy)
    expect(page.locator("[data-marker] [id^=originals-]")).to_have_count(0)
    assert not folding.scrolls_sideways()

    page.locator("[data-marker]").get_by_role("link", name="View details").click()
    expect(page.locator("#originals")).to_contain_text("AT9-2231-0457")
    page.get_by_role("link", name="Compactions", exact=True).click()
    expect(page.locator(POSITION)).to_have_attribute("data-position", "6")
    expect(page.locator("#cursor time")).to_have_count(1)
