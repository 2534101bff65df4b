"""A team's chat from its first message to a cleared chat, in the browser and over REST."""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person, must_be_quiet
from tests.browser.product import Product
from tests.browser.rest import ask, read
from tests.support.browser_chats import ROUND_TIMEOUT, list_speakers
from tests.support.browser_operator import run_operator_script
from tests.support.browser_summaries import ASSIGN_SUMMARY_POLICY, CASE_MESSAGES, compact_now

TEAM = ("Planner", "Critic", "Writer")


@pytest.fixture
def person(open_tab: Any, fresh: Product) -> Person:
    """A person in a new installation, under a policy that writes summaries."""
    someone: Person = open_tab(fresh)
    someone.sign_in(fresh.printed_link())
    run_operator_script(fresh, ASSIGN_SUMMARY_POLICY)
    return someone


def settled(person: Person, replies: int) -> None:
    """Wait until no agent has a pending reply."""
    expect(person.page.locator("#round")).to_contain_text(
        f"Finished. {replies} repl", timeout=2 * ROUND_TIMEOUT
    )


def begun(person: Person, text: str) -> str:
    """Start a chat with the team; return its id."""
    person.open("/chats/new")
    person.page.locator("#team").select_option(label="Team: Trip planners")
    person.type(text)
    expect(person.page.locator("#context-meter")).to_be_visible()
    return person.page.url.rstrip("/").rpartition("/")[2]


def make_team(person: Person) -> None:
    """Create the team from the first draft on the page."""
    page = person.page
    person.open("/teams/")
    page.get_by_role("link", name="Planner, critic, writer").last.click()
    page.get_by_label("Name").first.fill("Trip planners")
    page.get_by_role("button", name="Save team").click()
    expect(page.get_by_role("link", name="Trip planners", exact=True)).to_be_visible()


def call_critic(person: Person) -> None:
    """Write to the critic only, with the name from the list."""
    page = person.page
    box = page.locator("#composer-text")
    box.press_sequentially("@cri")
    expect(page.locator("#mentions")).to_be_visible()
    box.press("Enter")
    page.keyboard.type(CASE_MESSAGES[1])
    box.press("Enter")
    settled(person, 1)
    assert list_speakers(person)[-2:] == ["You", "Critic"]
    expect(page.locator(".msg--user").last).to_contain_text("@Critic Serial")


def look_at_views(person: Person) -> None:
    """Open the context that each agent saw."""
    page = person.page
    for name in TEAM:
        reply = page.locator(f"article.msg[aria-label$='from {name}']").last
        reply.focus()
        reply.get_by_role("link", name="Prompt receipt").click()
        expect(page.locator("h1 bdi")).to_have_text(name)
        expect(page.locator("main")).to_contain_text("AB-48213")
        page.go_back()
        settled(person, 1)


def look_under_the_summary(person: Person) -> None:
    """Read the messages with speakers under the summary, and find it by its speaker."""
    page = person.page
    marker = page.locator("[data-marker]")
    marker.locator("summary").first.click()
    expect(marker).to_contain_text("AB-48213")
    marker.get_by_text("Show the 6 originals").click()
    speakers = marker.locator(".under__msg bdi > b")
    expect(speakers).to_have_text(["You", *TEAM, "You", "Critic"])
    page.locator("#find > summary").click()
    page.locator("#find-question").fill("AB-48213")
    page.locator("#find-question").press("Enter")
    expect(page.locator("#found .found__head b").first).to_be_visible()
    # The field of speakers came with the answer.
    page.get_by_label("Speaker").select_option(label="Planner")
    page.locator("#find-question").press("Enter")
    expect(page.locator("#found .found__head b")).to_have_text(["Planner"])


def take_elsewhere(person: Person, chat: str) -> None:
    """Copy the chat's snapshot into another chat, inspect it there, and clear it."""
    page = person.page
    snapshot = read(person, f"chats/{chat}/team/snapshot")
    assert snapshot["version"] == 1
    said = [(m["speaker"]["roleName"], m["content"]) for m in snapshot["messages"]]
    assert [name for name, _ in said] == ["admin", *TEAM, "admin", "Critic", "admin", *TEAM]
    other = begun(person, "Something else entirely.")
    settled(person, 3)
    ask(person, f"chats/{other}/team/snapshot", {"snapshot": snapshot})
    told = read(person, f"chats/{other}/team/messages")["data"]
    assert [(m["speaker"]["roleName"], m["content"]) for m in told] == said
    page.reload()
    # A snapshot names its speakers, including the person.
    expect(page.locator("article.msg .msg__who")).to_have_text([name for name, _ in said])
    expect(page.locator("#thread")).not_to_contain_text("Something else")
    ask(person, f"chats/{other}/team/clear", {})
    assert read(person, f"chats/{other}/team/messages")["data"] == []
    page.reload()
    expect(page.locator("#composer-text")).to_be_visible()
    expect(page.locator("article.msg")).to_have_count(0)


@pytest.mark.requirement("S3.9")
@pytest.mark.requirement("S3.10")
def test_a_team_answers_is_summarised_searched_copied_and_begins_again(person: Person) -> None:
    make_team(person)
    chat = begun(person, CASE_MESSAGES[0])
    settled(person, 3)
    assert list_speakers(person) == ["You", *TEAM]
    meter = person.page.locator("#context-meter")
    expect(meter).to_contain_text("3 agents reply and write at most 8 replies; about ")
    call_critic(person)
    look_at_views(person)
    person.send(CASE_MESSAGES[2])
    settled(person, 3)
    compact_now(person)
    look_under_the_summary(person)
    take_elsewhere(person, chat)
    # The messages stay in the first chat.
    person.open(f"/chats/{chat}/")
    expect(person.page.locator("#thread")).to_contain_text(CASE_MESSAGES[2])
    must_be_quiet(person)
