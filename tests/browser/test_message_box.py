"""The message box: focus, drafts, immediate display of messages, copying, and the Enter key."""

import re
from typing import Any

from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.browser.desk import Person, wait_until
from tests.browser.product import Product

LATER = "An unfinished thought"
FORMULA = "Twice $\\frac{1}{2}$ is *one*[^1]\n\n- [x] done\n\n[^1]: See [it](https://a.example)."


def test_the_box_keeps_the_focus_after_the_first_message_of_a_chat(admin: Person) -> None:
    admin.new_chat("The first message")
    expect(admin.page.locator("#composer-text")).to_be_focused()
    admin.wait_for_reply()
    admin.page.keyboard.type("The second")
    admin.page.keyboard.press("Enter")
    expect(admin.page.locator(".msg--user", has_text="The second")).to_be_visible()
    expect(admin.page.locator("#composer-text")).to_be_focused()


def test_a_draft_survives_other_chats_and_reloading_until_it_is_sent(admin: Person) -> None:
    box = admin.page.locator("#composer-text")
    admin.open("/chats/new")
    box.fill("For a chat to come")
    admin.page.reload()
    expect(box).to_have_value("For a chat to come")
    box.press("Enter")
    admin.wait_for_reply()
    expect(box).to_have_value("")
    chat = admin.page.url
    box.fill(LATER)
    admin.open("/chats/new")
    expect(box).to_have_value("")
    admin.page.goto(chat)
    expect(box).to_have_value(LATER)
    expect(admin.page.locator("#composer-count")).to_contain_text(str(len(LATER)))
    box.press("Enter")
    admin.wait_for_reply()
    admin.page.reload()
    expect(box).to_have_value("")


def test_what_was_on_its_way_when_the_page_was_left_is_no_draft_once_it_arrived(
    admin: Person,
) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    admin.open("/chats/new")
    for _ in range(2):
        box.fill("The same words")
        box.press("Enter")
        admin.wait_for_reply()
        expect(page.locator("#sending")).to_be_empty()
    answered = held(page.context)
    # The message did not arrive: the text is still there, also after an identical message.
    for number, words in enumerate((LATER, "The same words"), start=1):
        box.fill(words)
        box.press("Enter")
        expect(page.locator("#sending")).to_contain_text(words)
        wait_for_held(page, answered, number)
        page.reload()
        expect(box).to_have_value(words)
    box.fill(FORMULA)
    page.context.unroute_all()
    # The message arrives, but the response is lost.
    box.press("Enter")
    expect(page.locator(".msg--user", has_text="Twice")).to_be_visible()
    page.evaluate(
        """([text, behind]) => {
          const path = new URL(document.querySelector("#composer").action).pathname;
          const key = `draft:${document.querySelector("#stream").dataset.person}:${path}`;
          localStorage.setItem(key, text);
          localStorage.setItem(`${key}#sent`, JSON.stringify({ text, behind }));
        }""",
        [FORMULA, page.locator(".msg--user").nth(1).get_attribute("id")],
    )
    page.reload()
    expect(box).to_have_value("")
    expect(page.locator(".msg--user", has_text="Twice")).to_have_count(1)


def test_a_message_is_sent_once_if_the_storage_of_the_browser_is_full(admin: Person) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    page.add_init_script(
        "Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); }"
    )
    admin.new_chat("The first message")
    admin.wait_for_reply()
    box.fill("The second message")
    box.press("Enter")
    expect(page.locator("#messages .msg--user")).to_have_count(2)
    expect(page.locator("#sending")).to_be_empty()
    expect(box).to_have_value("")
    admin.wait_for_reply()


