"""Summaries in the browser: a policy, a chat that needs one, and its marker."""

import contextlib
import re

from playwright.sync_api import Error, expect

from tests.browser.desk import Person

# The button that sends an edited message.
SEND_EDIT = "form[action$='/edit'] [type=submit]"
CASE_MESSAGES = (
    "New case. Eva Lindqvist, ticket AB-48213. Her AeroTherm 9 shows E-47. Where do I start?",
    "Serial AT9-2231-0457, installed 14 November 2024 by Fjord VVS for €412.00.",
    "She wants it in writing by 21 November 2026, see https://support.nordlys.example/kb/e47",
    "Does her contract LX-2207 cover labour?",
)
# The presets compact too late for a test of four turns.
ASSIGN_SUMMARY_POLICY = """
from django.utils import timezone
from contextpolicy.models import PolicyAssignment
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
values = {"strategy": "dynamic_summary", "token_budget": 9000, "reserve_tokens": 400}
values |= {"keep_last_messages": 2, "summary_max_tokens": 400}
PolicyAssignment.objects.filter(level="instance").delete()
now = timezone.now()
policy = create_policy(slug="folding", name="Folding", values=values, actor="system", now=now)
assign_policy(policy=policy, level="instance", actor="system", now=now)
"""


def start_case_chat(person: Person) -> None:
    """Start a chat of four turns."""
    person.new_chat(CASE_MESSAGES[0])
    person.wait_for_reply()
    for text in CASE_MESSAGES[1:]:
        person.send(text)


def compact_now(person: Person) -> None:
    """Press Compact now and wait for its marker."""
    person.page.locator("#context-meter > summary").click()
    person.page.get_by_role("button", name="Compact now").click()
    # The breakdown would cover the answer.
    expect(person.page.locator("#context-meter[open]")).to_have_count(0)
    expect(person.page.locator("#answer .notice__title")).to_be_in_viewport(ratio=1)
    expect(person.page.locator("[data-marker]")).to_be_visible(timeout=20_000)
    person.page.keyboard.press("Escape")


def send_until_the_marker_appears(person: Person) -> None:
    """Six short messages lead to a summary, whose marker appears in the open page."""
    marker = person.page.locator("details.marker")
    for number in range(2, 9):
        if marker.count():
            break
        person.send(f"Question {number}: is parcel {number}00 with Anna Berg already?")
        if number > 5:
            with contextlib.suppress(Error):
                marker.wait_for(timeout=3_000)
    expect(marker).to_be_visible()
    expect(marker).to_contain_text(re.compile(r"\d+ messages summarised"))
    expect(person.page.locator(".msg--user", has_text="Question 2:")).to_have_count(0)
