"""Forms of pages and of the admin that a script sends once, and keeps until they are processed."""

from typing import Any

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.browser.desk import Person, wait_until
from tests.support.browser_files import attach_files, build_file_payload
from tests.support.browser_forms import PASSWORD, only_expected


def keep_requests(page: Page, *, method: str = "", part: str = "") -> list[Request]:
    """Return a list to which the later requests of a page are added.

    `method`: only requests with it. `part`: only addresses that contain it.
    """
    kept: list[Request] = []

    def keep(sent: Request) -> None:
        if method in ("", sent.method) and part in sent.url:
            kept.append(sent)

    page.on("request", keep)
    return kept


def test_a_page_that_the_admin_answers_with_is_not_asked_for_again(admin: Person) -> None:
    admin.open("/admin/auth/user/add/")
    posts = keep_requests(admin.page, method="POST")
    admin.page.locator("#id_username").fill("twice")
    admin.page.locator("#id_password1").fill(PASSWORD)
    admin.page.locator("#id_password2").fill("another one of some length")
    admin.page.locator("#id_password2").press("Enter")
    expect(admin.page.locator(".errorlist").first).to_be_visible()
    expect(admin.page.locator("#id_username")).to_have_value("twice")
    assert len(posts) == 1
    for field in ("password1", "password2"):
        admin.page.locator(f"#id_{field}").fill(PASSWORD)
    admin.page.locator("#id_password2").press("Enter")
    expect(admin.page.locator(".success")).to_be_visible()
    assert len(posts) == 2
    only_expected(admin)


def test_a_preview_of_a_policy_is_asked_for_once(admin: Person) -> None:
    admin.open("/admin/contextpolicy/contextpolicy/add/")
    admin.page.locator("#id_name").fill("Looked at")
    posts = keep_requests(admin.page, method="POST")
    admin.page.locator("#id_name").press("Enter")
    expect(admin.page.locator("#policy-editor")).to_be_visible()
    admin.page.wait_for_load_state("networkidle")
    expect(admin.page.locator("#id_name")).to_have_value("Looked at")
    assert len(posts) == 1
    # The controls of the new page work.
    with admin.page.expect_response(lambda given: given.request.method == "POST"):
        admin.page.locator("#policy-preview button[name=_preview]").click()
    only_expected(admin)


def test_an_upload_after_the_session_has_ended_can_be_repeated(admin: Person, items: Any) -> None:
    cookies: Any = admin.page.context.cookies()
    admin.page.context.clear_cookies(name="sessionid")
    attach_files(admin, build_file_payload("notes.txt", b"Some notes"))
    failure = admin.page.locator("#composer .failure, .composer .failure")
    expect(failure).to_have_attribute("data-status", "401")
    expect(failure).to_contain_text("notes.txt: You are signed out.")
    expect(failure.get_by_role("link", name="Sign in")).to_be_visible()
    expect(items).to_contain_text("notes.txt was not uploaded.")
    admin.page.context.add_cookies([each for each in cookies if each["name"] == "sessionid"])
    failure.get_by_role("button", name="Try again").click()
    expect(items.locator("[name=files]")).to_have_count(1)
    expect(items).to_have_count(1)
    expect(failure).to_have_count(0)
    only_expected(admin)


def test_choices_of_a_form_stay_when_another_form_is_sent(admin: Person) -> None:
    page = admin.page
    admin.open("/settings/keys/")
    page.get_by_label("Name", exact=True).fill("old")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#new-key")).to_be_visible()
    admin.open("/settings/keys/")
    boxes = page.locator("#main input[type=checkbox]")
    before = [box.is_checked() for box in boxes.all()]
    assert {True, False} <= set(before)
    for box in boxes.all():
        box.set_checked(not box.is_checked())
    page.get_by_label("Name", exact=True).fill("narrow")
    page.get_by_role("button", name="Revoke").first.click()
    expect(page.locator("td", has_text="revoked").first).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("narrow")
    assert [box.is_checked() for box in boxes.all()] == [not each for each in before]


def test_a_refused_copy_is_not_called_copied(admin: Person) -> None:
    admin.new_chat("Words to copy")
    admin.wait_for_reply()
    admin.page.evaluate("""() => {
      navigator.clipboard.write = () => Promise.reject(new Error("refused"));
      document.execCommand = () => false;
    }""")
    mine = admin.acts_of(admin.page.locator(".msg--user"))
    mine.get_by_label("Copy message").click()
    expect(mine.get_by_label("Copy message")).to_contain_text("Not copied")
    expect(admin.page.locator("#status")).to_have_text("Not copied.")


def test_a_failed_message_is_put_before_text_that_begins_like_it(admin: Person) -> None:
    admin.new_chat("The first message")
    admin.wait_for_reply()
    box = admin.page.locator("#composer-text")
    held: list[Route] = []
    admin.page.route("**/messages", lambda route: held.append(route))
    box.fill("Hello")
    box.press("Enter")
    wait_until(admin.page, lambda: bool(held), "the message")
    box.fill("Hello again")
    held[0].abort()
    expect(box).to_have_value("Hello\nHello again")
    admin.page.unroute("**/messages")
    only_expected(admin)


def test_a_confirmation_of_the_admin_that_is_shown_again_is_a_page(admin: Person) -> None:
    page = admin.page
    admin.open("/admin/contextpolicy/skill/add/")
    # As the confirmation of an action: without a list, and the form has no name.
    page.evaluate("""() => {
      document.querySelector("#content-main").removeAttribute("id");
      document.querySelector("#skill_form").removeAttribute("id");
    }""")
    page.evaluate("window.scripted = import('/static/js/forms.js?again')")
    posts = keep_requests(page, method="POST")
    with page.expect_navigation():
        page.locator("[name=_save]").evaluate("(button) => { button.form.noValidate = true; }")
        page.locator("[name=_save]").click()
    assert [sent.headers.get("x-page-form") for sent in posts] == [None]


ASKED = """(selector) => {
  const area = document.querySelector(selector);
  const type = (value, isComposing) => {
    area.value = value;
    area.dispatchEvent(new InputEvent("input", { bubbles: true, isComposing }));
  };
  type("n", true);
  type("に", true);
}"""
ENDED = """(selector) => {
  const options = { bubbles: true, data: "に" };
  document.querySelector(selector).dispatchEvent(new CompositionEvent("compositionend", options));
}"""


@pytest.mark.parametrize(
    ("path", "selector", "part"),
    [
        ("/search", "#search-question", "/search?"),
        ("/chats/new", "#palette-question", "/palette"),
        ("/admin/contextpolicy/contextpolicy/add/", "#policy-find", "/contextpolicy/add/"),
    ],
)
def test_a_composition_asks_once_at_its_end(
    admin: Person, path: str, selector: str, part: str
) -> None:
    admin.open(path)
    asked = keep_requests(admin.page, part=part)
    admin.page.evaluate(ASKED, selector)
    admin.page.wait_for_timeout(500)
    assert asked == []
    admin.page.evaluate(ENDED, selector)
    wait_until(admin.page, lambda: bool(asked), "a request")
    admin.page.wait_for_timeout(500)
    assert len(asked) == 1