def test_drafts_are_gone_after_signing_out(open_tab: Any, fresh: Product) -> None:
    person = open_tab(fresh)
    person.sign_in(fresh.printed_link())
    # A page that is still loading stores no draft.
    person.page.wait_for_load_state()
    person.page.locator("#composer-text").fill(LATER)
    person.page.wait_for_function(
        "Object.keys(localStorage).some((key) => key.startsWith('draft:'))"
    )
    person.open("/settings/")
    person.page.get_by_role("button", name="Sign out").click()
    expect(person.page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert not person.value("Object.keys(localStorage).some((key) => key.startsWith('draft:'))")


def held(context: BrowserContext) -> list[Route]:
    """Messages delayed by the network."""
    waiting: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.method == "POST":
            waiting.append(route)
        else:
            route.continue_()

    context.route(re.compile("/messages$"), hold)
    return waiting


def wait_for_held(page: Page, waiting: list[Route], number: int) -> None:
    """Wait until the browser has sent this number of messages."""
    wait_until(page, lambda: len(waiting) == number, f"message {number}")


def test_ones_own_message_stands_there_at_once(admin: Person) -> None:
    admin.new_chat("The first message")
    admin.wait_for_reply()
    waiting = held(admin.page.context)
    admin.type("On its way")
    mine = admin.page.locator(".msg--user", has_text="On its way")
    expect(mine).to_contain_text("sending")
    expect(admin.page.locator("#composer-text")).to_have_value("")
    admin.page.keyboard.type("typed meanwhile")
    wait_for_held(admin.page, waiting, 1)
    waiting[0].continue_()
    expect(mine).not_to_contain_text("sending")
    expect(mine).to_have_count(1)
    expect(admin.page.locator("#composer-text")).to_have_value("typed meanwhile")
    expect(admin.page.locator("#composer-text")).to_be_focused()
    admin.wait_for_reply()


def test_a_message_that_the_network_lost_is_marked_and_its_words_are_kept(admin: Person) -> None:
    admin.new_chat("The first message")
    admin.wait_for_reply()
    waiting = held(admin.page.context)
    admin.type("Never arrives")
    expect(admin.page.locator(".msg--user", has_text="Never arrives")).to_be_visible()
    wait_for_held(admin.page, waiting, 1)
    waiting[0].abort()
    mine = admin.page.locator(".msg--user", has_text="Never arrives")
    expect(mine).to_contain_text("not sent")
    expect(admin.page.locator("#composer-text")).to_have_value("Never arrives")
    expect(admin.page.locator("#composer .failure")).to_have_attribute("data-status", "0")
    admin.page.context.unroute(re.compile("/messages$"))
    admin.page.locator("#composer-text").press("Enter")
    expect(mine).not_to_contain_text("not sent")
    admin.wait_for_reply()
    expect(mine).to_have_count(1)
    # The browser's network errors are not errors of the page.
    admin.complaints[:] = [said for said in admin.complaints if "ERR_FAILED" not in said]


def test_a_message_that_is_refused_is_marked_and_its_words_are_kept(admin: Person) -> None:
    admin.new_chat("The first message")
    admin.wait_for_reply()
    box = admin.page.locator("#composer-text")
    words = "much too long " * 40_000
    limit = int(str(box.get_attribute("data-limit")))
    admin.type(words[: limit + 10].strip())
    expect(admin.page.locator("#composer-error")).to_be_visible()
    expect(admin.page.locator(".is-failed")).to_contain_text("not sent")
    assert len(box.input_value()) > limit
    box.fill("Short enough")
    box.press("Enter")
    admin.wait_for_reply()
    expect(admin.page.locator(".is-failed")).to_have_count(0)


def test_copy_gives_the_source_and_says_so(open_tab: Any, product: Product, signed_in: Any) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    person = open_tab(product, storage_state=signed_in, permissions=permissions)
    source = "# A **bold** plan\n\n- one\n- `two` & <three>"
    person.new_chat(source)
    person.wait_for_reply()
    mine = person.acts_of(person.page.locator(".msg--user"))
    mine.get_by_label("Copy message").click()
    expect(mine.get_by_label("Copy message")).to_contain_text("Copied")
    expect(person.page.locator("#status")).to_have_text("Copied.")
    assert person.value("navigator.clipboard.readText()") == source
    expect(mine.get_by_label("Copy message")).not_to_contain_text("Copied")


def test_enter_and_control_enter_send_in_both_boxes(admin: Person) -> None:
    page, keys = admin.page, admin.page.keyboard
    admin.open("/chats/new")
    page.locator("#composer-text").fill("By control")
    keys.press("Control+Enter")
    expect(page.locator("#context-meter")).to_be_visible()
    admin.wait_for_reply()
    for key, words in (("Enter", "by enter"), ("Control+Enter", "by control and enter")):
        page.locator("#composer-text").focus()
        keys.press("ArrowUp")
        editor = page.get_by_label("Edit message")
        expect(editor).to_be_focused()
        editor.fill(words)
        keys.press("Shift+Enter")
        keys.type("in two lines")
        keys.press(key)
        expect(page.locator(".msg--user")).to_contain_text(words)
        expect(editor).to_have_count(0)
        admin.wait_for_reply()
        assert f"{words}\nin two lines" in page.locator(".msg--user").inner_text()


def test_control_enter_saves_where_enter_makes_a_line(admin: Person) -> None:
    admin.new_chat("A question")
    admin.wait_for_reply()
    chat = admin.page.url
    admin.page.goto(f"{chat.split('?')[0]}system-text")
    area = admin.page.locator("#own-text")
    area.fill("Answer briefly.")
    area.press("Enter")
    area.press("Control+Enter")
    expect(admin.page.locator("#system-text .notice--ok")).to_be_visible()
    admin.page.goto(chat)
    admin.page.get_by_label("Chat actions").click()
    expect(admin.page.locator("[data-note=own-instructions]")).to_be_visible()
