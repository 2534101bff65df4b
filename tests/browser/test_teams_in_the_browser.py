"""A team in the browser: created, used, interrupted, read, and regenerated in the middle."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person, must_be_quiet
from tests.browser.product import Product
from tests.fakes.fake_server import FakeServer
from tests.support.browser_chats import ROUND_TIMEOUT, SLOW_REPLY, list_speakers, start_team_chat


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
    start_team_chat(admin, team, "Plan a day in Rome.")
    expect(page.locator("#round")).to_contain_text("Finished. 3 replies", timeout=ROUND_TIMEOUT)
    assert list_speakers(admin) == ["You", "Planner", "Critic", "Writer"]
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
    expect(page.locator("article.msg", has_text="two meals")).to_be_visible(timeout=ROUND_TIMEOUT)
    expect(page.locator("#round")).to_contain_text("Finished.", timeout=ROUND_TIMEOUT)
    assert list_speakers(admin) == ["You", "Planner", "Critic", "Writer"]
    expect(page.locator("article.msg", has_text="Too much walking.")).to_have_count(0)
    must_be_quiet(admin)


@pytest.mark.requirement("S3.11")
def test_a_round_is_stopped_and_goes_on_also_after_a_reload(
    admin: Person, team: str, scripted: FakeServer
) -> None:
    page = admin.page
    start_team_chat(admin, team, f"Count slowly. {SLOW_REPLY}")
    expect(admin.live).to_contain_text(" 5@", timeout=ROUND_TIMEOUT)
    expect(page.locator("[data-live] .msg__who")).to_have_text("Planner")
    expect(page.locator("#round")).to_contain_text("Reply 1 of up to 8. Next: Critic, Writer.")
    page.reload()
    page.get_by_role("button", name=re.compile("Stop")).click()
    expect(page.locator("#round")).to_contain_text("Stopped", timeout=ROUND_TIMEOUT)
    expect(page.locator("[data-live]")).to_have_count(0)
    assert list_speakers(admin) == ["You", "Planner"]
    scripted.configure(replies=[{"text": "Enough counted."}, {"text": "Indeed."}])
    page.reload()
    page.get_by_role("button", name="Continue round").click()
    expect(page.locator("#round")).to_contain_text("Finished. 2 replies", timeout=ROUND_TIMEOUT)
    assert list_speakers(admin) == ["You", "Planner", "Critic", "Writer"]
    must_be_quiet(admin)


def test_what_is_written_meanwhile_with_a_name_is_answered_by_that_agent(
    admin: Person, team: str, scripted: FakeServer, product: Product
) -> None:
    del product
    page = admin.page
    start_team_chat(admin, team, f"Count slowly. {SLOW_REPLY}")
    expect(admin.live).to_contain_text(" 5@", timeout=ROUND_TIMEOUT)
    scripted.configure(replies=[{"text": "In short: enough."}])
    admin.type("@Writer say it in short.")
    expect(page.locator(".msg--user", has_text="in short")).to_be_visible()
    page.get_by_role("button", name=re.compile("Stop")).click()
    expect(page.locator("article.msg", has_text="In short: enough.")).to_be_visible(
        timeout=ROUND_TIMEOUT
    )
    expect(page.locator("#round")).to_contain_text("Finished. 1 reply", timeout=ROUND_TIMEOUT)
    assert list_speakers(admin)[-1] == "Writer"
    must_be_quiet(admin)
