"""A chat's state in the browser: filled by messages, corrected, cleared."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from chats.web.state.form import build_control_name
from tests.browser.desk import Person
from tests.browser.product import Product
from tests.faults.programs import MANAGE, python, run
from tests.support.accessibility import find_accessibility_faults
from tests.support.browser_chats import PHONE

FIELD = f"#field-{build_control_name('destination')}"
BOOKING = """
from django.utils import timezone
from contextpolicy.models import ContextPolicy
from contextpolicy.policy_assignments import assign_policy
policy = ContextPolicy.objects.get(slug="booking")
assign_policy(policy=policy, level="instance", actor="system", now=timezone.now())
"""


@pytest.fixture(scope="module")
def governed(product: Product, signed_in: Any) -> Product:
    """An installation on which the policy *Booking* applies to everyone."""
    del signed_in
    command = [*python(MANAGE, "shell", "--no-imports"), "-c", BOOKING]
    run(command, env={**os.environ, **product.env})
    return product


@pytest.fixture
def booking(governed: Product, signed_in: Any, open_tab: Callable[..., Person]) -> Person:
    """The administrator of an installation on which *Booking* applies to everyone."""
    return open_tab(governed, storage_state=signed_in)


@pytest.mark.requirement("S2.5", by="user")
def test_a_state_is_filled_by_what_a_person_says(booking: Person) -> None:
    booking.new_chat("I want to travel. Destination: Oslo")
    booking.wait_for_reply()
    panel = booking.page.locator("#chat-state")
    expect(panel.locator("summary")).to_contain_text("1/2")
    booking.send("The date is 2026-12-24.")
    expect(panel.locator("summary")).to_contain_text("2/2")
    expect(booking.reply).to_contain_text("replaces the dialogue")

    panel.locator("summary").click()
    expect(panel).to_contain_text("extracted from message 1")


@pytest.mark.requirement("S2.5", by="user")
def test_a_field_is_corrected_once_and_counts_in_the_next_turn(
    booking: Person, open_tab: Callable[..., Person]
) -> None:
    page = booking.page
    booking.new_chat("I want to travel. Destination: Oslo")
    booking.wait_for_reply()
    chat = page.url
    page.locator("#chat-state > summary").click()
    page.get_by_role("link", name="Edit state").click()
    booking.mark_page()
    late = open_tab(booking.product, storage_state=page.context.storage_state(), **PHONE)
    late.page.goto(page.url)
    page.get_by_label("Destination").fill("Bergen <b>by sea</b>")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#state .notice--ok[role=status]")).to_be_visible()
    expect(page.locator(FIELD)).to_contain_text("Corrected by you after message 2")
    assert not booking.was_reloaded()

    # A person who opened the page earlier does not overwrite it.
    late.page.get_by_label("Destination").fill("Rome")
    late.page.get_by_role("button", name="Save").click()
    expect(late.page.locator("#refusal")).to_contain_text("state_changed")
    expect(late.page.locator("#typed")).to_contain_text("Rome")
    expect(late.page.get_by_label("Destination")).to_have_value("Bergen <b>by sea</b>")
    assert not late.scrolls_sideways()

    page.goto(chat)
    booking.send("Two people, please.")
    page.get_by_role("link", name="Prompt receipt").last.click()
    expect(page.locator("[data-purpose=state] h2")).to_be_visible()
    expect(page.locator(".prompt").last).to_contain_text('"destination": "Bergen <b>by sea</b>"')


def test_the_state_is_emptied(booking: Person) -> None:
    page = booking.page
    booking.new_chat("Destination: Oslo")
    booking.wait_for_reply()
    chat = page.url
    page.goto(chat + "state")
    page.get_by_role("button", name="Clear state").click()
    expect(page.locator("[data-note=state-cleared]")).to_be_visible()
    expect(page.get_by_label("Destination")).to_have_value("")
    page.goto(chat)
    expect(page.locator("#chat-state > summary")).to_contain_text("0/2")


def test_the_state_is_corrected_without_scripts(
    booking: Person, open_tab: Callable[..., Person]
) -> None:
    booking.new_chat("Destination: Oslo")
    booking.wait_for_reply()
    options: dict[str, Any] = {"java_script_enabled": False}
    plain = open_tab(booking.product, storage_state=booking.page.context.storage_state(), **options)
    plain.page.goto(booking.page.url + "state")
    plain.page.get_by_label("Destination").fill("Rome")
    plain.page.get_by_role("button", name="Save").click()
    expect(plain.page.locator(FIELD)).to_contain_text("Corrected by you")
    expect(plain.page.get_by_label("Destination")).to_have_value("Rome")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_serious_on_the_pages_of_a_state(
    governed: Product, signed_in: Any, open_tab: Callable[..., Person], scheme: str
) -> None:
    # Without animations colours have their final values; axe itself tests a style.
    options: dict[str, Any] = {"color_scheme": scheme, "reduced_motion": "reduce"}
    person = open_tab(governed, storage_state=signed_in, bypass_csp=True, **options)
    person.new_chat("Destination: Oslo")
    person.wait_for_reply()
    chat = person.page.url
    person.page.goto(chat + "state")
    person.page.get_by_label("Destination").fill("Rome")
    person.page.get_by_role("button", name="Save").click()
    expect(person.page.locator(FIELD)).to_contain_text("Corrected by you")
    for width in (1280, 390):
        person.page.set_viewport_size({"width": width, "height": 800})
        assert find_accessibility_faults(person) == []
    person.page.goto(chat + "state/history")
    # One active version, and one that can be restored.
    expect(person.page.locator("section.section")).to_have_count(2)
    for width in (390, 1280):
        person.page.set_viewport_size({"width": width, "height": 800})
        assert find_accessibility_faults(person) == []
