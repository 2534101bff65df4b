"""The page's statements about sent context: after an undo, in the meter, of truncated messages."""

import os
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.faults.programs import MANAGE, python, run
from tests.support.browser_chats import PHONE
from tests.support.browser_operator import run_operator_script
from tests.support.browser_summaries import ASSIGN_SUMMARY_POLICY, compact_now, start_case_chat

# For one chat: the newest messages, each cut to a length.
CUTTING = """
from uuid import UUID
from django.utils import timezone
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
values = {{"strategy": "simple", "window_size": 12, "max_chars_per_message": 120}}
now = timezone.now()
policy = create_policy(slug="cutting", name="Cutting", values=values, actor="system", now=now)
assign_policy(policy=policy, level="chat", chat_id=UUID("{chat}"), actor="system", now=now)
"""


@pytest.fixture
def folding(open_tab: Callable[..., Person], fresh: Product) -> Person:
    """A person in a chat of four turns, under a policy that writes summaries."""
    person = open_tab(fresh)
    person.sign_in(fresh.printed_link())
    run_operator_script(fresh, ASSIGN_SUMMARY_POLICY)
    start_case_chat(person)
    return person


def meter_of(person: Person) -> dict[str, int]:
    """The lines of the meter, by name."""
    rows = person.value(
        "[...document.querySelectorAll('#context-meter .breakdown tr')]"
        ".map((row) => [row.cells[0].textContent.trim(), row.cells[1].textContent])"
    )
    return {name: int(tokens.replace(",", "")) for name, tokens in rows}


def receipt_of(person: Person) -> dict[str, int]:
    """The tokens of the newest reply's prompt, by kind of content."""
    person.reply.get_by_role("link", name="Prompt receipt").click()
    expect(person.page.get_by_role("heading", name="Prompt receipt")).to_be_visible()
    pieces = person.value(
        "[...document.querySelectorAll('.pseg')].map((piece) => ["
        "piece.querySelector('.pseg__origin .chip').textContent.trim(),"
        "piece.querySelector('.pseg__tokens').textContent])"
    )
    found: dict[str, int] = {}
    for name, tokens in pieces:
        count = "".join(sign for sign in tokens if sign.isdigit())
        found[name] = found.get(name, 0) + int(count)
    return found


def test_after_an_undo_of_the_second_summary_the_first_is_said_to_stand(folding: Person) -> None:
    page = folding.page
    compact_now(folding)
    for text in ("And the labour?", "Who pays for the parts?"):
        folding.send(text)
    page.locator("#context-meter > summary").click()
    page.get_by_role("button", name="Compact now").click()
    marker = page.locator("[data-marker]")
    expect(marker).to_contain_text("10 messages summarised", timeout=20_000)
    page.keyboard.press("Escape")
    marker.locator("> summary").click()
    page.get_by_role("button", name="Undo").click()

    undone = page.locator(".marker--row", has_text="Compaction undone")
    says = "4 messages sent in full, 6 sent as the summary of messages 1 to 6"
    expect(undone).to_contain_text(f"Currently: {says}.")
    expect(page.locator('article.msg[data-sent="full"]')).to_have_count(6)
    # After the first reply every count is known.
    folding.send("One more.")
    said = meter_of(folding)
    folding.send("And another one.")
    sent = receipt_of(folding)
    assert said["Summary"] == sent["Summary"] > 0
    assert said["History"] == sent["History"]
    assert said["System"] == sent.get("System", 0)
    expect(page.locator("tr[data-reason=covered]")).to_contain_text("Messages 1 to 6")
    page.go_back()
    undone.get_by_role("link", name="View details").click()
    expect(page.locator("#sent-now")).to_contain_text(says)


@pytest.mark.requirement("S1.5")
def test_a_system_text_of_the_chat_is_written_and_seen_by_the_model(
    admin: Person, open_tab: Callable[..., Person]
) -> None:
    person, page = admin, admin.page
    person.new_chat("Who are you?")
    person.wait_for_reply()
    chat = page.url
    page.get_by_label("Chat actions").click()
    page.get_by_role("link", name="System text").click()
    area = page.get_by_label("System text", exact=True)
    area.fill("You are a librarian.\nAnswer in one sentence.")
    expect(page.locator("#own-text-count")).to_contain_text("44 / 20,000 characters")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#system-text .notice--ok[role=status]")).to_be_visible()
    phone = open_tab(person.product, storage_state=page.context.storage_state(), **PHONE)
    phone.page.goto(page.url)
    expect(phone.page.get_by_label("System text", exact=True)).to_be_visible()
    assert not phone.scrolls_sideways()

    page.goto(chat)
    person.send("And now?")
    person.reply.get_by_role("link", name="Prompt receipt").click()
    piece = page.locator(".pseg", has_text="Chat text")
    expect(piece).to_contain_text("You are a librarian.")


def test_a_cut_message_is_shown_as_it_was_sent(admin: Person) -> None:
    page = admin.page
    admin.new_chat("It begins here. " + "A long story follows. " * 30 + "It ends there.")
    admin.wait_for_reply()
    chat = page.url.rstrip("/").rpartition("/")[2]
    command = python(MANAGE, "shell", "-c", CUTTING.format(chat=chat))
    environment = {**os.environ, **admin.product.env}
    run(command, env=environment)
    page.reload()
    long = page.locator("article.msg--user").first
    expect(long).to_have_attribute("data-sent", "cut")
    expect(long).to_contain_text("sent, cut to 120 characters")

    admin.send("And?")
    admin.reply.get_by_role("link", name="Prompt receipt").click()
    piece = page.locator(".pseg", has_text="Message 1").first
    expect(piece).to_contain_text("It begins here.")
    expect(piece).to_contain_text("characters cut …]")
    expect(piece).not_to_contain_text("It ends there.")
    expect(piece.locator(".chip--warn").first).to_contain_text("cut to 120 characters")
    expect(piece).to_contain_text("of 690 characters sent")
