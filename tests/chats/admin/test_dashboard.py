"""The dashboard: daily totals and their rows, for operators and policy administrators."""

import re
import time
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chats.compaction import maintain
from chats.compaction.publish import publish_prepared
from chats.counts import keeping
from chats.models import Chat, CompactionBalance, DailyCount, ProviderAccount
from chats.providers.base import Finished, ProviderError, TextDelta, UsageReport
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from contextpolicy.roles import AUDITOR, OWNER, POLICY_ADMIN
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_summaries import Fold, Work, reload_branch

pytestmark = pytest.mark.django_db

DASHBOARD = "/admin/chats/dailycount/"
COUNTS = "/api/v1/counts"
D = Decimal
# How much longer a page of 30 days may take if a year is stored.
MUCH = 2


@pytest.fixture
def governor(db: None) -> Client:
    """The browser of a policy administrator."""
    return signed_in(person("paula", POLICY_ADMIN))


@pytest.fixture
def counted(alice: User, long_chat: Chat, fold: Fold, work: Work) -> Chat:
    """A counted chat of this hour, with a summary, ten replies and a failure."""
    now = timezone.now()
    model = ModelSpec.objects.get(slug="demo")
    model.input_price, model.cached_price, model.output_price = D(10), D(1), D(30)
    model.currency = "USD"
    model.save()
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=ApproximateCounter(), now=now)
    publish_prepared(branch_id=reload_branch(long_chat).pk, now=now)
    for cached in (0, 900):
        turn = start_turn(user=alice, chat=long_chat, text="And now?", now=now).turn
        report = UsageReport(1_000, 10, cached, 0)
        work(turn, [TextDelta("So."), report, Finished("stop")])
    failed = start_turn(user=alice, chat=long_chat, text="And now?", now=now).turn
    work(failed, [ProviderError("provider_auth")])
    while keeping.count_next_events(now=now):
        pass
    return long_chat


def figures_of(html: str) -> dict[str, str]:
    """Return the HTML of every figure on the page, by its key."""
    found = re.findall(
        r'<div data-figure="([^"]+)">\s*<dt>[^<]+</dt>\s*<dd>(.*?)</dd>', html, re.DOTALL
    )
    assert len(found) == html.count("data-figure=")
    return dict(found)


def figure(html: str, key: str) -> str:
    """Return the value of a figure on the page."""
    return re.sub(r"<[^>]+>", "", figures_of(html)[key]).strip()


def test_the_page_tells_what_happened_and_leads_to_the_rows(
    operator: Client, counted: Chat
) -> None:
    html = operator.get(DASHBOARD).content.decode()
    assert figure(html, "replies") == "10"
    assert figure(html, "failed") == "1"
    assert figure(html, "active-summaries") == "1"
    assert figure(html, "from-cache") == "45.0%"
    assert "USD" in figure(html, "net-effect")
    assert "provider_auth" in html
    labels = re.findall(r'<svg [^>]*role="img" aria-label="([^"]*)"', html)
    assert labels
    assert all(labels)
    links = re.findall(r'href="(/admin/chats/(?:turn|compaction)/\?[^"]+)"', html)
    assert len(links) > 10
    for link in set(links):
        answer = operator.get(link.replace("&amp;", "&"))
        assert answer.status_code == 200, link
    failed = next(link for link in links if "error_code=provider_auth" in link)
    assert "1 turn" in operator.get(failed.replace("&amp;", "&")).content.decode()


def test_each_number_leads_to_its_rows(counted: Chat) -> None:
    boss = signed_in(User.objects.create_superuser("boss"))
    html = boss.get(DASHBOARD).content.decode()
    figures = re.findall(r"<dt>([^<]+)</dt>\s*<dd>(.*?)</dd>", html, re.DOTALL)
    assert len(figures) > 14
    assert [label for label, value in figures if "<a href=" not in value] == []
    tables = html.partition('id="content-main"')[2]
    cells = re.findall(r"<td>(.*?)</td>", tables, re.DOTALL)
    assert [cell for cell in cells if "<a href=" not in cell] == []
    for key in ("last-checkpoint", "last-verification", "stopped"):
        value = figures_of(html)[key]
        address = value.partition('href="')[2].partition('"')[0].replace("&amp;", "&")
        assert boss.get(address).status_code == 200, key


