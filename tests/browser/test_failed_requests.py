"""After a failed request the field keeps its text, with an error message and a retry.

`make form-errors` answers each form with every kind of failure, the normal run with two of them.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.desk import Person, wait_until
from tests.browser.product import Product
from tests.faults.shares import EVERY_ROW
from tests.support.browser_chats import start_chat_with_reply
from tests.support.browser_forms import PASSWORD, only_expected
from tests.support.browser_operator import run_operator_script
from tests.support.browser_summaries import ASSIGN_SUMMARY_POLICY, compact_now, start_case_chat
from tests.support.page_addresses import CHAT_PAGES

PROXY_PAGE = "<!doctype html><title>Trouble</title><h1>Trouble</h1>"
PORTAL = "<!-- Hotel --><meta http-equiv='refresh' content='0;url=/login/'><h1>Welcome</h1>"
CLOSED = 0
SIGNED_OUT = 401
NO_CONTENT = 204
OF_A_NETWORK = 299
STOPPED = -1
KINDS = (
    *(403, 404, 413, 429, 500, 502, 503, 504),
    *(CLOSED, SIGNED_OUT, NO_CONTENT, OF_A_NETWORK, STOPPED),
)
PAGES = (
    "/chats/new",
    "/settings/",
    "/settings/appearance/",
    "/settings/exchange/",
    "/settings/keys/",
    "/settings/memory/",
    "/settings/webhooks/",
    "/settings/readings/",
    "/account/confirm/",
    "/account/password/",
    "/setup/",
    "/chats/archive",
    "/teams/",
    "/teams/new?preset=support",
    "/admin/auth/user/add/",
    "/admin/chats/provideraccount/add/",
    "/admin/contextpolicy/contextpolicy/add/",
    "/admin/contextpolicy/policyassignment/add/",
    "/admin/contextpolicy/legalhold/add/",
)
# The forms of a page that a script submits, with text in each of their fields.
FILL = """
(words) => {
  const isAdmin = Boolean(document.querySelector("#content-main"));
  const isChange = (form) => form.id.endsWith("_form") && form.id !== "changelist-form";
  const isOurs = (form) => form.hasAttribute("hx-post")
    || (form.method === "post" && form.id !== "logout-form" && (!isAdmin || isChange(form)));
  const kinds = "textarea, input:is([type=text], [type=url], [type=search], :not([type]))";
  window.forms = [...document.querySelectorAll("form")].filter(isOurs);
  return forms.map((form) => {
    form.noValidate = true;
    form.texts = [...form.querySelectorAll(kinds)]
      .filter((field) => !field.readOnly && !field.disabled);
    for (const field of form.texts) field.value = words;
    return `${form.id || new URL(form.action || location.href).pathname} ${form.texts.length}`;
  });
}
"""
SUBMIT = """
(number) => {
  const [form, isSubmit] = [forms[number], ({ type }) => type === "submit"];
  form.requestSubmit([...form.elements].find(isSubmit));
}
"""
TEXTS = "(number) => forms[number].texts.map((field) => field.value)"


def count_nothing(route: Route) -> None:
    """Answer a request of the context meter without a change."""
    # A response without this header counts as one of a proxy.
    route.fulfill(status=204, headers={"X-Request-ID": "meter"})


class Answers:
    """The scripted answers to the forms of a page, and the received bodies."""

    def __init__(self) -> None:
        self.kind: int | None = None
        self.bodies: list[bytes] = []

    def answer(self, route: Route) -> None:
        """Answer the POST of a form as scripted, and pass on all other requests.

        The context meter does not change, because the page has forms in it.
        """
        if route.request.method == "POST" and route.request.url.endswith("/meter"):
            count_nothing(route)
            return
        if route.request.method != "POST" or self.kind is None:
            route.continue_()
            return
        self.bodies.append(route.request.post_data_buffer or b"")
        if self.kind in {CLOSED, STOPPED}:
            route.abort("aborted" if self.kind == STOPPED else "failed")
        elif self.kind == SIGNED_OUT:
            # The product answers as it does after the session has expired.
            headers = route.request.all_headers()
            headers["cookie"] = re.sub(r"sessionid=[^;]*", "", headers.get("cookie", ""))
            route.fulfill(response=route.fetch(headers=headers, max_redirects=0))
        elif self.kind == OF_A_NETWORK:
            route.fulfill(body=PORTAL, content_type="text/html")
        else:
            route.fulfill(status=self.kind, body=PROXY_PAGE, content_type="text/html")


@contextmanager
def answering(page: Page) -> Iterator[Answers]:
    """Answer the POST requests of a page in place of the product."""
    answers = Answers()
    page.context.route("**/*", answers.answer)
    yield answers
    page.context.unroute("**/*", answers.answer)


def kinds_for(number: int) -> tuple[int, ...]:
    """Return the failures for a form: all, or two that vary by form."""
    if EVERY_ROW:
        return KINDS
    return KINDS[number % len(KINDS)], KINDS[(number + 4) % len(KINDS)]


def fail_each_form(person: Person, number: int) -> int:
    """Let each form of the open page fail and retry; return the number of forms."""
    page = person.page
    with answering(page) as answers:
        expect(page.locator("#context-meter.htmx-request")).to_have_count(0)
        forms = page.evaluate(FILL, "Words that took an hour")
        for place, form in enumerate(forms):
            wanted = page.evaluate(TEXTS, place)
            for kind in kinds_for(number + place):
                answers.kind, answers.bodies = kind, []
                what = f"{page.url} {form}, answered by {kind}"
                page.evaluate(SUBMIT, place)
                note = page.locator(".failure")
                expect(note, what).to_have_count(1)
                expect(note.locator("p"), what).to_have_text(re.compile(r"\w+ .*\."))
                assert page.evaluate(TEXTS, place) == wanted, what
                again = note.locator("button", has_text="Try again")
                again.evaluate("(button) => button.click()")
                wait_until(page, lambda: len(answers.bodies) == 2, f"another try of {what}")
                assert without_boundary(answers.bodies[0]) == without_boundary(answers.bodies[1])
                expect(note, what).to_have_count(1)
                page.evaluate("document.querySelector('.failure').remove()")
    only_expected(person)
    return len(forms)


def without_boundary(body: bytes) -> bytes:
    """Return a body without the random boundary of the browser."""
    return re.sub(rb"-+WebKitFormBoundary\w+", b"", body)


@pytest.mark.timeout(900)
def test_every_form_keeps_its_text_and_can_be_sent_again(admin: Person) -> None:
    chat = start_chat_with_reply(admin)
    admin.open(chat)
    message = str(admin.page.locator(".msg--user").first.get_attribute("id")).removeprefix(
        "message-"
    )
    of_message = (f"{chat}messages/{message}/edit", f"{chat}messages/{message}/erase")
    tried = 0
    for path in (*PAGES, chat, *(f"{chat}{page}" for page in CHAT_PAGES), *of_message):
        admin.open(path)
        tried += fail_each_form(admin, tried)
    assert tried > 34


@pytest.mark.timeout(900)
def test_the_forms_of_summaries_keep_their_text(admin: Person, product: Product) -> None:
    run_operator_script(product, ASSIGN_SUMMARY_POLICY)
    start_case_chat(admin)
    compact_now(admin)
    chat = admin.page.url.removeprefix(product.url).split("?")[0]
    admin.open(f"{chat}compactions/")
    address = str(admin.page.locator("#compacted a").first.get_attribute("href"))
    tried = 0
    for path in (address, f"{address}?edit=1"):
        admin.open(path)
        tried += fail_each_form(admin, tried)
    assert tried > 3


@pytest.mark.parametrize("kind", KINDS if EVERY_ROW else (403, 502, CLOSED, OF_A_NETWORK, STOPPED))
def test_a_message_that_fails_stays_in_its_box_and_is_sent_once(admin: Person, kind: int) -> None:
    admin.new_chat("The first message")
    admin.wait_for_reply()
    box = admin.page.locator("#composer-text")
    with answering(admin.page) as answers:
        answers.kind = kind
        admin.type("Careful words")
        expect(admin.page.locator("#composer .failure")).to_be_visible()
        expect(box).to_have_value("Careful words")
        expect(admin.page.locator("#sending")).to_contain_text("not sent")
        admin.page.reload()
        expect(box).to_have_value("Careful words")
        box.press("Enter")
        expect(admin.page.locator("#composer .failure")).to_be_visible()
    admin.page.locator("#composer .failure").get_by_role("button", name="Try again").click()
    admin.wait_for_reply()
    expect(admin.page.locator(".msg--user", has_text="Careful words")).to_have_count(1)
    expect(box).to_have_value("")
    only_expected(admin)


def test_an_update_during_another_attempt_does_not_count_as_its_answer(admin: Person) -> None:
    admin.new_chat("The first message")
    admin.wait_for_reply()
    box = admin.page.locator("#composer-text")
    failure = admin.page.locator("#composer .failure")
    admin.page.route("**/changes*", lambda route: route.abort())
    with answering(admin.page) as answers:
        answers.kind = 502
        admin.type("Careful words")
        expect(failure).to_be_visible()
        held: list[Route] = []
        admin.page.route("**/messages", lambda route: held.append(route))
        failure.get_by_role("button", name="Try again").click()
        wait_until(admin.page, lambda: bool(held), "another attempt")
        with admin.page.expect_response(lambda given: "/list" in given.url):
            admin.page.evaluate("htmx.trigger('#chat-list', 'listed')")
        admin.page.wait_for_timeout(200)
        answers.answer(held[0])
        expect(failure).to_be_visible()
        expect(box).to_have_value("Careful words")
        admin.page.unroute("**/messages")
    admin.page.unroute("**/changes*")
    only_expected(admin)


def test_a_retry_that_waits_for_another_request_fails_without_an_error(admin: Person) -> None:
    admin.new_chat("The first message")
    admin.wait_for_reply()
    held: list[Route] = []
    admin.page.route("**/changes*", lambda route: route.abort())
    with admin.page.expect_event("requestfailed"):
        admin.page.evaluate("htmx.trigger('#changes', 'changed')")
    admin.page.unroute("**/changes*")
    # The page retries after a second. Its request waits for this one.
    admin.page.route("**/changes*", lambda route: held.append(route))
    admin.page.evaluate("htmx.trigger('#changes', 'changed')")
    wait_until(admin.page, lambda: bool(held), "another request")
    admin.page.wait_for_timeout(1500)
    assert len(held) == 1
    held[0].abort()
    wait_until(admin.page, lambda: len(held) > 1, "the retry")
    held[1].abort()
    admin.page.wait_for_timeout(300)
    admin.page.unroute("**/changes*")
    only_expected(admin)


def test_the_first_message_of_a_chat_stays_in_its_box(admin: Person) -> None:
    admin.open("/chats/new")
    box = admin.page.locator("#composer-text")
    with answering(admin.page) as answers:
        answers.kind = 504
        admin.type("Careful first words")
        failure = admin.page.locator("#composer .failure")
        expect(failure).to_be_visible()
        expect(box).to_have_value("Careful first words")
        expect(box).to_be_editable()
    failure.get_by_role("button", name="Try again").click()
    expect(admin.page.locator("#context-meter")).to_be_visible()
    admin.wait_for_reply()
    expect(admin.page.locator(".msg--user")).to_have_count(1)
    only_expected(admin)


def add_user(admin: Person, name: str) -> None:
    """Add a person in the administration."""
    admin.open("/admin/auth/user/add/")
    for field, value in (("username", name), ("password1", PASSWORD), ("password2", PASSWORD)):
        admin.page.locator(f"#id_{field}").fill(value)
    admin.page.locator("#id_password2").press("Enter")
    expect(admin.page.locator(".success")).to_be_visible()


def sign_in(page: Page, product: Product, name: str) -> None:
    """Sign in with name and password."""
    page.goto(f"{product.url}/login/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#composer-text")).to_be_visible()


def test_signing_in_again_in_another_tab_keeps_the_text(
    open_tab: Callable[..., Person], product: Product, admin: Person
) -> None:
    add_user(admin, "again")
    person = open_tab(product)
    sign_in(person.page, product, "again")
    person.new_chat("The first message")
    person.wait_for_reply()
    box = person.page.locator("#composer-text")
    # A refused count of the draft would renew the token of the form too.
    person.page.route("**/meter", count_nothing)
    box.fill("Words of the first tab")
    person.page.context.clear_cookies(name="sessionid")
    box.press("Enter")
    failure = person.page.locator("#composer .failure")
    expect(failure).to_have_attribute("data-status", "401")
    expect(box).to_have_value("Words of the first tab")
    sign_in(person.page.context.new_page(), product, "again")
    again = failure.get_by_role("button", name="Try again")
    again.click()
    expect(failure).to_have_attribute("data-status", "403")
    expect(box).to_have_value("Words of the first tab")
    again.click()
    person.wait_for_reply()
    expect(person.page.locator(".msg--user", has_text="first tab")).to_have_count(1)
    only_expected(person)


@pytest.mark.parametrize("how", ["502", "no network"])
def test_a_missed_change_is_asked_for_until_it_is_there(
    admin: Person, open_tab: Callable[..., Person], product: Product, signed_in: Any, how: str
) -> None:
    admin.new_chat("The first message")
    admin.wait_for_reply()
    failed: list[str] = []

    def answer(route: Route) -> None:
        failed.append(route.request.url)
        if how == "502":
            route.fulfill(status=502, body=PROXY_PAGE, content_type="text/html")
        else:
            route.abort()

    admin.page.route("**/changes*", answer)
    other = open_tab(product, storage_state=signed_in)
    other.page.goto(admin.page.url)
    other.send("From another tab")
    wait_until(admin.page, lambda: len(failed) > 1, "another try")
    expect(admin.page.locator(".msg--user", has_text="From another tab")).to_have_count(0)
    admin.page.unroute("**/changes*")
    expect(admin.page.locator(".msg--user", has_text="From another tab")).to_be_visible()
    expect(admin.page.locator("#notices .failure")).to_have_count(0)
    only_expected(admin)


def test_the_enter_that_confirms_a_conversion_sends_nothing(admin: Person) -> None:
    admin.new_chat("The first message")
    admin.wait_for_reply()
    box = admin.page.locator("#composer-text")
    box.fill("にほん")
    for event in ({"keyCode": 229}, {"isComposing": True}):
        pressed = {"key": "Enter", "code": "Enter", "bubbles": True, "cancelable": True, **event}
        box.evaluate(
            "(area, how) => area.dispatchEvent(new KeyboardEvent('keydown', how))", pressed
        )
    expect(box).to_have_value("にほん")
    expect(admin.page.locator("#sending")).to_be_empty()


def test_focus_and_links_bring_a_message_into_view(admin: Person) -> None:
    lines = "\n".join(f"Line {line}" for line in range(50))
    admin.new_chat(f"One.\n{lines}")
    admin.wait_for_reply()
    admin.send(f"Two.\n{lines}")
    visible = """(part) => {
      const [inner, outer] = [part, document.querySelector('#thread')]
        .map((each) => each.getBoundingClientRect());
      return inner.bottom > outer.top + 20 && inner.top < outer.bottom - 20;
    }"""
    for _ in range(3):
        admin.page.keyboard.press("Alt+ArrowUp")
    admin.page.wait_for_timeout(300)
    focused = admin.page.locator("article.msg:focus")
    assert focused.evaluate(visible)
    admin.page.locator("#composer-text").focus()
    admin.page.evaluate("document.querySelector('#thread').scrollTop = 1e6")
    first = admin.page.locator(".msg--user").first
    expect(first).not_to_be_in_viewport()
    admin.page.evaluate("(id) => location.assign(`#${id}`)", first.get_attribute("id"))
    admin.page.mouse.move(600, 300)
    admin.page.wait_for_timeout(300)
    assert first.evaluate(visible)
