"""Programs that speak to the API: one per person, each with a key that may do everything."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats import keys, rates
from chats.models import Chat, Turn
from chats.turns.start import start
from tests.chats.api.programs import MakeProgram, Program


@pytest.fixture(autouse=True)
def full_buckets() -> None:
    """No test pays for the requests of another."""
    rates.REQUESTS.clear()
    rates.MESSAGES.clear()


@pytest.fixture
def program() -> MakeProgram:
    """Makes a program for a person, with a key of the given scopes."""

    def make(owner: User, *, scopes: tuple[str, ...] = keys.SCOPES) -> Program:
        now = timezone.now()
        _, secret = keys.create_key(owner=owner, name="a program", scopes=scopes, now=now)
        return Program(secret)

    return make


@pytest.fixture
def of_alice(program: MakeProgram, alice: User, demo_model: object) -> Program:
    """Alice's program."""
    return program(alice)


@pytest.fixture
def of_charlie(program: MakeProgram, charlie: User) -> Program:
    """Charlie's program."""
    return program(charlie)


@pytest.fixture
def turn(chat: Chat, alice: User, now: datetime) -> Turn:
    """The queued turn of Alice's first message."""
    return start(user=alice, chat=chat, text="Good morning", now=now).turn
