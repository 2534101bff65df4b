"""Parallel pass-through requests of a key count each other."""

import threading

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from django.utils import timezone
from pytest_django import Settings

from chats.models import PassedOn
from chats.people import keys
from chats.record.passthrough_requests import TooManyPassthroughRequests, start_passthrough
from contextpolicy.models import ModelSpec
from tests.faults.programs import until


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="its test database has one connection")
def test_the_last_place_of_a_key_is_given_once(
    transactional_ledger: None, alice: User, demo_model: ModelSpec, settings: Settings
) -> None:
    settings.GATEWAY_TURNS_PER_KEY = 1
    now = timezone.now()
    key, _ = keys.create_key(owner=alice, name="app", scopes=("gateway",), now=now)
    codes: list[str] = []

    def ask() -> None:
        try:
            start_passthrough(key=key, model=demo_model, kind="chat", why="key", now=now)
        except TooManyPassthroughRequests as refusal:
            codes.append(refusal.code)
        finally:
            connections.close_all()

    thread = threading.Thread(target=ask)
    with transaction.atomic():
        start_passthrough(key=key, model=demo_model, kind="chat", why="key", now=now)
        thread.start()
        until(is_waited_for, what="the second request")
    thread.join(20)

    assert codes == ["too_many_passed_on"]
    assert PassedOn.objects.count() == 1


def is_waited_for() -> bool:
    """Return True if a connection waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])
