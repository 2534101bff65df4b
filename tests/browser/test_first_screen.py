"""The chat page on small screens, on paper and in forced colours; files and long texts."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_chats import EARLIER_LINK, open_long_chat

LONG_TITLE = "A title that is far longer than the screen of any phone is wide, and goes on"
# Paste and drop events with a file, and optional text.
GIVE = """([kind, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array([137, 80, 78, 71])], "shot.png", { type: "image/png" }));
  if (text) data.setData("text/plain", text);
  const options = { bubbles: true, cancelable: true, clipboardData: data, dataTransfer: data };
  const event = kind === "paste" ? new ClipboardEvent(kind, options) : new DragEvent(kind, options);
  return !document.querySelector("#composer-text").dispatchEvent(event);
}"""
# Parts of a message that are cut off at an edge.
CLIPPED = """(message) => [...message.querySelectorAll("*")].filter(
  (part) => part.clientWidth > 1 && (part.getBoundingClientRect().right > innerWidth + 1
    || (getComputedStyle(part).overflowX !== "visible" && part.scrollWidth > part.clientWidth + 1))
).map((part) => part.outerHTML.slice(0, 80))"""


def box_of(page: Page, selector: str) -> dict[str, float]:
    """The bounding box of an element."""
    found = page.locator(selector).last.bounding_box()
    assert found is not None, selector
    x, y, width, height = found["x"], found["y"], found["width"], found["height"]
    return {
        "x": x,
        "y": y,
        "width": width,
        "height": height,
        "bottom": y + height,
        "end": x + width,
    }


@pytest.mark.parametrize("size", [(1280, 720), (1280, 800)])
def test_nothing_of_the_first_screen_is_covered(size: tuple[int, int], admin: Person) -> None:
    page = admin.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    admin.open("/chats/new")
    assert box_of(page, ".suggestions")["bottom"] <= box_of(page, ".composer")["y"]
    assert box_of(page, ".startline")["height"] <= 32
    expect(page.locator("#first-run")).to_have_text(re.compile(r"Demo model · Connect a model"))
    assert page.evaluate("thread.scrollHeight <= thread.clientHeight")


def test_at_two_hundred_percent_half_of_the_screen_is_for_messages(admin: Person) -> None:
    admin.page.set_viewport_size({"width": 640, "height": 400})
    admin.open("/chats/new")
    assert box_of(admin.page, "#thread")["height"] >= 200
    admin.new_chat("Hello")
    admin.wait_for_reply()
    assert box_of(admin.page, "#thread")["height"] >= 200


def test_a_phone_has_a_whole_menu_button_and_send_in_its_row(admin: Person) -> None:
    page = admin.page
    admin.new_chat("Hello")
    admin.wait_for_reply()
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("#chat-bar h1").evaluate(f"(title) => {{ title.textContent = '{LONG_TITLE}' }}")
    menu = box_of(page, "#chat-bar > a")
    assert (menu["width"] >= 44, menu["height"] >= 44) == (True, True), menu
    send, model = box_of(page, "#send"), box_of(page, "#model-picker > summary")
    assert send["y"] < model["bottom"]
    assert model["y"] < send["bottom"]
    assert model["end"] <= send["x"]
    assert box_of(page, "#composer-box")["height"] < 120
    assert not admin.scrolls_sideways()


def test_printing_prints_every_message(admin: Person, product: Product) -> None:
    page = admin.page
    open_long_chat(admin, product, count=70)
    assert page.locator("article.msg").count() < 72
    page.pdf()
    expect(page.locator("article.msg")).to_have_count(72)
    expect(page.locator(EARLIER_LINK)).to_have_count(0)
    page.emulate_media(media="print")
    for part in (".sidebar", ".composer"):
        expect(page.locator(part)).to_be_hidden()
    heights = page.evaluate("[thread.scrollHeight, thread.clientHeight]")
    assert heights[0] == heights[1]
    page.emulate_media(media="screen")


def test_long_lines_and_wide_tables_are_printed(admin: Person) -> None:
    page = admin.page
    cells = "| " + " | ".join(f"column_{n}_of_the_table" for n in range(12)) + " |"
    table = "\n".join([cells, "|---" * 12 + "|", cells])
    admin.new_chat(f"A log:\n\n```\n{'word ' * 60}{'x' * 300}\n```\n\n{table}")
    admin.wait_for_reply()
    # An A4 page.
    page.set_viewport_size({"width": 720, "height": 1000})
    page.emulate_media(media="print")
    sizes = page.locator("#thread article.msg").first.evaluate(CLIPPED)
    page.emulate_media(media="screen")
    assert sizes == []


@pytest.mark.parametrize("kind", ["paste", "drop"])
def test_a_picture_is_attached(kind: str, admin: Person) -> None:
    page = admin.page
    admin.open("/chats/new")
    assert page.evaluate(GIVE, [kind, ""])
    expect(page.locator("#composer-files .attachment")).to_have_count(1)
    # A spreadsheet copies a picture of the cells in addition to their text.
    assert page.evaluate(GIVE, [kind, "1\t2"]) is (kind == "drop")


def test_a_long_text_is_pasted_at_once_and_keeps_its_direction(admin: Person) -> None:
    page = admin.page
    admin.open("/chats/new")
    text = page.locator("#composer-text")
    times = []
    for letters, direction in (("Some words of a line.", "ltr"), ("كلمات في سطر واحد هنا", "rtl")):
        words = f"{letters}\n" * (130_000 // len(letters))
        page.evaluate(
            """(words) => {
          const area = document.createElement("textarea");
          document.body.append(area);
          area.value = words;
          area.select();
        }""",
            words,
        )
        page.keyboard.press("Control+C")
        page.evaluate("document.querySelector('body > textarea').remove()")
        text.focus()
        page.evaluate("window.began = performance.now()")
        page.keyboard.press("Control+V")
        times.append(
            page.evaluate("""new Promise((done) => requestAnimationFrame(() =>
          requestAnimationFrame(() => done(performance.now() - began))))""")
        )
        assert len(text.input_value()) == len(words)
        assert text.get_attribute("dir") == direction
        text.fill("")
        assert text.get_attribute("dir") == "auto"
    assert min(times) < 2_000, times


def test_forced_colours_show_the_open_chat(
    product: Product, signed_in: Any, open_tab: Callable[..., Person]
) -> None:
    person = open_tab(product, storage_state=signed_in, forced_colors="active")
    for words in ("First", "Second"):
        person.new_chat(words)
        person.wait_for_reply()
    colour = "(part) => getComputedStyle(part).backgroundColor"
    current = person.page.locator(".navitem[aria-current=page]")
    other = person.page.locator(".navitem:not([aria-current])").first
    expect(current).to_have_count(1)
    assert current.evaluate(colour) != other.evaluate(colour)


def test_a_look_for_changes_beside_a_send_is_no_error(admin: Person) -> None:
    page = admin.page
    admin.new_chat("The first message")
    admin.wait_for_reply()
    for number in range(6):
        page.evaluate("htmx.trigger('#changes', 'changed')")
        admin.send(f"Message {number}")
        # Once, although both a poll and the response to the message deliver it.
        expect(page.locator(".msg--user", has_text=f"Message {number}")).to_have_count(1)
