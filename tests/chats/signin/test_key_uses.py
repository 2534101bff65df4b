"""A use of a key that a busy database could not note is noted later, also in the audit log."""

import threading
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError

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


def test_the_only_use_of_a_day_is_not_lost_while_the_database_is_busy(
    alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    key, secret = keys.create_key(owner=alice, name="a", scopes=("chats:read",), now=now)
    unnoted = key_uses.UnnotedUses()
    monkeypatch.setattr(key_uses, "UNNOTED", unnoted)
    monkeypatch.setattr(threading, "Thread", Thread)

    def fail(*_given: Any, **_named: Any) -> None:
        raise OperationalError("database is locked")

    with monkeypatch.context() as busy:
        busy.setattr(keys, "record_key_event", fail)
        assert keys.authenticate_api_key(secret=secret, now=now) is not None
        unnoted.note_all()
    assert not AuditEvent.objects.filter(type="api_key.used").exists()
    assert list(unnoted.waiting) == [key.pk]
    unnoted.note_all()
    assert unnoted.waiting == {}
    assert AuditEvent.objects.filter(type="api_key.used").count() == 1
    assert ApiKey.objects.get(pk=key.pk).last_used_at == now
    # Nothing is wrong, so nothing is a warning.
    assert not [row for row in caplog.records if row.levelname == "WARNING"]


def test_a_use_is_given_up_with_a_warning(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    unnoted = key_uses.UnnotedUses()
    monkeypatch.setattr(threading, "Thread", Thread)
    monkeypatch.setattr(key_uses, "LONGEST", 0.0)
    key_id = ApiKey().pk
    unnoted.add(key_id, lambda: False)
    unnoted.note_all()
    assert unnoted.waiting == {}
    assert f"the use of key {key_id} was not noted" in caplog.text
