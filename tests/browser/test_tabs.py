"""Several tabs of one person: all get live updates over one stream."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import APIResponse, BrowserContext, Page, Request, Route, expect

from tests.browser.desk import Person, must_be_quiet, wait_until
from tests.browser.product import Product
from tests.faults.programs import until
from tests.support.browser_chats import open_tab_at, start_chat_with_model
from tests.support.browser_operator import run_operator_script

MANY = """
from datetime import timedelta
from django.contrib.auth.models import User
from django.utils import timezone
from chats.models import Chat
now, owner = timezone.now() - timedelta(days=90), User.objects.order_by("pk")[0]
for number in range(110):
    at = now - timedelta(hours=number)
    Chat.objects.create(owner=owner, title=f"Filed {number}", created_at=at, updated_at=at)
"""
TAKE_AWAY = "Chat.objects.filter(title__startswith='Filed ').delete()"
# Goes on until it is stopped: ten tabs take a minute to load on a busy machine.
ENDLESS = "[[fake tokens=3000 ms=100]]"
TABS = 10
# A shared worker that never responds, and a list of all streams of the page.
SILENT_WORKER = """
window.SharedWorker = class {
  port = { postMessage() {} };
  constructor() { window.worker = this; }
};
window.sources = [];
window.EventSource = class extends EventSource {
  constructor(address) { super(address); sources.push(this); }
};
"""
# Follows 21 replies with a stream that never responds, then ends one of them. Returns the replies
# that the streams before and after that follow.
FOLLOW_MANY = """async () => {
  const { worker } = document.querySelector("#stream").dataset;
  const { Switchboard } = await import(new URL("switchboard.js", new URL(worker, location)));
  const opened = [];
  window.EventSource = class {
    constructor(address) {
      this.address = address;
      this.heard = new Map();
      opened.push(this);
    }
    addEventListener(kind, hear) { this.heard.set(kind, hear); }
    close() {}
  };
  const later = () => new Promise((done) => setTimeout(done, 50));
  const turns = () => new URL(opened.at(-1).address, location).searchParams.getAll("turn");
  const board = new Switchboard("/stream");
  const port = { postMessage() {} };
  board.hear(port, { hello: Date.now() });
  for (let number = 0; number < 21; number += 1) board.hear(port, { follow: `turn${number}` });
  await later();
  const before = turns();
  opened.at(-1).heard.get("turn5.done")({ data: "", lastEventId: "" });
  await later();
  return [before, turns()];
}"""
# The link that adds older chats to the list.
MORE_CHATS = "#more-chats > a"


def test_ten_tabs_load_and_follow_the_same_reply(
    context: BrowserContext, product: Product, connected: str
) -> None:
    person = Person(context.new_page(), product)
    start_chat_with_model(person, f"Count slowly {ENDLESS}")
    expect(person.live).to_contain_text(" 3@")
    tabs = [open_tab_at(context, person.page.url) for _ in range(TABS - 1)]
    for tab in tabs:
        expect(tab.locator("[data-live] .msg__body")).to_contain_text("@", timeout=30_000)
    person.page.bring_to_front()
    person.page.keyboard.press("Escape")
    replies = []
    for tab in (person.page, *tabs):
        expect(tab.locator("[data-live]")).to_have_count(0, timeout=30_000)
        reply = tab.locator("article.msg").last
        expect(reply).to_contain_text("stopped")
        replies.append(reply.locator(".msg__body").inner_text())
    assert len(set(replies)) == 1
    assert " 3@" in replies[0]
    must_be_quiet(person)


def test_another_tab_shows_what_is_said_in_this_one(
    context: BrowserContext, product: Product
) -> None:
    person = Person(context.new_page(), product)
    person.new_chat("The first question")
    person.wait_for_reply()
    other = open_tab_at(context, person.page.url)
    expect(other.locator(".msg--user")).to_have_count(1)
    person.send("The second question")
    expect(other.locator(".msg--user", has_text="The second question")).to_be_visible()
    expect(other.locator("[data-live]")).to_have_count(0, timeout=20_000)
    expect(other.locator("article.msg")).to_have_count(4)
    must_be_quiet(person)


def test_marks_of_messages_come_to_another_tab(context: BrowserContext, product: Product) -> None:
    person = Person(context.new_page(), product)
    person.new_chat("The first question")
    person.wait_for_reply()
    person.send("The second question")
    person.wait_for_reply()
    other = open_tab_at(context, person.page.url)
    for place, act, mark in ((0, "pin", "pinned"), (3, "exclude", "excluded"), (0, "unpin", "")):
        choose_mark(person.page, place=place, act=act)
        expect(other.locator("article.msg").nth(place)).to_have_attribute("data-marks", mark)
    expect(other.locator("article.msg")).to_have_count(4)
    must_be_quiet(person)


def test_changes_during_an_update_come_to_another_tab(
    context: BrowserContext, product: Product
) -> None:
    person = Person(context.new_page(), product)
    person.new_chat("The first question")
    person.wait_for_reply()
    other = open_tab_at(context, person.page.url)
    held: list[tuple[Route, APIResponse]] = []

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    other.route("**/changes*", hold_first)
    choose_mark(person.page, place=0, act="pin")
    wait_until(other, lambda: bool(held), "the first update")
    choose_mark(person.page, place=1, act="exclude")
    # The notice of this change comes to the tab before the response.
    other.wait_for_timeout(1000)
    [(route, response)] = held
    route.fulfill(response=response)
    expect(other.locator("article.msg").nth(1)).to_have_attribute("data-marks", "excluded")
    expect(other.locator("article.msg").nth(0)).to_have_attribute("data-marks", "pinned")
    must_be_quiet(person)


def choose_mark(page: Page, *, place: int, act: str) -> None:
    """Choose an action that marks the message at a place."""
    message = page.locator("article.msg").nth(place)
    message.hover()
    message.locator("details.menu > summary").click()
    message.locator(f"[data-act={act}]").first.locator("button").click()


def test_an_idle_page_asks_for_nothing(context: BrowserContext, product: Product) -> None:
    person = Person(context.new_page(), product)
    person.new_chat("A question")
    person.wait_for_reply()
    # Requests that follow the end of the reply.
    time.sleep(3)
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    context.on("request", note)
    time.sleep(12)
    assert asked == []


def test_a_browser_without_shared_workers_follows_too(
    context: BrowserContext, product: Product
) -> None:
    context.add_init_script("delete window.SharedWorker")
    person = Person(context.new_page(), product)
    person.new_chat("A question")
    person.wait_for_reply()
    person.send("Another question")
    person.wait_for_reply()
    expect(person.page.locator("article.msg")).to_have_count(4)
    must_be_quiet(person)


def test_of_many_replies_the_newest_are_followed_first(
    context: BrowserContext, product: Product
) -> None:
    person = Person(context.new_page(), product)
    person.open("/chats/new")
    before, after = person.page.evaluate(FOLLOW_MANY)
    assert before == [f"turn{number}" for number in range(1, 21)]
    assert after == [f"turn{number}" for number in range(21) if number != 5]


def test_a_worker_that_fails_late_causes_no_second_stream(
    context: BrowserContext, product: Product
) -> None:
    context.add_init_script(SILENT_WORKER)
    person = Person(context.new_page(), product)
    person.open("/chats/new")
    count = "sources.filter(({ readyState }) => readyState !== EventSource.CLOSED).length"
    wait_until(person.page, lambda: person.value(count) == 1, "a stream of the page itself")
    person.value("worker.onerror?.(new Event('error'))")
    person.page.wait_for_timeout(500)
    assert person.value(count) == 1
    must_be_quiet(person)


def test_a_reply_is_followed_after_each_change_of_the_page(
    context: BrowserContext, product: Product
) -> None:
    person = Person(context.new_page(), product)
    for number in range(12):
        person.new_chat(f"Question {number}")
        person.wait_for_reply()
    must_be_quiet(person)


def titles(page: Page) -> list[str]:
    """The chats in the list, from the top, without folders."""
    return page.locator("#chat-list li .navitem__title").all_inner_texts()


def test_the_chat_list_of_another_tab_follows(context: BrowserContext, product: Product) -> None:
    person = Person(context.new_page(), product)
    person.new_chat("An older chat")
    person.wait_for_reply()
    older = person.page.url
    other = open_tab_at(context, product.url + "/settings/")
    other.goto(product.url + "/chats/new")
    other.evaluate("document.querySelector('#chat-list').stood = true")
    other.locator("#composer-text").fill("unfinished")

    person.new_chat("A chat that is new")
    item = other.locator("#chat-list li", has_text="A chat that is new")
    expect(item).to_be_visible()
    assert titles(other)[0] == "A chat that is new"
    person.wait_for_reply()

    person.page.get_by_label("Chat actions").click()
    person.page.get_by_label("Title").fill("Another name")
    person.page.get_by_role("button", name="Rename chat").click()
    expect(other.locator("#chat-list li").first).to_contain_text("Another name")

    person.page.goto(older)
    person.send("Now it is the newest")
    expect(other.locator("#chat-list li").first).to_contain_text("An older chat")
    assert other.evaluate("document.querySelector('#chat-list').stood")
    assert other.locator("#composer-text").input_value() == "unfinished"
    must_be_quiet(person)


def test_a_pin_comes_to_another_tab_in_which_an_open_folder_stays_open(
    context: BrowserContext, product: Product
) -> None:
    person = Person(context.new_page(), product)
    page = person.page
    person.new_chat("Filed away")
    person.wait_for_reply()
    open_menu(page, "a[href$='/folder']")
    page.locator("#folder-name").fill("Drawer")
    page.get_by_role("button", name="Move chat").click()
    expect(page.locator(".navfolder", has_text="Drawer")).to_be_visible()

    other = open_tab_at(context, product.url + "/chats/new")
    folder = other.locator(".navfolder", has_text="Drawer")
    folder.locator("summary").click()
    expect(folder.locator("li", has_text="Filed away")).to_be_visible()

    person.new_chat("To be pinned")
    person.wait_for_reply()
    page.get_by_label("Chat actions").click()
    page.locator(".chat__actions [name=pinned]").click()
    expect(other.get_by_role("heading", name="Pinned")).to_be_visible()
    expect(other.locator(".navfolder")).to_have_count(1)
    expect(folder.locator("li", has_text="Filed away")).to_be_visible()
    expect(other.locator("#sidebar a[href='/chats/archive']")).to_be_visible()
    open_menu(page, "[name=pinned]")
    expect(other.get_by_role("heading", name="Pinned")).to_have_count(0)
    must_be_quiet(person)


def test_a_folder_s_new_name_comes_to_another_tab(
    context: BrowserContext, product: Product
) -> None:
    person = Person(context.new_page(), product)
    person.new_chat("Filed under another name")
    person.wait_for_reply()
    open_menu(person.page, "a[href$='/folder']")
    person.page.locator("#folder-name").fill("Attic")
    person.page.get_by_role("button", name="Move chat").click()
    folder = person.page.locator(".navfolder", has_text="Attic")
    other = open_tab_at(context, product.url + "/chats/new")
    expect(other.locator(".navfolder", has_text="Attic")).to_be_visible()

    folder.locator("a.navitem--quiet").click()
    person.page.get_by_label("Name").fill("Cellar")
    person.page.get_by_role("button", name="Rename folder").click()
    expect(other.locator(".navfolder", has_text="Cellar")).to_be_visible()
    expect(other.locator(".navfolder", has_text="Attic")).to_have_count(0)
    person.page.get_by_role("button", name="Delete folder").click()
    expect(other.locator(".navfolder", has_text="Cellar")).to_have_count(0)
    must_be_quiet(person)


def open_menu(page: Page, entry: str) -> None:
    """Choose the entry of the chat's menu that a selector finds."""
    page.get_by_label("Chat actions").click()
    page.locator(".chat__actions .menu__panel").locator(entry).click()


