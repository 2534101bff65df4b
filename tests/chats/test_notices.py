"""Notices: a committed ledger event of a chat is pushed to the open pages of its owner."""

import threading
import uuid
from datetime import datetime
from typing import Any

import pytest
from django.db import transaction
from redis.exceptions import ConnectionError as BusGone

from chats.ground import live
from chats.models import Chat
from chats.record import notices
from contextpolicy import ledger
from contextpolicy.models import AuditEvent

Committing = Any


class Bus:
    """A client that records the sent messages."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str]] = []
        self.is_away = False
        self.asked = 0

    def pipeline(self, *, transaction: bool) -> "Bus":
        return self

    def xadd(self, key: str, fields: dict[str, Any], *, maxlen: int) -> None:
        self.last = (key, fields["k"], fields["t"])

    def expire(self, key: str, seconds: int) -> None:
        """Do nothing: the fake never expires keys."""

    def execute(self) -> None:
        self.asked += 1
        if self.is_away:
            raise BusGone
        self.sent.append(self.last)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Bus:
    found = Bus()
    monkeypatch.setattr(notices, "get_notice_client", lambda: found)
    monkeypatch.setattr(notices, "NOTIFIER", notices.Notifier())
    return found


def record(chat: Chat, now: datetime) -> None:
    ledger.record_event("message.pinned", actor="system", now=now, chat_id=chat.pk)


def test_an_event_is_told_after_its_commit_to_the_owner(
    bus: Bus, chat: Chat, now: datetime, django_capture_on_commit_callbacks: Committing
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        record(chat, now)
        assert bus.sent == []
    notices.NOTIFIER.waiting.join()
    assert bus.sent == [(live.build_person_key(chat.owner_id), "changed", str(chat.pk))]


def test_what_is_rolled_back_is_not_told(
    bus: Bus, chat: Chat, now: datetime, django_capture_on_commit_callbacks: Committing
) -> None:
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        record(chat, now)
        transaction.set_rollback(True)
    notices.NOTIFIER.waiting.join()
    assert bus.sent == []


def test_an_event_of_the_instance_is_nobody_s_news(
    bus: Bus, now: datetime, db: None, django_capture_on_commit_callbacks: Committing
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        ledger.record_event("policy.created", actor="system", now=now)
    assert AuditEvent.objects.filter(type="policy.created").exists()
    assert bus.sent == []


def test_a_bus_that_is_away_is_left_alone_for_a_while(
    bus: Bus,
    chat: Chat,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Committing,
) -> None:
    bus.is_away = True
    for _ in range(3):
        with django_capture_on_commit_callbacks(execute=True):
            record(chat, now)
        notices.NOTIFIER.waiting.join()
    assert bus.asked == 1
    bus.is_away = False
    monkeypatch.setattr(notices.NOTIFIER, "rests_until", 0.0)
    with django_capture_on_commit_callbacks(execute=True):
        record(chat, now)
    notices.NOTIFIER.waiting.join()
    assert len(bus.sent) == 1


def test_a_chat_that_is_gone_has_no_owner_to_tell(bus: Bus, db: None) -> None:
    notices.NOTIFIER.tell(uuid.uuid4())
    assert bus.sent == []


def test_a_bus_that_hangs_holds_up_nobody(
    bus: Bus,
    chat: Chat,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Committing,
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(bus, "expire", lambda key, seconds: goes_on.wait(10))
    with django_capture_on_commit_callbacks(execute=True):
        for _ in range(notices.MOST_WAITING + 10):
            notices.NOTIFIER.tell(chat.pk)
    assert bus.sent == []
    goes_on.set()
    notices.NOTIFIER.waiting.join()
    assert notices.MOST_WAITING <= len(bus.sent) <= notices.MOST_WAITING + 1
