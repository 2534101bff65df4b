"""The main tasks of the four roles from sign-in on: no dead ends, no console errors, few actions.

An action is a click, a choice in a list, or Enter. Typing does not count.
"""

import json
import urllib.request
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from chats.models import Compaction
from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_operator import CREATE_AUDITOR, run_operator_script
from tests.support.browser_policies import find_strategy_card
from tests.support.browser_summaries import send_until_the_marker_appears

COUNT = """
for (const kind of ["pointerdown", "change", "keydown"]) {
  addEventListener(kind, (event) => {
    const isChoice = kind === "change" && event.target.matches("select");
    const isEnter = kind === "keydown" && event.key === "Enter";
    if (event.isTrusted && (kind === "pointerdown" || isEnter)) window.acted();
    if (isChoice) window.acted();
  }, true);
}
"""


class Acts:
    """A person's actions in the browser, counted."""

    def __init__(self, page: Page) -> None:
        self.count = 0
        page.context.expose_function("acted", self.note)
        page.context.add_init_script(COUNT)

    def note(self) -> None:
        """Count an action."""
        self.count += 1


@pytest.mark.requirement("S0.3", by="admin")
@pytest.mark.requirement("S0.5", by="auditor")
def test_four_people_reach_what_they_came_for(
    open_tab: Callable[..., Person], fresh: Product
) -> None:
    person, auditor = open_tab(fresh), open_tab(fresh)
    acts, acts_of_auditor = Acts(person.page), Acts(auditor.page)
    # The chat user: the button of the link, and Enter.
    person.sign_in(fresh.printed_link())
    person.type("The order 4711 of Anna Berg goes to Oslo on 3 May 2026.")
    person.wait_for_reply()
    counts = {"a reply": acts.count}

    send_until_the_marker_appears(person)
    acts.count = 0
    chat = person.page.url
    a_first_policy(person)
    counts["a policy for everybody"] = acts.count
    person.page.goto(chat)
    reply = person.send("And now?")
    expect(reply).to_contain_text("window of 2 messages")

    run_operator_script(fresh, CREATE_AUDITOR)
    a_first_answer(auditor)
    counts["the audit"] = acts_of_auditor.count

    acts.count = 0
    person.page.goto(chat)
    key = a_first_key(person)
    counts["a key"] = acts.count
    assert "no language model is connected" in answered(fresh, key=key)
    assert counts == {
        "a reply": 2,
        "a policy for everybody": 8,
        "the audit": 6,
        "a key": 3,
    }


def a_first_policy(person: Person) -> None:
    """From the chat to a new policy for everyone."""
    page = person.page
    page.get_by_role("link", name="Administration").click()
    page.get_by_role("link", name="Policies", exact=True).click()
    page.get_by_role("link", name="Add policy").click()
    page.locator("#id_name").fill("Two messages")
    find_strategy_card(page, "simple").click()
    page.locator("#id_window_size").fill("2")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name="Assign policy").click()
    page.get_by_label("Applies to").select_option(label="Everyone")
    with page.expect_navigation():
        page.get_by_role("button", name="Save", exact=True).click()


def a_first_answer(auditor: Person) -> None:
    """The summaries of a chat, and the result of the verification."""
    auditor.open("/")
    page = auditor.page
    page.get_by_label("Name").fill("audrey")
    page.get_by_label("Password").fill("correct horse battery")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Administration").click()
    page.get_by_role("link", name="Compactions", exact=True).click()
    page.locator("#result_list tbody a").first.click()
    expect(page.locator("#content")).to_contain_text(str(Compaction.Status.PUBLISHED.label))
    page.get_by_role("link", name="Audit log", exact=True).click()
    page.get_by_role("link", name="Verify").first.click()
    expect(page.locator("#content .palimpsest-notice--ok")).to_be_visible()


def a_first_key(person: Person) -> str:
    """From the chat to a new API key."""
    page = person.page
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("link", name="API keys").click()
    page.get_by_label("Name", exact=True).fill("A program")
    page.get_by_role("button", name="Create key").click()
    return page.locator("#new-key code").first.inner_text()


def answered(product: Product, *, key: str) -> str:
    """The streamed reply that a client gets with the key."""
    chat = json.loads(asked(product, "chats", {}, key=key))["id"]
    said = {"text": "Hello", "stream": True}
    events = asked(product, f"chats/{chat}/messages", said, key=key).splitlines()
    told = [json.loads(line.removeprefix("data:")) for line in events if line.startswith("data:")]
    return "".join(event.get("text", "") for event in told)


def asked(product: Product, path: str, body: dict[str, object], *, key: str) -> str:
    """A response of the API."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(  # noqa: S310  # loopback
        f"{product.url}/api/v1/{path}", data=json.dumps(body).encode(), headers=headers
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  # loopback
        return str(answer.read().decode())
