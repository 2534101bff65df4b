"""A team in the browser: created, used, interrupted, read, and regenerated in the middle."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person, must_be_quiet
from tests.browser.product import Product
from tests.browser.test_replies import connected, scripted
from tests.fakes.fake_server import FakeServer

__all__ = ["connected", "scripted"]

SLOW = "[[fake tokens=400 ms=30]]"
WAIT = 20_000


@pytest.fixture
def team(admin: Person, connected: str) -> Iterator[str]:
    """A team of three, created from the first draft on the page; its name."""
    del connected
    admin.open("/teams/")
    admin.page.get_by_role("link", name="Planner, critic, writer").last.click()
    admin.page.get_by_label("Name").first.fill("Trip planners")
    admin.page.get_by_role("button", name="Save team").click()
    expect(admin.page.get_by_role("link", name="Trip planners", exact=True)).to_be_visible()
    yield "Trip planners"
    admin.open("/teams/")
    admin.page.get_by_role("button", name="Delete team Trip planners").first.click()
    must_be_quiet(admin)


def begin(person: Person, team: str, text: str) -> None:
    """Start a chat with the team and a model of the fake server."""
    person.open("/chats/new")
    person.page.locator("#model-picker > summary").click()
    person.page.locator("#model-picker label", has_text="fake-chat").click()
    person.page.keyboard.press("Escape")
    person.page.locator("#team").select_option(label=f"Team: {team}")
    person.type(text)
    expect(person.page.locator("#context-meter")).to_be_visible()


def names(person: Person) -> list[str]:
    """The speakers of the messages on the page, first to last."""
    return person.page.locator("article.msg:not([data-live]) .msg__who").all_inner_texts()


@pytest.mark.requirement("S3.11")
def test_three_agents_answer_and_one_is_asked_again(
    admin: Person, team: str, scripted: FakeServer
) -> None:
    scripted.configure(
        replies=[
            {"text": "Planner: Day one, the Forum. [NEXT:Critic]"},
            {"text": "Too much walking."},
            {"text": "A day in Rome, with a rest."},
            {"text": "Too little food."},
            {"text": "A day in Rome, with two meals."},
        ]
    )
    page = admin.page
    begin(admin, team, "Plan a day in Rome.")
    expect(page.locator("#round")).to_contain_text("Finished. 3 replies", timeout=WAIT)
    assert names(admin) == ["You", "Planner", "Critic", "Writer"]
    planner = page.locator("article.msg", has_text="Day one")
    expect(planner.locator(".prose")).to_have_text("Day one, the Forum.")
    expect(planner.locator(".msg__to")).to_contain_text("Critic")
    admin.acts_of(planner).get_by_role("link", name="Prompt receipt").click()
    expect(page.locator("h1 bdi")).to_have_text("Planner")
    expect(page.locator("main")).to_contain_text("Plan a day in Rome.")
    page.go_back()
    critic = admin.acts_of(page.locator("article.msg", has_text="Too much walking."))
    critic.locator("summary[aria-label='More actions']").click()
    critic.locator("[data-act=play-on] button").click()
    expect(page.locator("article.msg", has_text="two meals")).to_be_visible(timeout=WAIT)
    expect(page.locator("#round")).to_contain_text("Finished.", timeout=WAIT)
    assert names(admin) == ["You", "Planner", "Critic", "Writer"]
    expect(page.locator("article.msg", has_text="Too much walking.")).to_have_count(0)
    must_be_quiet(admin)


@pytest.mark.requirement("S3.11")
def test_a_round_is_stopped_and_goes_on_also_after_a_reload(
    admin: Person, team: str, scripted: FakeServer
) -> None:
    page = admin.page
    begin(admin, team, f"Count slowly. {SLOW}")
    expect(admin.live).to_contain_text(" 5@", timeout=WAIT)
    expect(page.locator("[data-live] .msg__who")).to_have_text("Planner")
    expect(page.locator("#round")).to_contain_text("Reply 1 of up to 8. Next: Critic, Writer.")
    page.reload()
    page.get_by_role("button", name=re.compile("Stop")).click()
    expect(page.locator("#round")).to_contain_text("Stopped", timeout=WAIT)
    expect(page.locator("[data-live]")).to_have_count(0)
    assert names(admin) == ["You", "Planner"]
    scripted.configure(replies=[{"text": "Enough counted."}, {"text": "Indeed."}])
    page.reload()
    page.get_by_role("button", name="Continue round").click()
    expect(page.locator("#round")).to_contain_text("Finished. 2 replies", timeout=WAIT)
    assert names(admin) == ["You", "Planner", "Critic", "Writer"]
    must_be_quiet(admin)


def test_what_is_written_meanwhile_with_a_name_is_answered_by_that_agent(
    admin: Person, team: str, scripted: FakeServer, product: Product
) -> None:
    del product
    page = admin.page
    begin(admin, team, f"Count slowly. {SLOW}")
    expect(admin.live).to_contain_text(" 5@", timeout=WAIT)
    scripted.configure(replies=[{"text": "In short: enough."}])
    admin.type("@Writer say it in short.")
    expect(page.locator(".msg--user", has_text="in short")).to_be_visible()
    page.get_by_role("button", name=re.compile("Stop")).click()
    expect(page.locator("article.msg", has_text="In short: enough.")).to_be_visible(timeout=WAIT)
    expect(page.locator("#round")).to_contain_text("Finished. 1 reply", timeout=WAIT)
    assert names(admin)[-1] == "Writer"
    must_be_quiet(admin)
