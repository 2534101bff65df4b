"""An independent team in the browser: all agents write at once, and one button stops them."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person, must_be_quiet
from tests.fakes.fake_server import FakeServer
from tests.support.browser_chats import ROUND_TIMEOUT, list_speakers, start_team_chat

LIVE = "article[data-live]"
SLOW = "[[fake tokens=150 ms=30]]"


@pytest.fixture
def independent(admin: Person, team: str) -> str:
    """A team of three whose agents reply independently; its name."""
    admin.open("/teams/")
    admin.page.get_by_role("link", name=team, exact=True).click()
    admin.page.get_by_label(re.compile("independent", re.IGNORECASE)).check()
    with admin.page.expect_navigation():
        admin.page.get_by_role("button", name="Save team").click()
    return team


@pytest.mark.requirement("S3.11")
def test_all_write_at_once_and_stand_in_their_order(
    admin: Person, independent: str, scripted: FakeServer
) -> None:
    del scripted
    page = admin.page
    start_team_chat(admin, independent, f"Count. {SLOW}")
    expect(page.locator(LIVE)).to_have_count(3, timeout=ROUND_TIMEOUT)
    for place, name in enumerate(["Planner", "Critic", "Writer"]):
        reply = page.locator(LIVE).nth(place)
        expect(reply.locator(".msg__who")).to_have_text(name)
        expect(reply.locator(".live")).to_contain_text(" 5@", timeout=ROUND_TIMEOUT)
    expect(page.locator(LIVE)).to_have_count(3)
    expect(page.locator("#stop")).to_have_count(1)
    expect(page.locator("#round")).to_contain_text("1 to 3")
    expect(page.locator("#round")).to_contain_text("Finished. 3 replies", timeout=ROUND_TIMEOUT)
    assert list_speakers(admin) == ["You", "Planner", "Critic", "Writer"]
    page.reload()
    assert list_speakers(admin) == ["You", "Planner", "Critic", "Writer"]
    must_be_quiet(admin)


@pytest.mark.requirement("S3.11")
def test_one_button_stops_all_that_write_at_once(
    admin: Person, independent: str, scripted: FakeServer
) -> None:
    del scripted
    page = admin.page
    start_team_chat(admin, independent, f"Count slowly. {SLOW}")
    for place in range(3):
        expect(page.locator(LIVE).nth(place).locator(".live")).to_contain_text(
            " 5@", timeout=ROUND_TIMEOUT
        )
    page.get_by_role("button", name="Stop Critic").click()
    expect(page.locator(LIVE).nth(1).get_by_role("button", name="Stopping")).to_be_disabled()
    expect(page.locator(LIVE)).to_have_count(3)
    page.locator("#stop").click()
    expect(page.locator("#round")).to_contain_text("Stopped", timeout=ROUND_TIMEOUT)
    expect(page.locator(LIVE)).to_have_count(0, timeout=ROUND_TIMEOUT)
    assert list_speakers(admin) == ["You", "Planner", "Critic", "Writer"]
    must_be_quiet(admin)
