"""A person at the browser: what they do on the chat page, and what they read there."""

import re
from typing import Any

from playwright.sync_api import ConsoleMessage, Locator, Page, expect

from tests.browser.product import Product

# What the browser says when the content security policy stopped something.
FORBIDDEN = re.compile(r"Content[ -]Security[ -]Policy|Refused to", re.IGNORECASE)
# A status is an answer. htmx tells of requests that were cut when the person went elsewhere.
HARMLESS = ("Failed to load resource", "htmx:")


class Person:
    """One browser tab of one person. Keeps what the browser complained about and whom it asked."""

    def __init__(self, page: Page, product: Product) -> None:
        self.page = page
        self.product = product
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        page.on("console", self.hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.watch(request.url))

    def hear(self, message: ConsoleMessage) -> None:
        """Keep violations, and errors of the page's own."""
        is_error = message.type == "error" and not message.text.startswith(HARMLESS)
        if is_error or FORBIDDEN.search(message.text):
            self.complaints.append(message.text)

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
        expect(self.page.locator(".msg--user", has_text=text).last).to_be_visible()
        self.wait_for_reply()
        return self.reply

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
        return bool(
            self.value(
                "[document.documentElement, ...document.querySelectorAll('#thread')]"
                ".some((part) => part.scrollWidth > part.clientWidth + 1)"
            )
        )
