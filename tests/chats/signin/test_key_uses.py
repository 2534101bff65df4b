"""A use of a key that a busy database could not note is noted later, also in the audit log."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError, connections

from chats.models import ApiKey
from chats.people import key_uses, keys
from contextpolicy.models import AuditEvent

pytestmark = pytest.mark.django_db


class Thread:
    """A thread that never runs. The test calls its function."""

    def __init__(self, **_given: Any) -> None:
        pass

    def start(self) -> None:
        """Start nothing."""


def fail_as_busy(*_given: Any, **_named: Any) -> None:
    raise OperationalError("database is locked")


def test_the_only_use_of_a_day_is_not_lost_while_the_database_is_busy(
    alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    key, secret = keys.create_key(owner=alice, name="a", scopes=("chats:read",), now=now)
    unnoted = key_uses.UnnotedUses()
    monkeypatch.setattr(key_uses, "UNNOTED", unnoted)
    monkeypatch.setattr(threading, "Thread", Thread)

    with monkeypatch.context() as busy:
        busy.setattr(keys, "record_key_event", fail_as_busy)
        assert keys.authenticate_api_key(secret=secret, now=now) is not None
        unnoted.note_all()
    assert not AuditEvent.objects.filter(type="api_key.used").exists()
    assert list(unnoted.waiting) == [(key.pk, now.date())]
    unnoted.note_all()
    assert unnoted.waiting == {}
    assert AuditEvent.objects.filter(type="api_key.used").count() == 1
    assert ApiKey.objects.get(pk=key.pk).last_used_at == now
    # Nothing is wrong, so nothing is a warning.
    assert not [row for row in caplog.records if row.levelname == "WARNING"]


def test_a_use_is_given_up_with_a_warning(
    now: datetime, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    unnoted = key_uses.UnnotedUses()
    monkeypatch.setattr(threading, "Thread", Thread)
    monkeypatch.setattr(key_uses, "LONGEST", 0.0)
    key_id = ApiKey().pk
    unnoted.add(key_id, now.date(), lambda: False)
    unnoted.note_all()
    assert unnoted.waiting == {}
    assert f"the use of key {key_id} was not noted" in caplog.text


@pytest.mark.parametrize("is_busy_later", [False, True])
def test_a_use_before_midnight_is_recorded_as_well_as_one_of_the_next_day(
    is_busy_later: bool, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = keys.create_key(owner=alice, name="a", scopes=("chats:read",), now=now)
    unnoted = key_uses.UnnotedUses()
    monkeypatch.setattr(key_uses, "UNNOTED", unnoted)
    monkeypatch.setattr(threading, "Thread", Thread)
    late = now.replace(hour=23, minute=59, second=58)
    next_day = late + timedelta(seconds=5)

    with monkeypatch.context() as busy:
        busy.setattr(keys, "record_key_event", fail_as_busy)
        assert keys.authenticate_api_key(secret=secret, now=late) is not None
        if is_busy_later:
            assert keys.authenticate_api_key(secret=secret, now=next_day) is not None
    if not is_busy_later:
        assert keys.authenticate_api_key(secret=secret, now=next_day) is not None
    unnoted.note_all()
    assert unnoted.waiting == {}
    uses = AuditEvent.objects.filter(type="api_key.used", data__key=str(key.pk))
    assert sorted(row.at for row in uses) == [late, next_day]
    assert ApiKey.objects.get(pk=key.pk).last_used_at == next_day


def test_a_missed_use_of_a_day_with_another_use_is_recorded_once(
    alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = keys.create_key(owner=alice, name="a", scopes=("chats:read",), now=now)
    unnoted = key_uses.UnnotedUses()
    monkeypatch.setattr(key_uses, "UNNOTED", unnoted)
    monkeypatch.setattr(threading, "Thread", Thread)
    before = now - timedelta(minutes=3)

    with monkeypatch.context() as busy:
        busy.setattr(keys, "record_key_event", fail_as_busy)
        assert keys.authenticate_api_key(secret=secret, now=now) is not None
    # Another process notes its earlier use first.
    assert keys.authenticate_api_key(secret=secret, now=before) is not None
    unnoted.note_all()
    assert AuditEvent.objects.filter(type="api_key.used").count() == 1
    assert ApiKey.objects.get(pk=key.pk).last_used_at == now


def test_the_thread_continues_if_connections_cannot_be_closed(
    now: datetime, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def fail() -> None:
        raise InterfaceError("connection already closed")

    unnoted = key_uses.UnnotedUses()
    monkeypatch.setattr(threading, "Thread", Thread)
    monkeypatch.setattr(key_uses, "AGAIN", 0.0)
    monkeypatch.setattr(connections, "close_all", fail)
    attempts = iter((False, True))
    unnoted.add(ApiKey().pk, now.date(), lambda: next(attempts))
    unnoted.run()
    assert (unnoted.waiting, unnoted.thread) == ({}, None)
    assert "cannot be closed" in caplog.text
