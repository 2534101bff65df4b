"""A long chat is fast and stable: small transfers, small updates, no layout shifts."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import APIResponse, Request, Route, expect

from tests.browser.desk import Person, wait_until
from tests.browser.product import Product
from tests.faults.programs import until
from tests.support.browser_chats import EARLIER_LINK, open_long_chat
from tests.support.browser_operator import run_operator_script
from tests.support.browser_summaries import ASSIGN_SUMMARY_POLICY
from tests.support.layout_shifts import OBSERVE_SHIFTS

MOST_BYTES = 120_000
LONGEST_WAIT_MS = 800
# Sending with six hundred messages once took a task of 1.3 s; on the same machine it takes 0.1 s.
LONGEST_TASK_MS = 400

# Draws a frame for each event, as on a busy machine. Counts the frames in which a block is above
# text that it also contains.
TEAR = """
window.torn = [];
window.requestAnimationFrame = (draw) => queueMicrotask(() => draw(performance.now())) ?? 0;
let blocks = 0;
let rest;
new MutationObserver(() => {
  const now = document.querySelectorAll("[data-live] .block").length;
  const open = document.querySelector("[data-live] .live__open > div");
  if (now > blocks && blocks && open === rest) torn.push(open.textContent);
  blocks = now;
  rest = open;
}).observe(document, { childList: true, subtree: true });
"""


def first_paint(person: Person) -> float:
    """Milliseconds to the first paint; the best of several attempts."""
    found: list[float] = []
    for _ in range(8):
        person.page.reload()
        until(lambda: person.value("paints.length"))
        found.append(person.value("paints[0]"))
        if found[-1] <= LONGEST_WAIT_MS:
            break
    return min(found)


def must_be_still(person: Person) -> None:
    """Fail if anything on the page moved without input."""
    shifts: list[str] = person.value("shifts")
    assert not shifts, "\n".join(shifts)


def load_all(person: Person) -> None:
    """Load earlier messages until all are on the page."""
    link = person.page.locator(EARLIER_LINK)
    while link.count():
        shown = person.page.locator("article.msg").count()
        link.click()
        expect(person.page.locator("article.msg").nth(shown)).to_be_attached()


def test_a_chat_of_sixty_long_messages_is_light_and_seen_at_once(
    admin: Person, product: Product
) -> None:
    admin.page.context.add_init_script(OBSERVE_SHIFTS)
    open_long_chat(admin, product, count=58)
    address = admin.page.url
    assert len(admin.page.request.get(address).body()) <= MOST_BYTES
    answer = admin.page.request.fetch(address, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert first_paint(admin) <= LONGEST_WAIT_MS


def test_a_send_beside_six_hundred_messages_touches_none_of_them(
    admin: Person, product: Product
) -> None:
    admin.page.context.add_init_script(OBSERVE_SHIFTS)
    open_long_chat(admin, product, count=600)
    assert first_paint(admin) <= LONGEST_WAIT_MS
    load_all(admin)
    expect(admin.page.locator("article.msg")).to_have_count(602)
    admin.value("document.querySelectorAll('article.msg').forEach((one) => (one.stood = true))")
    longest = []
    # Other tests run on the machine: the best of three shows the time of the page.
    for count in (604, 606, 608):
        admin.value("(tasks.length = 0, shifts.length = 0)")
        admin.send("One more question")
        assert admin.page.locator("article.msg").count() == count
        must_be_still(admin)
        longest.append(admin.value("Math.max(0, ...tasks)"))
        if longest[-1] <= LONGEST_TASK_MS:
            break

    stood = "[...document.querySelectorAll('article.msg')].filter((one) => one.stood).length"
    assert admin.value(stood) >= 600
    assert min(longest) <= LONGEST_TASK_MS


def test_earlier_messages_that_were_loaded_stay_when_a_summary_lands(
    folding_chat: Person,
) -> None:
    person, page = folding_chat, folding_chat.page
    load_all(person)
    before = page.locator("article.msg").count()
    page.locator("#context-meter > summary").click()
    page.get_by_role("button", name="Compact now").click()
    marker = page.locator("[data-marker]")
    expect(marker).to_have_count(1, timeout=20_000)
    covered = int(str(marker.locator(".marker__what").inner_text()).split()[0])

    expect(page.locator("article.msg")).to_have_count(before - covered)
    first = page.locator("article.msg").first
    expect(first).to_have_attribute("aria-label", f"Message {covered + 1} from you")


def test_a_summary_is_requested_although_another_update_comes_first(folding_chat: Person) -> None:
    page = folding_chat.page
    held: list[tuple[Route, APIResponse]] = []
    page.route("**/compact", lambda route: held.append((route, route.fetch())))
    page.locator("#context-meter > summary").click()
    # The meter counts this text during the request.
    page.locator("#composer-text").fill("Half a question")
    with page.expect_request("**/meter"):
        page.get_by_role("button", name="Compact now").click()
    wait_until(page, lambda: bool(held), "the response")
    # The update replaces the meter, and the form in it.
    expect(page.locator("#answer")).to_have_count(1)
    [(route, response)] = held
    route.fulfill(response=response)
    expect(page.locator("#context-meter[open]")).to_have_count(0)
    expect(page.locator("#answer")).to_be_focused()
    expect(page.locator(".failure")).to_have_count(0)


@pytest.fixture
def folding_chat(open_tab: Callable[..., Person], fresh: Product) -> Person:
    """A chat of a hundred short messages under a policy that writes summaries."""
    person = open_tab(fresh)
    person.sign_in(fresh.printed_link())
    run_operator_script(fresh, ASSIGN_SUMMARY_POLICY)
    open_long_chat(person, fresh, count=98, repeats=1)
    return person


def test_a_reply_shifts_nothing(admin: Person, product: Product) -> None:
    admin.page.context.add_init_script(OBSERVE_SHIFTS)
    # With more messages a summary would begin, whose line moves the composer.
    open_long_chat(admin, product, count=8)
    for text in ("A question", "Another one"):
        admin.send(text)
        must_be_still(admin)
    tops: list[list[int]] = admin.value("Object.values(tops).map((each) => [...each])")
    assert tops
    assert all(len(each) == 1 for each in tops)
    admin.new_chat("In a new chat")
    admin.wait_for_reply()
    must_be_still(admin)


def test_a_block_and_the_rest_below_it_come_together(admin: Person) -> None:
    admin.page.context.add_init_script(TEAR)
    admin.new_chat("A question")
    admin.wait_for_reply()
    assert admin.value("torn") == []


def test_what_did_not_change_is_not_swapped(admin: Person) -> None:
    admin.new_chat("A question")
    admin.wait_for_reply()
    parts = "document.querySelectorAll('#state-place, #layers, #chat-bar')"
    admin.value(f"{parts}.forEach((one) => (one.stood = true))")
    admin.send("Another question")
    assert admin.value("document.querySelector('#state-place').stood")
    assert admin.value("document.querySelector('#chat-bar').stood")


def test_one_bar_follows_pointer_and_focus(admin: Person) -> None:
    page, keys = admin.page, admin.page.keyboard
    admin.new_chat("A question")
    admin.wait_for_reply()
    bar = page.locator(".msg__acts")
    expect(bar).to_have_count(1)
    expect(admin.reply.locator(".msg__acts")).to_have_count(1)
    mine = page.locator(".msg--user")
    admin.acts_of(mine)
    expect(bar).to_have_count(1)
    expect(mine.locator("[data-act=edit]")).to_be_visible()
    expect(mine.get_by_label("Regenerate reply")).to_have_count(0)

    page.locator("#composer-text").focus()
    page.mouse.move(0, 0)
    expect(admin.reply.locator(".msg__acts")).to_have_count(1)
    keys.press("Alt+ArrowUp")
    keys.press("Alt+ArrowUp")
    expect(mine).to_be_focused()
    keys.press("Tab")
    expect(mine.locator("[data-act=edit]")).to_be_focused()
    keys.press("ArrowLeft")
    expect(mine.get_by_label("More actions")).to_be_focused()
    keys.press("Enter")
    expect(mine.locator("[data-act=branch]")).to_be_visible()
    keys.press("Escape")
    expect(mine.locator("[data-act=branch]")).not_to_be_visible()
    keys.press("Tab")
    expect(admin.reply.get_by_label("Regenerate reply")).to_be_focused()


def test_an_answer_finds_its_place_when_the_bar_went_elsewhere_meanwhile(admin: Person) -> None:
    page = admin.page
    admin.new_chat("A question")
    admin.wait_for_reply()
    waiting: list[Route] = []
    page.context.route(re.compile("/(un)?pin$"), lambda route: waiting.append(route))
    mine = page.locator(".msg--user")
    for count in (1, 0):
        admin.acts_of(mine)
        mine.get_by_role("button", name="Pin message").click()
        page.locator("#composer-text").focus()
        admin.acts_of(admin.reply)
        # Another part of the page was redrawn at the same time.
        admin.value("document.dispatchEvent(new CustomEvent('htmx:afterSettle', { detail: {} }))")
        expect(mine.locator(".msg__acts")).to_have_count(0)
        waiting.pop().continue_()
        expect(mine.get_by_text("Pinned")).to_have_count(count)


def test_without_scripts_every_action_is_on_the_page_of_its_message(
    admin: Person, open_tab: Any, product: Product
) -> None:
    admin.new_chat("A question")
    admin.wait_for_reply()
    state = admin.page.context.storage_state()
    person = open_tab(product, storage_state=state, java_script_enabled=False)
    person.page.goto(admin.page.url)
    person.page.get_by_role("link", name="Actions for message 1").click()
    expect(person.page.locator("[data-act=edit]")).to_be_visible()
    person.page.locator("form[action$='/exclude'] button").click()
    expect(person.page.locator(".msg--user")).to_contain_text("excluded")


def test_an_open_page_hears_of_no_stream_that_waits_for_a_block(admin: Person) -> None:
    heard: list[Request] = []
    admin.page.context.on("request", lambda request: heard.append(request))
    admin.new_chat("A question")
    admin.wait_for_reply()
    kinds = {
        answer.headers.get("content-encoding")
        for request in heard
        if "/stream?" in request.url and (answer := request.response())
    }
    assert kinds <= {None}
