"""Agent names in the message box: suggested after an @, selected by key and by pointer."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.browser.rest import ask
from tests.fakes.fake_server import FakeServer
from tests.support.accessibility import find_accessibility_faults
from tests.support.browser_chats import PHONE, ROUND_TIMEOUT, SLOW_REPLY, start_team_chat

NAME = "Four & <more>"
AGENTS = ("Planner", "Billing Agent", "Critic", "Writer")


@pytest.fixture
def chat(admin: Person, connected: str, scripted: FakeServer) -> Person:
    """A chat with a team of four: one name has two words, and one agent is inactive."""
    del connected
    made = [{"name": name, "rests": name == "Writer"} for name in AGENTS]
    admin.open("/chats/new")
    ask(admin, "teams", {"name": NAME, "agents": made, "routing": "person"})
    scripted.configure(replies=[{"text": "Here."}])
    start_team_chat(admin, NAME, "Who is there?")
    expect(admin.page.locator("#round")).to_contain_text("Finished", timeout=ROUND_TIMEOUT)
    return admin


def box(person: Person) -> Locator:
    """The message box."""
    return person.page.locator("#composer-text")


def offered(person: Person) -> list[str]:
    """The suggested names; none while the list is closed."""
    return person.page.locator("#mentions:not([hidden]) > :not([hidden]) bdi").all_inner_texts()


def names(person: Person) -> Locator:
    """The list of names."""
    return person.page.locator("#mentions")


def write(person: Person, text: str) -> None:
    """Clear the box and type a text key by key."""
    box(person).fill("")
    box(person).press_sequentially(text)


def test_a_name_is_found_as_one_types_and_taken_with_the_keyboard(chat: Person) -> None:
    write(chat, "Please, @")
    expect(names(chat)).to_be_visible()
    assert offered(chat) == ["Planner", "Billing Agent", "Critic", "all"]
    write(chat, "Please, @bil")
    assert offered(chat) == ["Billing Agent"]
    write(chat, "Please, @AGE")
    assert offered(chat) == ["Billing Agent"]
    write(chat, "Please, @billing-a")
    assert offered(chat) == ["Billing Agent"]
    box(chat).press("Tab")
    expect(box(chat)).to_have_value('Please, @"Billing Agent" ')
    expect(box(chat)).to_be_focused()
    expect(names(chat)).to_be_hidden()
    chat.page.keyboard.type("and @")
    for key, name in (("ArrowDown", "Billing Agent"), ("ArrowUp", "Planner"), ("ArrowUp", "all")):
        box(chat).press(key)
        active = names(chat).locator("[aria-selected=true]")
        expect(active).to_have_count(1)
        expect(active.locator("bdi")).to_have_text(name)
        expect(box(chat)).to_have_attribute(
            "aria-activedescendant", str(active.get_attribute("id"))
        )
    box(chat).press("Enter")
    expect(box(chat)).to_have_value('Please, @"Billing Agent" and @all ')
    expect(chat.page.locator(".msg--user")).to_have_count(1)
    write(chat, '@"bil')
    box(chat).press("Enter")
    expect(box(chat)).to_have_value('@"Billing Agent" ')


def test_a_name_is_put_where_the_caret_is(chat: Person) -> None:
    box(chat).fill("Ask  now.")
    for _ in range(5):
        box(chat).press("ArrowLeft")
    chat.page.keyboard.type("@cr")
    box(chat).press("Enter")
    expect(box(chat)).to_have_value("Ask @Critic now.")
    chat.page.keyboard.type("x")
    expect(box(chat)).to_have_value("Ask @Critic xnow.")


@pytest.mark.parametrize(
    "text",
    [
        "mail anna@",
        "mail anna@pl",
        "`@pl",
        "``a ` @pl",
        "```\n@pl",
        "~~~\nb\n@pl",
        "> @pl",
        "@writer",
        "@nobody",
        "@ pl",
        "@Planner",
        "@Planner ",
    ],
)
@pytest.mark.in_turn
def test_nothing_is_offered_where_nobody_is_called(chat: Person, text: str) -> None:
    box(chat).fill(text[:-1])
    # The last character is typed as a key, so that the list can open.
    box(chat).press_sequentially(text[-1])
    expect(box(chat)).to_have_value(text)
    expect(names(chat)).to_be_hidden()
    assert offered(chat) == []


@pytest.mark.parametrize("text", ["(@pl", "`a` @pl", "```\na\n```\n@pl", "请问@pl", "@PLAN"])
@pytest.mark.in_turn
def test_it_is_offered_behind_signs_and_code_that_has_ended(chat: Person, text: str) -> None:
    box(chat).fill(text[:-1])
    box(chat).press_sequentially(text[-1])
    expect(names(chat)).to_be_visible()
    assert offered(chat) == ["Planner"]


def test_escape_closes_the_list_and_leaves_the_reply_alone(
    chat: Person, scripted: FakeServer
) -> None:
    page = chat.page
    scripted.configure(replies=[])
    chat.type(f"Count slowly. {SLOW_REPLY}")
    expect(chat.live).to_contain_text(" 5@", timeout=ROUND_TIMEOUT)
    write(chat, "@")
    expect(names(chat)).to_be_visible()
    box(chat).press("Escape")
    expect(names(chat)).to_be_hidden()
    expect(box(chat)).to_have_value("@")
    # For this @ it stays closed; the next @ opens it again.
    box(chat).press_sequentially("cr")
    expect(names(chat)).to_be_hidden()
    box(chat).press_sequentially(" @cr")
    expect(names(chat)).to_be_visible()
    expect(page.locator("[data-live]")).to_have_count(1)
    box(chat).press("Escape")
    box(chat).press("Escape")
    expect(page.locator("#round")).to_contain_text("Stopped", timeout=ROUND_TIMEOUT)


def test_an_input_methods_enter_takes_and_sends_nothing(chat: Person) -> None:
    write(chat, "@pl")
    expect(names(chat)).to_be_visible()
    chat.value(
        "document.querySelector('#composer-text').dispatchEvent(new KeyboardEvent('keydown',"
        " {key: 'Enter', bubbles: true, cancelable: true, isComposing: true}))"
    )
    expect(box(chat)).to_have_value("@pl")
    expect(names(chat)).to_be_visible()
    expect(chat.page.locator(".msg--user")).to_have_count(1)
    box(chat).press("Shift+Enter")
    expect(box(chat)).to_have_value("@pl\n")
    expect(names(chat)).to_be_hidden()


def test_the_list_is_there_again_after_a_message_was_sent(
    chat: Person, scripted: FakeServer
) -> None:
    scripted.configure(replies=[{"text": "Rated."}])
    box(chat).press_sequentially("@cr")
    box(chat).press("Enter")
    chat.page.keyboard.type("what do you say?")
    box(chat).press("Enter")
    expect(chat.page.locator("article.msg", has_text="Rated.")).to_be_visible(timeout=ROUND_TIMEOUT)
    assert chat.page.locator(".msg__who").all_inner_texts()[-1] == "Critic"
    expect(box(chat)).to_be_focused()
    box(chat).press_sequentially("@")
    expect(names(chat)).to_be_visible()
    expect(box(chat)).to_have_attribute("aria-expanded", "true")
    chat.page.locator("#context-meter > summary").focus()
    expect(names(chat)).to_be_hidden()
    expect(box(chat)).to_have_attribute("aria-expanded", "false")


def test_a_new_chat_offers_the_names_of_the_chosen_team(chat: Person) -> None:
    ask(chat, "teams", {"name": "Two", "agents": [{"name": "Pro"}, {"name": "Contra"}]})
    chat.open("/chats/new")
    write(chat, "@")
    assert offered(chat) == []
    for team, expected in (
        ("Team: Two", ["Pro", "Contra", "all"]),
        (f"Team: {NAME}", ["Planner", "Billing Agent", "Critic", "all"]),
    ):
        chat.page.locator("#team").select_option(label=team)
        write(chat, "@")
        expect(names(chat)).to_be_visible()
        assert offered(chat) == expected
    box(chat).press_sequentially("cr")
    box(chat).press("Tab")
    expect(box(chat)).to_have_value("@Critic ")


def test_a_chat_without_a_team_has_no_list(admin: Person) -> None:
    admin.new_chat("Alone")
    admin.wait_for_reply()
    write(admin, "@")
    expect(names(admin)).to_have_count(0)
    expect(box(admin)).not_to_have_attribute("role", re.compile(".*"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_taken_by_a_finger_on_a_phone_and_read_by_a_screen_reader(
    chat: Person,
    open_tab: Callable[..., Person],
    product: Product,
    signed_in: Any,
    scheme: str,
) -> None:
    options: dict[str, Any] = {**PHONE, "color_scheme": scheme, "reduced_motion": "reduce"}
    # axe itself tests a style.
    person = open_tab(product, storage_state=signed_in, bypass_csp=True, **options)
    person.page.goto(chat.page.url)
    box(person).tap()
    box(person).press_sequentially("@")
    expect(names(person)).to_be_visible()
    assert not person.scrolls_sideways()
    for option in names(person).locator("[role=option]").all():
        place = option.bounding_box()
        assert place is not None
        assert place["height"] >= 44
    seen = names(person).bounding_box()
    assert seen is not None
    assert seen["x"] >= 0
    assert seen["y"] >= 0
    assert seen["x"] + seen["width"] <= 390
    assert find_accessibility_faults(person) == []
    names(person).locator("[role=option]", has_text="Billing").tap()
    expect(box(person)).to_have_value('@"Billing Agent" ')
    expect(names(person)).to_be_hidden()
