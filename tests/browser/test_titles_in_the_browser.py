"""The light model titles a chat, in the open page and in another tab's list."""

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.desk import Person, must_be_quiet
from tests.browser.product import Product
from tests.fakes.fake_server import FakeServer
from tests.support.browser_chats import open_tab_at, start_chat_with_model
from tests.support.browser_operator import run_operator_script

POLICY = """
from django.utils import timezone
from contextpolicy.models import ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
light = ModelSpec.objects.get(name="fake-chat")
values = {"strategy": "dynamic_summary", "summarization_model": light.slug}
now = timezone.now()
policy = create_policy(slug="light", name="Light", values=values, actor="system", now=now)
assign_policy(policy=policy, level="instance", actor="system", now=now)
"""


@pytest.fixture(scope="module")
def light(product: Product, connected: str) -> None:
    """A policy for everyone that names a light model."""
    run_operator_script(product, POLICY)


@pytest.mark.usefixtures("light")
def test_a_title_comes_by_itself_and_its_receipt_can_be_read(
    context: BrowserContext, product: Product, connected: str, scripted: FakeServer
) -> None:
    said = ("The offer of Nordbygg is lower.", "Two offers for Oslo")
    scripted.configure(replies=[{"text": text} for text in said])
    person = Person(context.new_page(), product)
    other = open_tab_at(context, product.url + "/chats/new")
    start_chat_with_model(person, "Could you compare the two offers for the office in Oslo?")
    person.wait_for_reply()
    expect(person.page.locator("h1")).to_have_text("Two offers for Oslo")
    expect(other.locator("#chat-list li").first).to_contain_text("Two offers for Oslo")

    person.acts_of(person.reply)
    person.page.get_by_role("link", name="Prompt receipt").click()
    expect(person.page.locator("[data-purpose=title] h2")).to_be_visible()
    expect(person.page.get_by_text("Write a title for them")).to_be_attached()
    must_be_quiet(person)
