"""Heartbeats of workers and scheduler: the report of the health check, and missed sweeps."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery.signals import after_task_publish
from django.test import Client
from pytest_django import Settings
from redis import Redis

from chats import tasks
from chats.background import sweep
from chats.ground import broker_facts, heartbeats, queue, queues
from chats.ground.heartbeats import WorkerHeartbeat
from tests.faults.harness import new_folder
from tests.faults.stores import Broker

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    """A running broker."""
    folder = new_folder()
    made = Broker(folder)
    made.start()
    yield made
    made.kill()
    shutil.rmtree(folder)


@pytest.fixture
def broker(running: Broker, settings: Settings, tmp_path: Path) -> Iterator[Redis]:
    """A client of the broker, without stored heartbeats."""
    settings.REDIS_URL = running.url
    settings.SCHEDULE_FILE = str(tmp_path / "schedule")
    with broker_facts.connect_to_broker(running.url) as client:
        client.flushall()
        yield client


def worker(swept: list[str]) -> WorkerHeartbeat:
    """Return a heartbeat of a worker for replies. It is not started."""
    name = "replies@host"
    return WorkerHeartbeat(name, taken=[queues.REPLIES], sweep=lambda: swept.append(name))


def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the clock of the broker forward by 46 seconds."""
    usual = heartbeats._clock
    monkeypatch.setattr(heartbeats, "_clock", lambda client: usual(client) + 46)


@pytest.mark.django_db
def test_the_ages_of_all_heartbeats_are_reported(
    broker: Redis, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = client.get("/readyz").json()
    assert (told["schedule"], told["workers"]) == (None, {})
    assert any("schedule" in one for one in told["warnings"])
    assert any("replies wait" in one for one in told["warnings"])

    heartbeats.note_schedule()
    worker([]).beat()
    told = client.get("/readyz").json()
    assert told["schedule"] < 10
    assert told["workers"].keys() == {"replies@host"}
    assert not [one for one in told["warnings"] if "schedule" in one or "workers" in one]

    late(monkeypatch)
    told = client.get("/readyz").json()
    assert told["schedule"] > 45
    assert any("replies@host has no heartbeat" in one for one in told["warnings"])
    assert any("schedule: no heartbeat for" in one for one in told["warnings"])


def test_a_worker_that_ends_is_forgotten(broker: Redis) -> None:
    one = worker([])
    one.beat()
    one.stop()
    assert heartbeats.list_heartbeats() == []


def test_a_worker_sweeps_once_the_schedule_is_dead(
    broker: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []
    one, other = worker(swept), worker(swept)
    one.begun = other.begun = time.monotonic() - 60
    heartbeats.note_sweep()
    one.beat()
    assert swept == []
    late(monkeypatch)
    one.beat()
    other.beat()
    # The second worker sees the sweep of the first one.
    assert swept == ["replies@host"]


def test_a_worker_without_any_sweep_waits_before_it_sweeps(broker: Redis) -> None:
    swept: list[str] = []
    one = worker(swept)
    one.beat()
    assert swept == []
    one.begun -= 60
    one.beat()
    assert swept == ["replies@host"]


@pytest.mark.django_db
def test_the_schedule_and_the_sweep_leave_their_marks(
    broker: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "run_sweep", lambda **_named: 0)
    tasks.sweep()
    assert [one.name for one in heartbeats.list_heartbeats()] == [heartbeats.SWEEP]
    after_task_publish.send(sender=queue.SWEEP)
    assert [one.name for one in heartbeats.list_heartbeats()] == [
        heartbeats.SCHEDULE,
        heartbeats.SWEEP,
    ]
    assert Path(settings.SCHEDULE_FILE).exists()
    after_task_publish.send(sender=queue.RUN_TURN)


def test_a_worker_that_is_ready_has_a_heartbeat(
    broker: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[WorkerHeartbeat] = []
    monkeypatch.setattr(tasks, "heartbeat", made)
    taken = SimpleNamespace(consume_from={queues.REPLIES: None})
    app = SimpleNamespace(amqp=SimpleNamespace(queues=taken))
    tasks.keep_heartbeat(sender=SimpleNamespace(app=app, hostname="replies@here"))
    try:
        give_up = time.monotonic() + 10
        while not heartbeats.list_heartbeats() and time.monotonic() < give_up:
            time.sleep(0.05)
        assert [(one.name, one.queues) for one in heartbeats.list_heartbeats()] == [
            ("replies@here", [queues.REPLIES])
        ]
    finally:
        made[0].stop()
