"""Erasing in the browser: the proof is displayed once, and the receipt lists the erased content."""

import re

from playwright.sync_api import expect

from tests.browser.desk import Person

PROOF = "[data-note=proof-of-erasure]"
SECRET = "The blue door opens with heron seven"


def test_an_erased_message_is_proven_once_and_its_receipt_cannot_be_rebuilt(admin: Person) -> None:
    admin.new_chat(SECRET)
    admin.wait_for_reply()
    chat = re.sub(r"[?#].*", "", admin.page.url)
    message = admin.page.locator("[id^=message-]", has_text=SECRET).first.get_attribute("id")
    receipt = admin.page.locator("a[href*='/receipt']").first.get_attribute("href")
    assert message is not None
    assert receipt is not None
    erase = f"{chat}messages/{message.removeprefix('message-')}/erase"
    admin.page.goto(erase)
    admin.page.get_by_role("button", name="Erase message").click()

    expect(admin.page.get_by_role("heading", name="Message erased")).to_be_visible()
    proof = admin.page.locator(PROOF).first
    expect(proof).to_contain_text(message.removeprefix("message-").replace("-", ""))
    salt = proof.locator("dd").first
    expect(salt).to_have_text(re.compile(r"^[0-9a-f]{64}$"))
    admin.page.goto(erase)
    expect(admin.page.get_by_role("heading", name="Message erased")).to_be_visible()
    expect(admin.page.locator(PROOF)).to_have_count(0)

    admin.open(receipt)
    expect(admin.page.locator("[data-note=not-rebuildable]").first).to_be_visible()
    expect(admin.page.locator("[data-note=text-not-stored]").first).to_be_visible()
    expect(admin.page.locator("main")).not_to_contain_text(SECRET)


def test_an_erased_chat_shows_its_certificate_with_the_proof_once(admin: Person) -> None:
    admin.new_chat(SECRET)
    admin.wait_for_reply()
    chat = re.sub(r"[?#].*", "", admin.page.url)
    admin.page.goto(f"{chat}erase")
    admin.page.get_by_role("button", name="Erase chat").click()
    expect(admin.page.get_by_role("heading", name="Chat erased")).to_be_visible()
    expect(admin.page.locator(PROOF)).to_be_visible()
    admin.page.locator("main a[href*=erased]").click()
    expect(admin.page.get_by_role("heading", name="Chat erased")).to_be_visible()
    expect(admin.page.locator(PROOF)).to_have_count(0)
