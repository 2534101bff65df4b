"""`manage.py doctor` names each broken part, says what to do, and exits with a code."""

import io
import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone
from pytest_django import Settings

from chats.ground import broker_facts, heartbeats, queues
from chats.ground.secrets import encrypt
from chats.models import ProviderAccount
from project.operations import doctor, file_members
from tests.fakes.fake_server import FakeServer
from tests.faults.harness import new_folder
from tests.faults.stores import Broker

pytestmark = pytest.mark.django_db


def examine(*options: str) -> tuple[dict[str, list[dict[str, str]]], int]:
    """The findings by part, and the exit code."""
    out = io.StringIO()
    code = 0
    try:
        call_command("doctor", "--json", *options, stdout=out)
    except SystemExit as end:
        code = int(str(end.code))
    found: dict[str, list[dict[str, str]]] = {}
    for line in out.getvalue().splitlines():
        one = json.loads(line)
        assert bool(one["remedy"]) == (one["level"] != doctor.OK), one
        found.setdefault(one["part"], []).append(one)
    return found, code


def levels(found: dict[str, list[dict[str, str]]], part: str) -> set[str]:
    """The levels of one part."""
    return {one["level"] for one in found[part]}


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
def healthy(running: Broker, settings: Settings, tmp_path: Path) -> Broker:
    """An installation whose processes are alive."""
    settings.REDIS_URL = running.url
    settings.DATA_DIR = tmp_path
    settings.SCHEDULE_FILE = str(tmp_path / "schedule")
    running.flush()
    heartbeats.store_heartbeat("replies@host", taken=[queues.REPLIES])
    heartbeats.store_heartbeat("background@host", taken=queues.BACKGROUND)
    heartbeats.note_schedule()
    return running


@pytest.mark.processes
@pytest.mark.usefixtures("healthy")
def test_a_healthy_installation_has_no_finding() -> None:
    found, code = examine("--strict")
    assert {part: levels(found, part) for part in found} == {part: {"ok"} for part in doctor.CHECKS}
    assert code == 0


@pytest.mark.processes
def test_dead_processes_are_named(healthy: Broker, settings: Settings) -> None:
    with broker_facts.connect_to_broker(healthy.url) as client:
        client.hdel(heartbeats.KEY, "replies@host", heartbeats.SCHEDULE)
    found, code = examine()
    assert (levels(found, "workers"), levels(found, "schedule")) == ({"ok", "failure"}, {"warning"})
    assert "replies" in found["workers"][-1]["text"]
    assert code == 1
    heartbeats.store_heartbeat("replies@host", taken=[queues.REPLIES])
    assert examine()[1] == 0
    assert examine("--strict")[1] == 2


def test_without_a_broker_its_parts_are_unknown() -> None:
    found, code = examine("--offline")
    assert levels(found, "broker") == {"failure"}
    assert {part for part in found if "unknown" in found[part][0]["text"]} == {
        "workers",
        "schedule",
        "clock",
    }
    assert "provider" not in found
    assert code == 1


def test_a_database_of_another_version() -> None:
    MigrationRecorder(connection).record_applied("chats", "9999_later")
    assert levels(examine()[0], "database") == {"failure"}
    MigrationRecorder(connection).record_unapplied("chats", "9999_later")
    (newest,) = MigrationLoader(connection).graph.leaf_nodes("chats")
    MigrationRecorder(connection).record_unapplied(*newest)
    (database,) = examine()[0]["database"]
    assert database["remedy"] == doctor.MIGRATE


@pytest.mark.processes
def test_clocks_that_differ(healthy: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    del healthy
    usual = doctor.time.time  # type: ignore[attr-defined]  # the module that it reads the clock of
    monkeypatch.setattr("project.operations.doctor.time.time", lambda: usual() + 60)
    clocks = examine()[0]["clock"]
    assert {one["level"] for one in clocks} == {"warning"}
    assert all("-60.0 s" in one["text"] for one in clocks)


def test_keys_that_do_not_fit_or_can_be_read_by_others(settings: Settings, tmp_path: Path) -> None:
    ProviderAccount.objects.create(slug="near", name="Near", encrypted_key=encrypt("sk-1"))
    assert levels(examine("--offline")[0], "keys") == {"ok"}
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    assert levels(examine("--offline")[0], "keys") == {"failure"}
    settings.DATA_DIR = tmp_path
    (tmp_path / "secret_key").write_text("s")
    (tmp_path / "secret_key").chmod(0o644)
    first, *_ = examine("--offline")[0]["keys"]
    assert first["remedy"] == f"Run chmod 600 {tmp_path / 'secret_key'}."


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, level in ((10_000, "failure"), (50_000_000, "warning")):
        usage = type("Usage", (), {"free": free})()
        monkeypatch.setattr("project.operations.doctor.shutil.disk_usage", lambda _, u=usage: u)
        assert levels(examine("--offline")[0], "disk") == {level}


def test_data_that_a_failed_restore_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(file_members, "get_files_folder", lambda: tmp_path / "files")
    found, _ = examine("--offline")
    assert levels(found, "restores") == {doctor.OK}
    (tmp_path / "files.before-restore.2").mkdir()
    found, _ = examine("--offline")
    (one,) = found["restores"]
    assert one["level"] == doctor.WARNING
    assert "files.before-restore.2" in one["text"]


def test_data_that_an_interrupted_restore_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    settings.DATA_DIR = tmp_path
    (tmp_path / "files").mkdir()
    monkeypatch.setattr(file_members, "get_files_folder", lambda: tmp_path / "files")
    # Next to the folder, within it if it is a mount point, and a key.
    (tmp_path / "files.restoring").mkdir()
    (tmp_path / "files" / "files.restoring").mkdir()
    (tmp_path / "secret_key.restoring").touch()
    (one,) = examine("--offline")[0]["restores"]
    assert one["level"] == doctor.WARNING
    for name in ("files.restoring", "files/files.restoring", "secret_key.restoring"):
        assert str(tmp_path / name) in one["text"]


def test_model_servers(settings: Settings) -> None:
    with FakeServer() as server:
        settings.ALLOWED_PRIVATE_PROVIDERS = [server.base_url.split("/")[2]]
        ProviderAccount.objects.create(slug="near", name="Near", base_url=server.base_url)
        (near,) = examine()[0]["provider"]
        assert (near["level"], near["text"][:5]) == ("ok", "near:")
        settings.ALLOWED_PRIVATE_PROVIDERS = []
        assert levels(examine()[0], "provider") == {"failure"}
        settings.ALLOWED_PRIVATE_PROVIDERS = [server.base_url.split("/")[2]]
    # It has ended.
    assert levels(examine()[0], "provider") == {"warning"}
    ProviderAccount.objects.update(
        paused_until=timezone.now() + timedelta(seconds=60), paused_reason="refused key"
    )
    (near,) = examine()[0]["provider"]
    assert (near["level"], near["text"]) == ("failure", "near: paused, refused key")
