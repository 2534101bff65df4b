"""Heartbeats of workers and scheduler: the health check, and overdue entries of the schedule."""

import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery.signals import after_task_publish
from django.test import Client
from pytest_django import Settings
from redis import Redis

from chats import tasks  # noqa: F401  # registers the tasks, as a worker does
from chats.background import due_jobs, worker_signals
from chats.ground import broker_facts, heartbeats, queue, queues, schedule
from chats.ground.heartbeats import WorkerHeartbeat
from project.celery import app
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


def worker(ran: list[str]) -> WorkerHeartbeat:
    """Return a heartbeat of a worker for replies. It is not started."""

    def run(entry: str) -> None:
        ran.append(entry)
        heartbeats.note_run(entry)

    return WorkerHeartbeat("replies@host", taken=[queues.REPLIES], run=run)


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


def run_everything() -> None:
    """Note that this process has just run each entry."""
    for entry in schedule.PERIODS:
        heartbeats.note_run(entry)


def test_workers_run_overdue_entries_once_the_schedule_is_dead(
    broker: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    one, other = worker(ran), worker(ran)
    one.begun = other.begun = time.monotonic() - 600
    heartbeats.note_schedule()
    run_everything()
    one.beat()
    assert ran == []
    late(monkeypatch)
    one.beat()
    other.beat()
    # Each entry with a period of up to 46 s, once: the second worker sees the runs of the first.
    assert ran == [name for name, periods in schedule.PERIODS.items() if periods <= 4]


def test_workers_run_entries_that_no_worker_took(
    broker: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    one = worker(ran)
    one.begun -= 600
    run_everything()
    one.beat()
    late(monkeypatch)
    heartbeats.note_schedule()
    one.beat()
    # After three periods, because the schedule is alive.
    assert ran == [name for name, periods in schedule.PERIODS.items() if periods == 1]


def test_a_new_worker_waits_before_it_runs_entries(broker: Redis) -> None:
    ran: list[str] = []
    one = worker(ran)
    one.beat()
    assert ran == []
    one.begun -= 31
    one.beat()
    assert ran == [name for name, periods in schedule.PERIODS.items() if periods <= 3]


@pytest.mark.django_db
def test_the_schedule_and_its_entries_leave_their_marks(broker: Redis, settings: Settings) -> None:
    for entry in schedule.PERIODS:
        app.tasks[schedule.name_task(entry)]()
    worker([]).beat()
    assert broker.hgetall(heartbeats.RUNS).keys() == schedule.PERIODS.keys()
    after_task_publish.send(sender=queue.RUN_TURN)
    assert not Path(settings.SCHEDULE_FILE).exists()
    after_task_publish.send(sender=settings.CELERY_BEAT_SCHEDULE[schedule.HEARTBEAT]["task"])
    assert [one.name for one in heartbeats.list_heartbeats()] == ["replies@host", "schedule"]
    assert Path(settings.SCHEDULE_FILE).exists()


@pytest.mark.django_db
def test_the_task_of_the_previous_schedule_runs_every_due_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(
        due_jobs, "DUE_JOBS", {name: partial(note_job, ran, name) for name in schedule.PERIODS}
    )
    app.tasks["chats.sweep"]()
    assert ran == list(schedule.PERIODS)


def note_job(ran: list[str], name: str, _now: object) -> int:
    """Note a run of a due job, which handles nothing."""
    ran.append(name)
    return 0


def test_each_entry_of_the_schedule_has_a_due_job(settings: Settings) -> None:
    assert due_jobs.DUE_JOBS.keys() == settings.CELERY_BEAT_SCHEDULE.keys()
    fastest = min(schedule.PERIODS.values())
    assert schedule.PERIODS[schedule.HEARTBEAT] == fastest == 1
    router = app.amqp.Router()
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        assert router.route({}, entry["task"])["queue"].name == queues.REPLIES


def test_a_worker_that_is_ready_has_a_heartbeat(
    broker: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[WorkerHeartbeat] = []
    monkeypatch.setattr(worker_signals, "heartbeat", made)
    taken = SimpleNamespace(consume_from={queues.REPLIES: None})
    app = SimpleNamespace(amqp=SimpleNamespace(queues=taken))
    worker_signals.keep_heartbeat(sender=SimpleNamespace(app=app, hostname="replies@here"))
    try:
        give_up = time.monotonic() + 10
        while not heartbeats.list_heartbeats() and time.monotonic() < give_up:
            time.sleep(0.05)
        assert [(one.name, one.queues) for one in heartbeats.list_heartbeats()] == [
            ("replies@here", [queues.REPLIES])
        ]
    finally:
        made[0].stop()
