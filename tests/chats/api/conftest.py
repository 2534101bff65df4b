"""Fixtures: API clients, one per user, each with a key for all scopes."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Chat, Compaction, Turn
from chats.people import keys, sessions
from chats.turns.start import start_turn
from tests.chats.api.listed_refusals import listed_refusals
from tests.chats.api.programs import MakeProgram, Program
from tests.chats.compaction.conftest import (
    SetPolicy,
    branch_of,
    fold,
    long_chat,
    say,
    set_policy,
    small_policy,
    writer,
    writes,
)

# The long chats come from the fixtures of the compaction tests.
__all__ = [
    "fold",
    "listed_refusals",
    "long_chat",
    "say",
    "set_policy",
    "small_policy",
    "writer",
    "writes",
]


@pytest.fixture
def program() -> MakeProgram:
    """Create a client for a user, with a key of the given scopes."""

    def make(owner: User, *, scopes: tuple[str, ...] = keys.SCOPES) -> Program:
        now = timezone.now()
        _, secret = keys.create_key(owner=owner, name="a program", scopes=scopes, now=now)
        return Program(secret)

    return make


@pytest.fixture
def of_alice(program: MakeProgram, alice: User, demo_model: object) -> Program:
    """Alice's client."""
    return program(alice)


@pytest.fixture
def of_charlie(program: MakeProgram, charlie: User) -> Program:
    """Charlie's client."""
    return program(charlie)


@pytest.fixture
def turn(chat: Chat, alice: User, now: datetime) -> Turn:
    """The queued turn of Alice's first message."""
    return start_turn(user=alice, chat=chat, text="Good morning", now=now).turn


@pytest.fixture
def roomy(long_chat: Chat, set_policy: SetPolicy) -> Chat:
    """A long chat that fits the prompt without a summary, and has no active one."""
    set_policy(token_budget=9000, reserve_tokens=1000)
    branch = branch_of(long_chat)
    branch.active_compaction = None
    branch.save()
    Compaction.objects.all().delete()
    return long_chat


@pytest.fixture
def browser(alice: User) -> Program:
    """The browser of Alice, with a recent sign-in."""
    program = Program("")
    program.client.force_login(alice)
    session = program.client.session
    sessions.begin_session(session=session, now=timezone.now())
    session.save()
    return program