def test_the_open_chat_of_another_tab_takes_its_new_title(
    context: BrowserContext, product: Product
) -> None:
    person = Person(context.new_page(), product)
    person.new_chat("To be renamed")
    person.wait_for_reply()
    other = open_tab_at(context, person.page.url)
    person.page.get_by_label("Chat actions").click()
    person.page.get_by_label("Title").fill("Renamed for $$ · $&")
    person.page.get_by_role("button", name="Rename chat").click()
    expect(other.locator("h1")).to_have_text("Renamed for $$ · $&")
    expect(other).to_have_title("Renamed for $$ · $& · Palimpsest")
    must_be_quiet(person)


def test_unread_comes_and_goes_in_the_lists_of_all_tabs(
    context: BrowserContext, product: Product, connected: str
) -> None:
    person = Person(context.new_page(), product)
    start_chat_with_model(person, "A reply nobody watches [[fake tokens=30 ms=30]]")
    chat = person.page.url
    person.open("/chats/new")
    other = open_tab_at(context, product.url + "/chats/new")
    items = [
        page.locator("#chat-list li", has_text="A reply nobody watches")
        for page in (person.page, other)
    ]
    for item in items:
        expect(item).to_contain_text("unread reply", timeout=20_000)
    other.goto(chat)
    expect(items[0]).not_to_contain_text("unread reply")
    must_be_quiet(person)