@pytest.mark.parametrize("by", ["day", "model", "policy"])
def test_numbers_are_told_apart(operator: Client, counted: Chat, by: str) -> None:
    html = operator.get(DASHBOARD, {"by": by, "days": "7"}).content.decode()
    table = html[html.index(f"<h2>By {by}</h2>") :]
    name = {"day": f"{timezone.now():%Y-%m-%d}", "model": "demo", "policy": "small"}[by]
    assert f"<bdi>{name}</bdi>" in table
    narrowed = operator.get(DASHBOARD, {"model": "demo", "policy": "small"}).content.decode()
    assert figure(narrowed, "replies") == "10"


def test_without_prices_money_is_unknown_and_says_for_how_many(
    operator: Client, long_chat: Chat, now: datetime
) -> None:
    DailyCount.objects.create(
        day=timezone.now().date(), calls=9, unpriced=9, governed=4, saved_unpriced=4
    )
    html = operator.get(DASHBOARD).content.decode()
    assert figure(html, "net-effect") == figure(html, "cost") == "unknown"
    assert "9 of 9 have no price or no reported usage" in html


def test_what_is_unknown_stands_beside_what_is_known(operator: Client, db: None) -> None:
    today = timezone.now().date()
    DailyCount.objects.create(day=today, calls=9, cost=D("1.5"), unpriced=2, currency="USD")
    DailyCount.objects.create(day=today, calls=1, cost=D(2), model="m", currency="EUR")
    html = operator.get(DASHBOARD).content.decode()
    assert (
        "2 of 10 have no price or no reported usage; 2.0000 EUR, 1.5000 USD for the others" in html
    )


def test_the_cost_of_calls_without_reported_usage_is_unknown(operator: Client, db: None) -> None:
    today = timezone.now().date()
    DailyCount.objects.create(day=today, calls=4, unreported=4)
    html = operator.get(DASHBOARD).content.decode()
    assert figure(html, "cost") == "unknown"
    assert "4 of 4 have no price or no reported usage" in html


def test_an_empty_instance_says_so(governor: Client) -> None:
    html = governor.get(DASHBOARD).content.decode()
    assert 'data-note="nothing-counted"' in html
    assert figure(html, "last-checkpoint") == figure(html, "last-verification") == "none yet"
    assert governor.get(DASHBOARD, {"days": "nonsense", "by": "nothing"}).status_code == 200


def test_breakers_and_waiting_turns_are_told(
    operator: Client, alice: User, chat: Chat, now: datetime
) -> None:
    start_turn(user=alice, chat=chat, text="Hello?", now=timezone.now() - timedelta(minutes=5))
    soon = timezone.now() + timedelta(minutes=5)
    ProviderAccount.objects.create(slug="x", name="Resting", kind="openai", paused_until=soon)
    html = operator.get(DASHBOARD).content.decode()
    assert figure(html, "waiting-turns") == "1"
    assert figure(html, "paused-providers") == "1"
    assert "the oldest has waited for 5 min" in html
    assert "Resting" in html


def test_who_may_not_see_turns_gets_numbers_without_their_addresses(
    governor: Client, counted: Chat
) -> None:
    html = governor.get(DASHBOARD).content.decode()
    assert figure(html, "replies") == "10"
    assert "/admin/chats/turn/" not in html
    assert "/admin/chats/compaction/?" in html


@pytest.mark.parametrize("role", [AUDITOR, OWNER, None])
def test_others_see_no_dashboard(role: str | None, charlie: User) -> None:
    browser = signed_in(person("erin", role) if role else charlie)
    assert browser.get(DASHBOARD).status_code in {302, 403}


def test_a_year_of_counts_takes_as_long_as_a_month_and_as_many_queries(operator: Client) -> None:
    add_counts(days=30)
    operator.get(DASHBOARD)
    with CaptureQueriesContext(connection) as few:
        operator.get(DASHBOARD)
    of_a_month = processor_seconds(operator)
    add_counts(days=366)
    with CaptureQueriesContext(connection) as many:
        html = operator.get(DASHBOARD).content.decode()
    assert figure(html, "replies") == f"{30 * 25 * 1_000:,}"
    assert len(many) == len(few)
    of_a_year = processor_seconds(operator)
    assert of_a_year < MUCH * of_a_month, f"{of_a_year:.3f} and {of_a_month:.3f} s"


