"""Fixtures: a clock, and a webhook of Alice for a server that accepts every delivery."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.models import Webhook
from chats.record.outbox import EVENTS, NEEDED
from chats.webhooks import managing
from tests.fakes.receiver import Receiver
from tests.support.clocks import Clock

OWN = [name for name in EVENTS if name not in NEEDED]


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
