"""On a full disk writes are refused with a reason, and reads work."""

import errno
import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client, RequestFactory
from django.utils import timezone

from chats.ground import databases
from chats.models import ApiKey
from chats.people import keys
from chats.web.errors import server_error
from contextpolicy.models import AuditEvent
from tests.faults.programs import apart, python
from tests.support.repository import ROOT


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the full-disk state that another test may have recorded."""
    monkeypatch.setattr(databases._LastFailures, "full_at", float("-inf"))  # of the process


def test_writing_is_refused_and_reading_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(  # our own command, no shell
        python("-m", "benchmarks.full_disk"),
        cwd=ROOT,
        env=apart(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.django_db
@pytest.mark.parametrize(
    "error", [OperationalError("database or disk is full"), OperationalError("database is locked")]
)
def test_a_key_opens_although_its_use_cannot_be_noted(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = User.objects.create_user("alice")
    _, secret = keys.create_key(owner=alice, name="k", scopes=["chats:read"], now=timezone.now())
    usual = keys.write_use

    def fails(*_given: Any, **_named: Any) -> None:
        raise error

    monkeypatch.setattr(keys, "write_use", fails)
    program = Client(headers={"Authorization": f"Bearer {secret}"})
    assert program.get("/api/v1/chats").status_code == 200
    assert ApiKey.objects.get().last_used_at is None
    monkeypatch.setattr(keys, "write_use", usual)
    assert program.get("/api/v1/chats").status_code == 200
    assert ApiKey.objects.get().last_used_at is not None
    assert AuditEvent.objects.filter(type="api_key.used").count() == 1


class OfServer(Exception):
    """An error as raised by PostgreSQL's client."""

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def of_server(text: str, sqlstate: str | None = None) -> OperationalError:
    """Django's error for an error of PostgreSQL's client."""
    error = OperationalError(text)
    error.__cause__ = OfServer(text, sqlstate)
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OperationalError("database or disk is full"), "storage_full"),
        (of_server("could not extend file", "53100"), "storage_full"),
        (of_server("could not write: No space left on device", "58030"), "storage_full"),
        (OSError(errno.ENOSPC, "No space left on device"), "storage_full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "storage_full"),
        (OperationalError("disk I/O error"), "database_busy"),
        (OperationalError("database is locked"), "database_busy"),
        (of_server("canceling statement due to lock timeout", "55P03"), "database_busy"),
    ],
)
def test_a_full_disk_is_told_from_a_busy_database(error: Exception, code: str) -> None:
    assert databases.build_database_refusal(error).code == code


def test_a_disk_error_on_a_full_disk_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "has_room", lambda: False)
    for text in ("disk I/O error", "unable to open database file"):
        assert databases.build_database_refusal(OperationalError(text)).code == "storage_full"


def test_a_file_that_finds_no_room_is_refused_with_the_reason() -> None:
    request = RequestFactory().post("/settings/exchange/import")
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError:
        answer = server_error(request)
    assert answer.status_code == 507
    assert b"disk" in answer.content


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            'connection failed: connection to server at "db", port 5432: Connection refused',
            "refused",
        ),
        (
            'could not translate host name "db" to address: Name or service not known',
            "host_unknown",
        ),
        ('password authentication failed for user "app"', "login_rejected"),
        ('database "x" does not exist', "database_missing"),
        ("unsupported startup parameter: options", "parameter_rejected"),
        ("sorry, too many clients already", "connections_used_up"),
        ("connection timeout expired", "no_answer"),
        ("bad value for connect_timeout: 'soon'", "option_invalid"),
        ('invalid sslmode value: "on"', "option_invalid"),
        ('invalid integer value "soon" for connection option "keepalives"', "option_invalid"),
        ("FATAL: invalid command-line argument for server process: --x", "option_invalid"),
        ('FATAL: unrecognized configuration parameter "x"', "option_invalid"),
        ('FATAL: Peer authentication failed for user "app"', "login_rejected"),
        ('FATAL: permission denied for database "x"', "not_permitted"),
        ("FATAL: no such database: x", "database_missing"),
        ('connection is bad: definition of service "x" not found', "option_invalid"),
        ('connection is bad: could not parse network address "1.2.3.4.5": x', "option_invalid"),
        ('invalid "ssl_min_protocol_version" value: "x"', "option_invalid"),
        ("connection is bad: invalid SCRAM client key", "option_invalid"),
        ('invalid port number: "0"', "option_invalid"),
        ("connection failed: server is not in hot standby mode", "requirement_unmet"),
        ("connection failed: session is read-only", "requirement_unmet"),
        ('authentication method requirement "scram-sha-256" failed', "requirement_unmet"),
        ("connection failed: channel binding required, but server", "requirement_unmet"),
        ("GSSAPI encryption required but no credential cache", "requirement_unmet"),
        ('requirepeer specifies "x", but actual peer user name is "y"', "requirement_unmet"),
        ("connection failed: FATAL: a reason of a newer server", "other"),
    ],
)
def test_a_database_that_cannot_be_reached_is_told_with_the_cause(text: str, cause: str) -> None:
    refusal = databases.build_database_refusal(OperationalError(text))
    assert (refusal.status, refusal.code) == (503, "database_busy")
    assert isinstance(refusal, databases.DatabaseUnreachable)
    assert databases.CAUSES[cause] in refusal.sentence


def test_the_cause_of_a_pool_that_waited_in_vain_is_that_of_its_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = OperationalError("couldn't get a connection after 5.00 sec")
    monkeypatch.setattr(databases._LastFailures, "unreachable", (float("-inf"), ""))  # as above
    assert type(databases.build_database_refusal(waited)) is databases.DatabaseBusy
    line = "error connecting in 'pool-1': connection failed: Connection refused"
    logging.getLogger("psycopg.pool").warning(line)
    assert "refused" in databases.build_database_refusal(waited).sentence