def add_counts(*, days: int) -> None:
    """Store the counts of 25 combinations of model and policy for each of the last days."""
    today = timezone.now().date()
    DailyCount.objects.all().delete()
    DailyCount.objects.bulk_create(
        DailyCount(
            day=today - timedelta(days=day),
            model=f"model-{model}",
            policy=f"policy-{policy}",
            currency="USD",
            replies=1_000,
            calls=1_100,
            input=9_000_000,
            cached=8_000_000,
            cost=D("12.5"),
            failures={"provider_timeout": 3},
            first_tokens={"500": 600, "1000": 400},
            compactions={"published": 40},
        )
        for day in range(days)
        for model in range(5)
        for policy in range(5)
    )


def processor_seconds(client: Client) -> float:
    """The least processor time of eight requests; elapsed time would include other tests."""
    times = []
    for _ in range(8):
        began = time.process_time()
        client.get(DASHBOARD)
        times.append(time.process_time() - began)
    return min(times)


class TestOverREST:
    def test_the_counts_are_those_of_the_page(self, operator: Client, counted: Chat) -> None:
        found = operator.get(COUNTS).json()
        (row,) = [row for row in found["data"] if row["replies"] == 2] or found["data"][-1:]
        assert found["counted_to"]
        assert sum(each["failed"] for each in found["data"]) == 1
        assert row["net"]["unknown"] == 0
        by_model = operator.get(COUNTS, {"by": "model", "model": "demo"}).json()["data"]
        assert [each["group"] for each in by_model] == ["demo"]
        assert by_model[0]["cached"] == 900

    def test_a_range_is_at_most_a_year(self, operator: Client) -> None:
        answer = operator.get(COUNTS, {"since": "2020-01-01", "until": "2026-01-01"})
        assert answer.json()["error"]["param"] == "since"
        backwards = operator.get(COUNTS, {"since": "2026-02-01", "until": "2026-01-01"})
        assert backwards.json()["error"]["code"] == "invalid_value"

    def test_charlie_is_told_of_none(self, charlie: User, counted: Chat) -> None:
        browser = signed_in(charlie)
        assert browser.get(COUNTS).status_code == 404
        assert browser.get(f"/api/v1/chats/{counted.pk}/balance").status_code == 404
        assert browser.get("/api/v1/policies/small/balance").status_code == 404

    def test_a_chat_and_its_policy_have_a_balance(
        self, alice: User, governor: Client, counted: Chat
    ) -> None:
        balance = signed_in(alice).get(f"/api/v1/chats/{counted.pk}/balance").json()
        (one,) = balance["data"]
        assert one["calls"] == balance["whole"]["calls"] == 2
        assert one["saved_tokens"] == CompactionBalance.objects.get().saved_tokens > 0
        assert one["cost"] == {"amounts": [], "unknown": 0}
        assert [each["currency"] for each in one["net"]["amounts"]] == ["USD"]
        versions = governor.get("/api/v1/policies/small/balance").json()["data"]
        assert versions[0]["saved_tokens"] == one["saved_tokens"]
        page = governor.get("/admin/contextpolicy/contextpolicy/")
        assert page.status_code == 200

    def test_the_pages_tell_the_balance(self, alice: User, governor: Client, counted: Chat) -> None:
        row = CompactionBalance.objects.get().compaction
        mine = signed_in(alice)
        for path in (
            f"/chats/{counted.pk}/compactions/",
            f"/chats/{counted.pk}/compactions/{row.pk}/",
        ):
            html = mine.get(path).content.decode()
            assert "Net effect" in html
            assert "USD" in html
        html = governor.get(f"/admin/chats/compaction/{row.pk}/change/").content.decode()
        assert "Cache losses" in html
        policy = row.effective_policy.sources["strategy"][1]
        assert policy == "small"
        found = governor.get("/admin/contextpolicy/contextpolicy/").content.decode()
        address = re.search(r'href="(/admin/contextpolicy/contextpolicy/\d+/change/)', found)
        assert address
        assert "Compaction savings" in governor.get(address[1]).content.decode()


def test_an_invalid_filter_leaves_the_others(governor: Client, counted: Chat) -> None:
    page = governor.get(f"{DASHBOARD}?days=7&by=model&policy=no-such")
    assert page.context["by_title"] == "By model"
    assert page.context["days"] == "7"
    assert 'data-field="policy"' in page.content.decode()
