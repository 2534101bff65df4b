"""`/metrics`: its readers, and its figures from the database and the broker."""

import shutil
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone as django_timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import DjangoAssertNumQueries, Settings

from chats.counts.sums import MORE
from chats.ground import broker_facts, heartbeats, queues, shared_figures
from chats.models import Chat, DailyCount, Turn
from chats.turns import recover
from chats.turns.start import start_turn
from project import env, metrics_collector
from tests.faults.harness import new_folder
from tests.faults.stores import Broker

pytestmark = pytest.mark.django_db
TOKEN = "a-token-for-metrics"


@pytest.fixture(autouse=True)
def no_remembered_days() -> None:
    """Forget the counts of another test."""
    metrics_collector.sum_closed_counts.cache_clear()


@pytest.fixture
def permitted(settings: Settings) -> None:
    """Switch the metrics on for a token."""
    settings.METRICS_TOKEN = TOKEN


def scrape(client: Client) -> dict[str, float]:
    """The samples by name and labels."""
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer["Content-Type"][:10]) == (200, "text/plain")
    return {
        " ".join(
            [sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))]
        ): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def test_they_are_off_unless_a_client_is_permitted(client: Client, settings: Settings) -> None:
    assert (settings.METRICS_TOKEN, settings.METRICS_ADDRESSES) == ("", [])
    assert client.get("/metrics").status_code == 404
    assert client.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


@pytest.mark.usefixtures("permitted")
@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", "Bearer ä"])
def test_another_token_is_refused(client: Client, header: str) -> None:
    answer = client.get("/metrics", headers={"Authorization": header})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "metrics_denied")


@pytest.mark.parametrize(
    ("address", "status"),
    [("10.1.2.3", 200), ("11.1.2.3", 403), ("2001:db8::7", 200), ("2001:db9::7", 403), ("", 403)],
)
def test_addresses_of_the_setting_are_permitted(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch, address: str, status: int
) -> None:
    monkeypatch.setenv("METRICS_ADDRESSES", "10.0.0.0/8, 2001:db8::/48")
    settings.METRICS_ADDRESSES = env.read_networks("METRICS_ADDRESSES")
    assert client.get("/metrics", REMOTE_ADDR=address).status_code == status
    # Without a trusted proxy, the header comes from the client.
    forged = client.get("/metrics", REMOTE_ADDR=address, headers={"X-Forwarded-For": "10.1.1.1"})
    assert forged.status_code == status


@pytest.mark.usefixtures("permitted")
def test_figures_of_the_database(
    client: Client, chat: Chat, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(django_timezone, "now", lambda: now)
    start_turn(user=chat.owner, chat=chat, text="Hello", now=now - timedelta(seconds=42))
    days = {"model": "demo", "currency": ""}
    DailyCount.objects.create(
        **days,
        day=now.date(),
        replies=3,
        failed=1,
        calls=5,
        output=70,
        failures={"provider_error": 1},
        first_tokens={"250": 2, "1000": 1, MORE: 1},
    )
    DailyCount.objects.create(
        **days,
        day=now.date() - timedelta(days=90),
        replies=10,
        calls=10,
        output=30,
        first_tokens={"250": 10},
    )
    found = scrape(client)
    assert found["palimpsest_turns state=queued"] == 1
    assert found["palimpsest_turns state=running"] == 0
    assert found["palimpsest_queue_lag_seconds"] == 42
    assert found["palimpsest_turns_ended_total state=completed"] == 13
    assert found["palimpsest_turns_ended_total state=failed"] == 1
    assert found["palimpsest_turn_failures_total code=provider_error"] == 1
    assert found["palimpsest_model_calls_total model=demo"] == 15
    assert found["palimpsest_tokens_total kind=output model=demo"] == 100
    buckets = [
        found[f"palimpsest_first_token_seconds_bucket le={le}"]
        for le in ("0.25", "0.5", "1.0", "+Inf")
    ]
    assert buckets == [12, 12, 13, 14]
    assert found["palimpsest_disk_free_bytes"] > 0
    # Without the broker, its figures are missing.
    assert not [name for name in found if "heartbeat" in name or "tasks" in name]
    # Later counts of the same day are included.
    DailyCount.objects.filter(day=now.date()).update(replies=4)
    assert scrape(client)["palimpsest_turns_ended_total state=completed"] == 14


@pytest.mark.usefixtures("permitted", "chat")
def test_a_scrape_takes_few_statements(
    client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    scrape(client)
    with django_assert_max_num_queries(3):
        scrape(client)


@pytest.fixture
def broker(settings: Settings) -> Iterator[Broker]:
    """A running broker."""
    folder = new_folder()
    made = Broker(folder)
    made.start()
    settings.REDIS_URL = made.url
    yield made
    made.kill()
    shutil.rmtree(folder)


@pytest.mark.processes
@pytest.mark.usefixtures("permitted")
def test_figures_of_the_broker(
    broker: Broker,
    client: Client,
    chat: Chat,
    now: datetime,
    django_capture_on_commit_callbacks: Any,
) -> None:
    heartbeats.store_heartbeat("replies@host", taken=[queues.REPLIES])
    shared_figures.store_open_streams("web:1", 7)
    shared_figures.store_open_streams("web:2", 2)
    with broker_facts.connect_to_broker(broker.url) as redis:
        redis.lpush(queues.SUMMARIES, "one", "two")
        # A web process that ended an hour ago.
        redis.hset(shared_figures.STREAMS, "web:3", f"[{time.time() - 3600:.0f}, 9]")
    turn = start_turn(user=chat.owner, chat=chat, text="Hello", now=now).turn
    Turn.objects.filter(pk=turn.pk).update(
        status="running", lease_token="dead", lease_until=now - timedelta(days=9)
    )
    with django_capture_on_commit_callbacks(execute=True):
        recover.release_expired(now=now)
    found = scrape(client)
    assert found["palimpsest_tasks_waiting queue=summaries"] == 2
    assert found["palimpsest_open_streams process=web:1"] == 7
    assert found["palimpsest_open_streams process=web:2"] == 2
    assert "palimpsest_open_streams process=web:3" not in found
    assert found["palimpsest_lease_losses_total"] == 1
    assert found["palimpsest_heartbeat_age_seconds process=replies@host"] < 60
