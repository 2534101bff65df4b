"""Fixtures: a clock, and a webhook of Alice for a server that accepts every delivery."""

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User

from chats.models import Webhook
from chats.record.outbox import EVENTS, NEEDED
from chats.webhooks import managing
from tests.fakes.receiver import Receiver

OWN = [name for name in EVENTS if name not in NEEDED]


class Clock:
    """A clock that tests set."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def wait(self, **duration: float) -> datetime:
        """Advance the clock."""
        self.now += timedelta(**duration)
        return self.now


@pytest.fixture
def clock(now: datetime) -> Clock:
    """A clock set to noon."""
    return Clock(now)


@pytest.fixture
def made(alice: User, receiver: Receiver, now: datetime) -> tuple[Webhook, str]:
    """Alice's webhook for all events of her chats, and its secret."""
    return managing.create_webhook(owner=alice, url=receiver.url, events=OWN, now=now)


@pytest.fixture
def webhook(made: tuple[Webhook, str]) -> Webhook:
    """Alice's webhook."""
    return made[0]