@pytest.mark.parametrize("beside", [False, True], ids=["the only tab", "beside another tab"])
def test_what_happens_while_a_page_loads_comes_to_it(
    context: BrowserContext, product: Product, connected: str, beside: bool
) -> None:
    if beside:
        open_tab_at(context, product.url + "/chats/new")
    title = f"Over before the page is there {beside}"
    writer = Person(open_tab_at(context, product.url + "/chats/new"), product)
    start_chat_with_model(writer, f"{title} [[fake tokens=30 ms=30]]")
    page = context.new_page()
    held: list[Route] = []
    page.route("**/app*.js", lambda route: held.append(route))
    page.goto(product.url + "/chats/new", wait_until="commit")
    until(lambda: page.locator("#chat-list li", has_text=title).count() and held, seconds=20)
    writer.wait_for_reply()
    writer.page.close()
    time.sleep(1.5)
    for route in held:
        route.continue_()
    expect(page.locator("#chat-list li", has_text=title)).not_to_contain_text("in progress")


@pytest.fixture
def filed(product: Product) -> Iterator[None]:
    """Old chats of the administrator, more than two pages of the list."""
    run_operator_script(product, MANY)
    yield
    run_operator_script(product, "from chats.models import Chat; " + TAKE_AWAY)


def filed_titles(page: Page) -> list[str]:
    """The old chats in the list, from the top."""
    return [title for title in titles(page) if re.match(r"Filed \d", title)]


