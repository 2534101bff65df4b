"""Settings → Usage: calls by day, model, purpose and key, and the limits of the user's policy."""

import re
from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.models import Chat, QuotaUsage, Turn
from chats.providers.base import Finished, TextDelta, UsageReport
from chats.turns.start import start_turn
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

PAGE = "/settings/usage/"


@pytest.fixture
def used(chat: Chat, alice: User, work: Callable[..., object]) -> None:
    """One reply with 1,200 input and 34 output tokens, as of now."""
    turn: Turn = start_turn(user=alice, chat=chat, text="Hello", now=timezone.now()).turn
    work(turn, [TextDelta("Yes."), UsageReport(1_200, 34, 0, 0), Finished("stop")])


def read(page: Client, query: str = "") -> str:
    """Return the page's HTML."""
    answer = page.get(f"{PAGE}{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def test_an_unused_account(page: Client) -> None:
    html = read(page)
    assert 'data-note="no-usage"' in html
    assert "data-quota" not in html


@pytest.mark.parametrize(
    ("by", "group"),
    [("model", "demo"), ("purpose", "reply"), ("key", ""), ("day", "20")],
)
def test_the_calls_in_groups(page: Client, used: None, by: str, group: str) -> None:
    html = read(page, f"?by={by}&days=30")
    rows = re.findall(r'<tr data-group="([^"]*)">(.*?)</tr>', html, re.DOTALL)
    assert len(rows) == 1
    assert rows[0][0].startswith(group)
    assert "1,200" in rows[0][1]
    assert ">34<" in rows[0][1]


@pytest.mark.parametrize("query", ["?by=x&days=30", "?days=0", "?days=9999999999", "?by=%00"])
def test_invalid_parameters_use_the_defaults(page: Client, used: None, query: str) -> None:
    assert 'data-group="' in read(page, query)


def test_the_limits_of_the_user(
    page: Client, chat: Chat, alice: User, bob: User, now: datetime
) -> None:
    values = {"tokens_per_day": 1_000, "cost_per_month": 20}
    policy = create_policy(slug="q", name="Q", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    today = timezone.now().date()
    QuotaUsage.objects.create(owner=alice, day=today, tokens=1_500, cost="3.5")
    QuotaUsage.objects.create(owner=bob, day=today, tokens=7)
    html = read(page)
    assert re.findall(r'data-quota="(\w+)"', html) == ["tokens_per_day", "cost_per_month"]
    assert "1,500 of 1,000 tokens today" in html
    assert re.findall(r'max="(\d+)"\s+value="([\d.]+)"', html)[0] == ("1000", "1000.0000")


def test_other_peoples_calls_are_not_shown(used: None, charlies_page: Client) -> None:
    assert 'data-note="no-usage"' in read(charlies_page)
