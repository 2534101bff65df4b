"""The import page warns about a retention period that would erase imported messages."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from contextpolicy import holds
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.bringing import send
from tests.chats.api.programs import Program
from tests.support.exchange_files import build_ui_message, join_json_lines

pytestmark = pytest.mark.usefixtures("streams")

FILE = join_json_lines(build_ui_message("a", "Hello"))


@pytest.fixture
def thirty_days(alice: User, now: datetime) -> None:
    """A policy that erases messages after thirty days."""
    made = create_policy(slug="r", name="R", values={"retention_days": 30}, actor="system", now=now)
    assign_policy(policy=made, level="instance", actor="system", now=now)


@pytest.fixture
def page(alice: User) -> Client:
    """Alice's browser."""
    browser = Client()
    browser.force_login(alice)
    return browser


@pytest.mark.usefixtures("thirty_days")
def test_the_page_says_so_before_the_import(page: Client) -> None:
    html = page.get("/settings/exchange/").content.decode()
    assert 'data-note="retention-notice"' in html
    assert "30 days" in " ".join(html.split())


@pytest.mark.usefixtures("thirty_days")
def test_rest_says_so_before_and_with_the_import(of_alice: Program) -> None:
    told = of_alice.get("imports/conditions").json()
    assert told["retention_days"] == 30
    assert told["notice"].startswith("Messages older than 30 days are erased every night.")
    made = send(of_alice, FILE).json()
    assert (made["retention_days"], made["notice"]) == (30, told["notice"])


def test_without_retention_nothing_is_said(of_alice: Program, page: Client) -> None:
    told = of_alice.get("imports/conditions").json()
    assert (told["retention_days"], told["notice"]) == (None, "")
    assert told["file_bytes"] == 512 * 1024 * 1024
    assert 'data-note="retention-notice"' not in page.get("/settings/exchange/").content.decode()


@pytest.mark.usefixtures("thirty_days")
def test_a_legal_hold_keeps_the_messages(of_alice: Program, alice: User, now: datetime) -> None:
    holds.place_hold(
        level="user", case="c", reason="A reason for it", actor="system", now=now, user=alice
    )
    assert of_alice.get("imports/conditions").json()["retention_days"] is None


@pytest.mark.usefixtures("thirty_days")
def test_the_policy_of_one_person_counts_for_them(
    of_alice: Program, of_charlie: Program, alice: User, now: datetime
) -> None:
    made = create_policy(slug="s", name="S", values={"retention_days": 1}, actor="system", now=now)
    assign_policy(policy=made, level="user", user=alice, actor="system", now=now)
    assert (
        of_alice.get("imports/conditions")
        .json()["notice"]
        .startswith("Messages older than 1 day are")
    )
    assert of_charlie.get("imports/conditions").json()["retention_days"] == 30