def test_chats_loaded_below_the_first_page_stay_in_the_list(
    context: BrowserContext, product: Product, filed: None
) -> None:
    person = Person(context.new_page(), product)
    person.open("/chats/new")
    page = person.page
    more = page.locator(MORE_CHATS)
    more.click()
    expect(page.locator("#chat-list li")).to_have_count(100)
    before = filed_titles(page)
    run_operator_script(
        product, "from chats.models import Chat; Chat.objects.get(title='Filed 3').delete()"
    )
    other = Person(open_tab_at(context, product.url + "/chats/new"), product)
    other.new_chat("On top of them all")
    expect(page.locator("#chat-list li").first).to_contain_text("On top of them all")
    # The chat that the new one moved off the first page is not lost.
    before.remove("Filed 3")
    assert filed_titles(page) == before
    headings = page.locator("#chat-list h2").all_inner_texts()
    assert len(headings) == len(set(headings))

    expect(more).to_have_count(1)
    assert page.locator("#chat-list > #more-chats:last-child").count() == 1
    more.click()
    expect(more).to_have_count(0)
    assert filed_titles(page) == [f"Filed {number}" for number in range(110) if number != 3]
    other.new_chat("On top once more")
    expect(page.locator("#chat-list li").first).to_contain_text("On top once more")
    expect(more).to_have_count(0)
    assert filed_titles(page) == [f"Filed {number}" for number in range(110) if number != 3]
    found = page.locator("#chat-list [id]").evaluate_all("(parts) => parts.map(({ id }) => id)")
    assert len(found) == len(set(found))
    must_be_quiet(person)


def test_a_chat_that_is_unpinned_far_below_is_not_lost(
    context: BrowserContext, product: Product, filed: None
) -> None:
    person = Person(context.new_page(), product)
    action = (
        "from chats.models import Chat; Chat.objects.filter(title='Filed 80').update(pinned={})"
    )
    run_operator_script(product, action.format(True))
    person.open("/chats/new")
    page = person.page
    more = page.locator(MORE_CHATS)
    more.click()
    expect(page.locator("#chat-list li")).to_have_count(100)
    run_operator_script(product, action.format(False))
    other = Person(open_tab_at(context, product.url + "/chats/new"), product)
    other.new_chat("Beside the pins")
    expect(page.get_by_role("heading", name="Pinned")).to_have_count(0)
    expect(page.locator("#chat-list li")).to_have_count(50)
    more.click()
    expect(page.locator("#chat-list li")).to_have_count(100)
    more.click()
    expect(more).to_have_count(0)
    assert filed_titles(page) == [f"Filed {number}" for number in range(110)]
    must_be_quiet(person)


def test_the_focus_stays_where_it_is_when_the_list_comes_anew(
    context: BrowserContext, product: Product, filed: None
) -> None:
    person = Person(context.new_page(), product)
    person.new_chat("Filed by hand")
    person.wait_for_reply()
    open_menu(person.page, "a[href$='/folder']")
    person.page.locator("#folder-name").fill("Shed")
    person.page.get_by_role("button", name="Move chat").click()
    expect(person.page.locator(".navfolder", has_text="Shed")).to_be_visible()

    other = open_tab_at(context, product.url + "/chats/new")
    folder = other.locator(".navfolder", has_text="Shed")
    top = other.locator("#chat-list > .navgroup li").first

    def comes_anew(title: str) -> None:
        person.new_chat(title)
        expect(top).to_contain_text(title)
        person.wait_for_reply()

    for number, place in enumerate((folder.locator("summary"), other.locator(MORE_CHATS))):
        place.focus()
        comes_anew(f"Beside the focus {number}")
        expect(place).to_be_focused()
    folder.locator("summary").click()
    inside = folder.locator("li a", has_text="Filed by hand")
    inside.focus()
    with other.expect_response(re.compile("/folders/")):
        comes_anew("Beside the open folder")
    expect(inside).to_be_focused()
    run_operator_script(product, "from chats.models import Folder; Folder.objects.all().delete()")
    must_be_quiet(person)
