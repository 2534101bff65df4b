"""Older databases are migrated, newer ones are refused, and a wrong key is reported."""

import io
from typing import Any

import pytest
from celery.signals import beat_init, worker_init
from cryptography.fernet import Fernet
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from pytest_django.fixtures import Settings

from chats.ground.secrets import encrypt
from chats.models import ProviderAccount
from project import probes
from project.celery import stop_on_newer_database

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def with_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report a broker without faults."""
    monkeypatch.setattr(probes, "get_broker_eviction", lambda: probes.KEEPS_ALL)
    monkeypatch.setattr(probes, "list_broker_warnings", list)


@pytest.fixture
def newer(db: None) -> None:
    """Mark the database as migrated by a later version."""
    MigrationRecorder(connection).record_applied("chats", "9999_later")


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize(
    ("command", "options"), [("setup", {}), ("migrate", {"verbosity": 0}), ("web", {"port": 0})]
)
def test_a_newer_database_is_refused(command: str, options: dict[str, Any]) -> None:
    with pytest.raises((CommandError, SystemExit), match=r"chats\.9999_later"):
        call_command(command, stdout=io.StringIO(), skip_checks=False, **options)


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("begins", [worker_init, beat_init])
def test_workers_and_the_schedule_refuse_a_newer_database(begins: Any) -> None:
    with pytest.raises(SystemExit, match=r"chats\.9999_later"):
        begins.send(sender=None)


def test_a_worker_starts_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("project.versions.refuse_newer_database", away)
    stop_on_newer_database()


@pytest.mark.usefixtures("newer")
def test_a_newer_database_is_not_ready(client: Client) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["faults"]) == (
        503,
        {"database": probes.NEWER_DATABASE},
    )


def test_the_checks_of_migrate_read_only_what_every_version_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("project.checks.count_table_triggers", lambda *_: 0)
    ProviderAccount.objects.create(slug="near", name="Near", base_url="http://10.1.2.3/v1")
    table = ProviderAccount._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} DROP COLUMN warm_up")
    MigrationRecorder(connection).record_unapplied("contextpolicy", "0002_ledger_triggers")
    ids = [message.id for message in run_checks(databases=["default"], tags=["database"])]
    assert "palimpsest.E008" in ids
    assert "palimpsest.E006" not in ids


def test_missing_triggers_of_a_present_database_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("project.checks.count_table_triggers", lambda *_: 0)
    ids = [message.id for message in run_checks(databases=["default"], tags=["database"])]
    assert "palimpsest.E006" in ids


def test_the_wrong_encryption_key_degrades_readiness(client: Client, settings: Settings) -> None:
    ProviderAccount.objects.create(
        slug="far", name="Far", base_url="https://x.example/v1", encrypted_key=encrypt("sk-1")
    )
    assert probes.UNREADABLE not in client.get("/readyz").json()["warnings"]
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "degraded"
    assert probes.UNREADABLE in answer.json()["warnings"]
