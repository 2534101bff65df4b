"""Chats in the browser: start one, fill it, and read its messages."""

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_operator import run_operator_script

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SLOW_REPLY = "[[fake tokens=400 ms=30]]"
ROUND_TIMEOUT = 20_000
# The link that loads earlier messages.
EARLIER_LINK = ".earlier > a"
# Inserts old messages into the newest chat of an installation.
FILL_CHAT = """
from django.utils import timezone
from chats.models import Chat, Message
chat = Chat.objects.order_by("-created_at")[0]
branch, now = chat.active_branch, timezone.now()
words = "A long answer about the order 4711 of Anna Berg, who lives in Oslo. " * {repeats}
first = branch.last_seq + 1
Message.objects.bulk_create(
    Message(
        branch=branch, seq=seq, accepted=1_000_000 + seq, created_at=now, token_count=20,
        role="user" if seq % 2 else "assistant",
        parts=[{{"type": "text", "text": f"Number {{seq}}. " + words}}],
    )
    for seq in range(first, first + {count})
)
branch.last_seq += {count}
branch.save()
"""


def start_chat_with_reply(person: Person) -> str:
    """A chat with one finished reply; its address."""
    person.new_chat("What do you know?")
    person.wait_for_reply()
    return person.page.url.removeprefix(person.product.url)


def choose_model(person: Person, model: str) -> None:
    """Choose the model of a new chat."""
    person.open("/chats/new")
    person.page.locator("#model-picker > summary").click()
    person.page.locator("#model-picker label", has_text=model).click()
    person.page.keyboard.press("Escape")


def start_chat_with_model(person: Person, text: str, *, model: str = "fake-chat") -> None:
    """Start a chat with a model of the fake server."""
    choose_model(person, model)
    person.type(text)
    expect(person.page.locator("#context-meter")).to_be_visible()


def start_team_chat(person: Person, team: str, text: str) -> None:
    """Start a chat with the team and a model of the fake server."""
    person.open("/chats/new")
    person.page.locator("#model-picker > summary").click()
    person.page.locator("#model-picker label", has_text="fake-chat").click()
    person.page.keyboard.press("Escape")
    person.page.locator("#team").select_option(label=f"Team: {team}")
    person.type(text)
    expect(person.page.locator("#context-meter")).to_be_visible()


def list_speakers(person: Person) -> list[str]:
    """The speakers of the messages on the page, first to last."""
    return person.page.locator("article.msg:not([data-live]) .msg__who").all_inner_texts()


def open_long_chat(person: Person, product: Product, *, count: int, repeats: int = 8) -> None:
    """Open a chat with this many messages before its last ones."""
    person.new_chat("The first question")
    person.wait_for_reply()
    run_operator_script(product, FILL_CHAT.format(count=count, repeats=repeats))
    person.page.reload()


def open_tab_at(context: BrowserContext, address: str) -> Page:
    """Another tab at an address."""
    page = context.new_page()
    page.goto(address)
    return page
