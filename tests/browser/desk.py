"""A person at the browser: what they do on the chat page, and what they read there."""

import re
from typing import Any

from playwright.sync_api import ConsoleMessage, Locator, Page, expect

from tests.browser.product import Product

# What the browser says when the content security policy stopped something.
FORBIDDEN = re.compile(r"Content[ -]Security[ -]Policy|Refused to", re.IGNORECASE)
# What it says of a page or a request that was refused.
ANSWER = re.compile("Failed to load resource: the server responded with a status of 4")
# What htmx says of a request that was cut: the person went elsewhere, or sent a message.
CUT = re.compile("htmx:(afterRequest|sendAbort|sendError),")

TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
  console.error(`Content Security Policy: ${violatedDirective} stopped ${blockedURI}`);
});
"""


class Person:
    """One browser tab of one person. Keeps what the browser complained about and whom it asked."""

    def __init__(self, page: Page, product: Product) -> None:
        self.page = page
        self.product = product
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        # A violation need not be said in the console in words that are known here.
        page.context.add_init_script(TELL_VIOLATIONS)
        page.context.on("console", self.hear)
        page.context.on("weberror", lambda raised: self.complaints.append(str(raised.error)))
        page.context.on("request", lambda request: self.watch(request.url))

    def hear(self, message: ConsoleMessage) -> None:
        """Keep violations and errors; a refusal is an answer, a cut request is none."""
        url = str(message.location.get("url", ""))
        is_answer = ANSWER.match(message.text) and "/static/" not in url
        is_harmless = is_answer or CUT.match(message.text)
        if FORBIDDEN.search(message.text) or (message.type == "error" and not is_harmless):
            self.complaints.append(f"{message.text} ({url})")

    def watch(self, url: str) -> None:
        """Keep requests that leave the product."""
        if not url.startswith((self.product.url, "data:", "about:", "blob:")):
            self.foreign.append(url)

    def open(self, path: str) -> None:
        """Go to an address of the product."""
        self.page.goto(self.product.url + path)

    def sign_in(self, link: str) -> None:
        """Use a one-time link."""
        self.page.goto(link)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.locator("#composer-text")).to_be_visible()

    def type(self, text: str) -> None:
        """Write into the message box and press Enter."""
        self.page.locator("#composer-text").fill(text)
        self.page.keyboard.press("Enter")

    def send(self, text: str) -> Locator:
        """Send a message and wait for the end of its reply, which is returned."""
        self.type(text)
        sent = self.page.locator(".msg--user:not(.is-sending)", has_text=text)
        expect(sent.last).to_be_visible()
        self.wait_for_reply()
        return self.reply

    def acts_of(self, message: Locator) -> Locator:
        """Point at a message, so that its actions stand under it; the message."""
        message.hover()
        expect(message.locator(".msg__acts")).to_be_visible()
        return message

    def wait_for_reply(self) -> None:
        """Until no reply is being written and the last message is a finished one."""
        expect(self.page.locator("[data-live]")).to_have_count(0, timeout=20_000)
        expect(self.reply.locator(".msg__foot")).to_have_count(1)

    def new_chat(self, text: str) -> None:
        """Begin a chat with its first message; the reply may still be on its way."""
        self.open("/chats/new")
        self.type(text)
        expect(self.page.locator("#context-meter")).to_be_visible()

    @property
    def live(self) -> Locator:
        """The body of the reply that is being written."""
        return self.page.locator("[data-live] .msg__body")

    @property
    def reply(self) -> Locator:
        """The newest finished reply."""
        return self.page.locator("article.msg:not(.msg--user):not([data-live])").last

    def mark_page(self) -> None:
        """Leave a mark that a reload would wipe away."""
        self.page.evaluate("window.wasNeverReloaded = true")

    def was_reloaded(self) -> bool:
        """Whether the mark is gone."""
        return not self.page.evaluate("window.wasNeverReloaded === true")

    def value(self, script: str) -> Any:
        """What a script on the page comes out to."""
        return self.page.evaluate(script)

    def scrolls_sideways(self) -> bool:
        """Whether the page, or the thread in it, is wider than the screen."""
        # Between two pages there is none.
        self.page.wait_for_load_state("domcontentloaded")
        return bool(
            self.value(
                "[document.documentElement, ...document.querySelectorAll('#thread')]"
                ".some((part) => part.scrollWidth > part.clientWidth + 1)"
            )
        )


def must_be_quiet(person: Person) -> None:
    """Fail if the browser complained of a page or an action, or a page asked another origin."""
    if person.complaints or person.foreign:
        raise AssertionError(f"complaints {person.complaints}, foreign {person.foreign}")
