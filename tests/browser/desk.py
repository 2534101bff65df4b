"""A person at the browser: their actions on the chat page, and the texts they read there."""

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import ConsoleMessage, Locator, Page, expect

from tests.browser.product import Product

# The browser's message when the content security policy blocks something.
FORBIDDEN = re.compile(r"Content[ -]Security[ -]Policy|Refused to", re.IGNORECASE)
# The browser's message for a refused page or request.
ANSWER = re.compile("Failed to load resource: the server responded with a status of 4")

TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
  console.error(`Content Security Policy: ${violatedDirective} stopped ${blockedURI}`);
});
"""


class Person:
    """One browser tab of one person. Records console errors and requests to other origins."""

    def __init__(self, page: Page, product: Product) -> None:
        self.page = page
        self.product = product
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        # A violation may be missing in the console or have an unknown text.
        page.context.add_init_script(TELL_VIOLATIONS)
        page.context.on("console", self.hear)
        page.context.on("weberror", lambda raised: self.complaints.append(str(raised.error)))
        page.context.on("request", lambda request: self.watch(request.url))

    def hear(self, message: ConsoleMessage) -> None:
        """Record violations and errors, but not refused requests."""
        url = str(message.location.get("url", ""))
        is_answer = ANSWER.match(message.text) and "/static/" not in url
        if FORBIDDEN.search(message.text) or (message.type == "error" and not is_answer):
            self.complaints.append(f"{message.text} ({url})")

    def watch(self, url: str) -> None:
        """Record requests to other origins."""
        if not url.startswith((self.product.url, "data:", "about:", "blob:")):
            self.foreign.append(url)

    def open(self, path: str) -> None:
        """Open an address of the product."""
        self.page.goto(self.product.url + path)

    def sign_in(self, link: str) -> None:
        """Sign in with a one-time link."""
        self.page.goto(link)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.locator("#composer-text")).to_be_visible()

    def type(self, text: str) -> None:
        """Type into the message box and press Enter."""
        self.page.locator("#composer-text").fill(text)
        self.page.keyboard.press("Enter")

    def send(self, text: str) -> Locator:
        """Send a message, wait for the end of its reply, and return the reply."""
        self.type(text)
        sent = self.page.locator(".msg--user:not(.is-sending)", has_text=text)
        expect(sent.last).to_be_visible()
        self.wait_for_reply()
        return self.reply

    def acts_of(self, message: Locator) -> Locator:
        """Hover over a message so that its actions appear; return the message."""
        message.hover()
        expect(message.locator(".msg__acts")).to_be_visible()
        return message

    def wait_for_reply(self) -> None:
        """Wait until no reply is running and the last message is finished."""
        expect(self.page.locator("[data-live]")).to_have_count(0, timeout=20_000)
        expect(self.reply.locator(".msg__foot")).to_have_count(1)

    def new_chat(self, text: str) -> None:
        """Start a chat with its first message; the reply may still be running."""
        self.open("/chats/new")
        self.type(text)
        expect(self.page.locator("#context-meter")).to_be_visible()

    @property
    def live(self) -> Locator:
        """The body of the running reply."""
        return self.page.locator("[data-live] .msg__body")

    @property
    def reply(self) -> Locator:
        """The newest finished reply."""
        return self.page.locator("article.msg:not(.msg--user):not([data-live])").last

    def mark_page(self) -> None:
        """Set a mark that a reload would remove."""
        self.page.evaluate("window.wasNeverReloaded = true")

    def was_reloaded(self) -> bool:
        """Return True if the mark is gone."""
        return not self.page.evaluate("window.wasNeverReloaded === true")

    def value(self, script: str) -> Any:
        """The result of a script on the page."""
        return self.page.evaluate(script)

    def scrolls_sideways(self) -> bool:
        """Return True if the page, or its thread, is wider than the screen."""
        # During navigation the page has none.
        self.page.wait_for_load_state("domcontentloaded")
        return bool(
            self.value(
                "[document.documentElement, ...document.querySelectorAll('#thread')]"
                ".some((part) => part.scrollWidth > part.clientWidth + 1)"
            )
        )


def wait_until(page: Page, look: Callable[[], bool], what: str) -> None:
    """Wait without blocking the browser, whose requests need answers."""
    for _ in range(300):
        if look():
            return
        page.wait_for_timeout(50)
    raise TimeoutError(what)


def must_be_quiet(person: Person) -> None:
    """Fail on console errors and on requests to other origins."""
    if person.complaints or person.foreign:
        raise AssertionError(f"complaints {person.complaints}, foreign {person.foreign}")
