"""Files on the pages: picker, drop, paste, progress, failure, removal, sending, download."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.browser.desk import Person, wait_until
from tests.chats.files.sample_files import make_pdf, make_png
from tests.support.browser_files import attach_files, build_file_payload

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
# Divides the limits of requests by 1,000.
SHORT_LIMITS = """() => {
  const { get, set } = Object.getOwnPropertyDescriptor(XMLHttpRequest.prototype, "timeout");
  const shorten = function (limit) { set.call(this, limit / 1000); };
  Object.defineProperty(XMLHttpRequest.prototype, "timeout", { get, set: shorten });
}"""
DROP = """([kind, name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(text), (one) => one.charCodeAt())], name));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "drop"
    ? new DragEvent(kind, { ...options, dataTransfer: data })
    : new ClipboardEvent(kind, { ...options, clipboardData: data });
  document.querySelector("#composer-text").dispatchEvent(event);
}"""


def test_a_pdf_is_attached_read_sent_and_downloaded(
    admin: Person, items: Any, tmp_path: Path
) -> None:
    page = admin.page
    page.locator("#composer-text").fill("How high are the costs?")
    data = make_pdf("The costs are 42 euros.", "The end.")
    attach_files(admin, build_file_payload("costs.pdf", data))
    expect(items).to_contain_text("costs.pdf")
    expect(items).to_contain_text("PDF, 2 pages")
    page.locator("#composer-text").press("Enter")
    admin.wait_for_reply()
    message = page.locator(".msg--user")
    expect(message.locator(".attachment")).to_contain_text("costs.pdf")
    expect(items).to_have_count(0)
    with page.expect_download() as loaded:
        message.get_by_role("link", name="costs.pdf").click()
    loaded.value.save_as(tmp_path / "costs.pdf")
    assert (tmp_path / "costs.pdf").read_bytes() == data


def test_the_meter_counts_text_and_files_before_they_are_sent(admin: Person, items: Any) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    box.fill("Hello")
    box.press("Enter")
    admin.wait_for_reply()
    meter = page.locator("#context-meter .meter__text")
    empty = meter.inner_text()
    box.press_sequentially("word " * 40)
    expect(meter).not_to_have_text(empty)
    typed = meter.inner_text()
    attach_files(admin, build_file_payload("notes.txt", b"note " * 300))
    expect(meter).not_to_have_text(typed)
    items.locator("[data-remove-file]").click()
    expect(meter).to_have_text(typed)
    # The demo policy sends at most 2,000 tokens.
    attach_files(admin, build_file_payload("map.png", make_png(1700, 1300)))
    refused = page.locator("#context-meter [data-reason=message_too_large]")
    expect(refused).to_be_visible()
    items.locator("[data-remove-file]").click()
    expect(meter).to_have_text(typed)


def test_a_refused_file_keeps_text_and_other_files(admin: Person, items: Any) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    box.fill("Words that stay")
    attach_files(
        admin, build_file_payload("notes.txt", b"Some notes"), build_file_payload("logo.svg", SVG)
    )
    expect(items).to_have_count(2)
    failed = page.locator(".attachment.is-failed")
    expect(failed).to_contain_text("logo.svg cannot be attached")
    expect(items.first).to_contain_text("Text, ")
    expect(box).to_have_value("Words that stay")
    failed.get_by_role("button", name="Remove logo.svg").press("Enter")
    expect(items).to_have_count(1)
    expect(box).to_be_focused()
    # A scan without text: the person removes it or sends it by name.
    attach_files(admin, build_file_payload("scan.pdf", make_pdf("")))
    expect(failed).to_contain_text("scan.pdf")
    box.press("Enter")
    expect(page.locator("#composer-error")).to_contain_text("scan.pdf could not be read")
    expect(box).to_have_value("Words that stay")
    expect(items).to_have_count(2)
    page.locator("[name=unread]").check()
    box.press("Enter")
    admin.wait_for_reply()
    expect(page.locator(".msg--user .attachment")).to_have_count(2)


def test_unsent_files_are_attached_again_after_a_reload(admin: Person, items: Any) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    box.fill("Read these.")
    attach_files(
        admin,
        build_file_payload("notes.txt", b"Some notes"),
        build_file_payload("gone.txt", b"Other notes"),
        build_file_payload("logo.svg", SVG),
    )
    expect(page.locator("#composer-files [name=files]")).to_have_count(2)
    page.get_by_role("button", name="Remove gone.txt").click()
    expect(items).to_have_count(2)
    page.route("**/unsent?*", lambda route: route.fulfill(status=429, body="Busy"))
    page.reload()
    again = page.locator(".failure button")
    expect(again).to_have_count(1)
    # Typing stores the draft again.
    box.press_sequentially(" Soon.")
    page.unroute("**/unsent?*")
    page.reload()
    expect(items).to_have_count(1)
    expect(items).to_contain_text("notes.txt")
    expect(items).to_contain_text("Text, ")
    expect(box).to_have_value("Read these. Soon.")
    box.press("Enter")
    admin.wait_for_reply()
    expect(page.locator(".msg--user .attachment")).to_contain_text("notes.txt")
    page.reload()
    expect(box).to_be_visible()
    assert page.evaluate("Object.keys(localStorage).filter((key) => key.endsWith('#files'))") == []
    expect(page.locator("#composer-files li")).to_have_count(0)


@pytest.mark.parametrize("size", [(1280, 720), (390, 844)])
def test_the_message_box_stays_on_the_screen_with_many_files(
    admin: Person, items: Any, size: tuple[int, int]
) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    page.set_viewport_size({"width": size[0], "height": size[1]})
    attach_files(admin, *(build_file_payload(f"logo {n}.svg", SVG) for n in range(10)))
    expect(items).to_have_count(10)
    for part in (box, page.locator("#send")):
        found = part.bounding_box()
        assert found
        assert found["y"] > size[1] / 4
        assert found["y"] + found["height"] <= size[1]
    items.last.get_by_role("button").press("Enter")
    expect(items).to_have_count(9)


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_an_image_is_dropped_or_pasted_and_shown(admin: Person, items: Any, kind: str) -> None:
    page = admin.page
    data = base64.b64encode(make_png(40, 30)).decode()
    page.evaluate(DROP, [kind, "chart.png", data])
    expect(items).to_contain_text("Image, 40 × 30")
    page.locator("#composer-text").fill("Describe the chart")
    page.locator("#composer-text").press("Enter")
    admin.wait_for_reply()
    image = page.get_by_role("img", name="chart.png")
    expect(image).to_be_visible()
    assert image.evaluate("(image) => image.naturalWidth") == 40


def test_a_file_is_sent_without_text_and_the_edit_box_allows_it(admin: Person, items: Any) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    box.press("Enter")
    expect(page).to_have_url(re.compile("/chats/new"))
    for _ in range(2):
        attach_files(admin, build_file_payload("chart.png", make_png(40, 30)))
        expect(items).to_contain_text("Image, 40 × 30")
        box.press("Enter")
        admin.wait_for_reply()
        expect(items).to_have_count(0)
    expect(page.get_by_role("img", name="chart.png")).to_have_count(2)
    expect(page.locator("h1")).to_contain_text("chart.png")
    first = page.locator(".msg--user").first
    admin.acts_of(first).locator("[data-act=edit]").click()
    edit = page.get_by_label("Edit message")
    edit.press("Enter")
    admin.wait_for_reply()
    expect(page.get_by_role("img", name="chart.png")).to_have_count(1)
    expect(page.locator(".versions").first).to_contain_text("2/2")


@pytest.mark.parametrize("ends_first", ["message", "upload"])
def test_a_file_that_is_attached_during_sending_stays_in_the_box(
    admin: Person, items: Any, ends_first: str
) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    box.fill("Hello")
    box.press("Enter")
    admin.wait_for_reply()
    held: dict[str, Route] = {}
    page.route("**/messages", lambda route: held.setdefault("message", route))
    page.route("**/files/attach*", lambda route: held.setdefault("upload", route))
    box.fill("Read this.")
    box.press("Enter")
    wait_until(page, lambda: "message" in held, "the message")
    attach_files(admin, build_file_payload("notes.txt", b"Some notes"))
    wait_until(page, lambda: "upload" in held, "the upload")
    for name in (ends_first, *({"message", "upload"} - {ends_first})):
        held[name].continue_()
        page.wait_for_timeout(500)
    page.unroute_all()
    expect(page.locator(".msg--user")).to_have_count(2)
    expect(items).to_have_count(1)
    expect(items.locator("[name=files]")).to_have_count(1)
    expect(items).to_contain_text("token")
    box.fill("And now?")
    box.press("Enter")
    expect(page.locator(".msg--user").last.locator(".attachment")).to_contain_text("notes.txt")
    expect(items).to_have_count(0)


@pytest.mark.parametrize("ends_first", ["message", "upload"])
@pytest.mark.parametrize("is_refused", [False, True], ids=["sent", "refused"])
def test_a_file_that_is_attached_while_a_chat_begins_stays_in_the_box(
    admin: Person, items: Any, ends_first: str, is_refused: bool
) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    attach_files(admin, build_file_payload("first.txt", b"The first notes"))
    expect(items).to_contain_text("token")
    held: dict[str, Route] = {}
    page.route("**/chats/new", lambda route: held.setdefault("message", route))
    page.route("**/files/attach*", lambda route: held.setdefault("upload", route))
    if is_refused:
        page.evaluate("document.querySelector('#composer-text').removeAttribute('data-limit')")
    box.fill("x" * 500_000 if is_refused else "Read this.")
    box.press("Enter")
    wait_until(page, lambda: "message" in held, "the message")
    attach_files(admin, build_file_payload("notes.txt", b"Some notes"))
    wait_until(page, lambda: "upload" in held, "the upload")
    for name in (ends_first, *({"message", "upload"} - {ends_first})):
        held[name].continue_()
        page.wait_for_timeout(500)
    page.unroute_all()
    if is_refused:
        expect(page.locator("#composer-error")).to_be_visible()
        expect(items).to_have_count(2)
        expect(items.locator("[name=files]")).to_have_count(2)
        return
    expect(page).to_have_url(re.compile("/chats/[0-9a-f-]{36}/"))
    expect(page.locator(".msg--user .attachment")).to_contain_text("first.txt")
    expect(items).to_have_count(1)
    expect(items.locator("[name=files]")).to_have_count(1)
    expect(items).to_contain_text("notes.txt")
    send_kept_file(admin, items)


def test_a_chat_begins_although_an_upload_does_not_end(admin: Person, items: Any) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    held: dict[str, Route] = {}
    page.route("**/chats/new", lambda route: held.setdefault("message", route))
    page.route("**/files/attach*", lambda route: held.setdefault("upload", route))
    # A minute passes in a tenth of a second.
    page.evaluate(
        "const [now, begin] = [Date.now, Date.now()];Date.now = () => begin + 600 * (now() - begin)"
    )
    box.fill("Read this.")
    box.press("Enter")
    wait_until(page, lambda: "message" in held, "the message")
    attach_files(admin, build_file_payload("notes.txt", b"Some notes"))
    wait_until(page, lambda: "upload" in held, "the upload")
    held["message"].continue_()
    expect(page).to_have_url(re.compile("/chats/[0-9a-f-]{36}/"))
    admin.wait_for_reply()
    expect(items).to_have_count(0)


def test_an_upload_without_progress_fails(admin: Person, items: Any) -> None:
    page = admin.page
    held: list[Route] = []
    page.route("**/files/attach*", lambda route: held.append(route))
    page.evaluate(SHORT_LIMITS)
    attach_files(admin, build_file_payload("notes.txt", b"Some notes"))
    expect(page.locator(".attachment.is-failed")).to_contain_text("notes.txt")
    assert len(held) == 1


def send_kept_file(admin: Person, items: Any) -> None:
    """Reload the page and send the file in the box, which is stored like other unsent files."""
    page, box = admin.page, admin.page.locator("#composer-text")
    page.reload()
    expect(items).to_have_count(1)
    box.fill("And now?")
    box.press("Enter")
    expect(page.locator(".msg--user").last.locator(".attachment")).to_contain_text("notes.txt")
    expect(items).to_have_count(0)


def test_sending_waits_for_an_upload(admin: Person, items: Any) -> None:
    page, box = admin.page, admin.page.locator("#composer-text")
    held: list[Route] = []
    page.route("**/files/attach*", lambda route: held.append(route))
    box.fill("Read this.")
    attach_files(admin, build_file_payload("notes.txt", b"Some notes"))
    expect(items).to_have_count(1)
    box.press("Enter")
    for place in (items, page.locator("#status")):
        expect(place).to_contain_text("Then the message is sent")
    expect(box).to_have_value("Read this.")
    wait_until(page, lambda: bool(held), "the upload")
    page.wait_for_timeout(300)
    (upload,) = held
    upload.continue_()
    admin.wait_for_reply()
    expect(page.locator(".msg--user .attachment")).to_contain_text("notes.txt")
    # An upload that fails keeps the text and the file's error.
    box.fill("And this.")
    attach_files(admin, build_file_payload("logo.svg", SVG))
    box.press("Enter")
    wait_until(page, lambda: len(held) > 1, "the second upload")
    page.wait_for_timeout(300)
    held[1].continue_()
    expect(page.locator(".attachment.is-failed")).to_contain_text("logo.svg cannot be attached")
    page.wait_for_timeout(300)
    expect(box).to_have_value("And this.")
    expect(page.locator(".msg--user")).to_have_count(1)
