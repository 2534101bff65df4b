"""Programs that speak to the API: one per person, each with a key that may do everything."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Chat, Compaction, Turn
from chats.people import keys, sessions
from chats.turns.start import start
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

# The chats that are long enough to fold are those of the domain's own tests.
__all__ = ["fold", "long_chat", "say", "set_policy", "small_policy", "writer", "writes"]


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


@pytest.fixture
def roomy(long_chat: Chat, set_policy: SetPolicy) -> Chat:
    """A long chat whose originals fit the prompt as well as their summary, with none in force."""
    set_policy(token_budget=9000, reserve_tokens=1000)
    branch = branch_of(long_chat)
    branch.active_compaction = None
    branch.save()
    Compaction.objects.all().delete()
    return long_chat


@pytest.fixture
def browser(alice: User) -> Program:
    """Alice, just signed in."""
    program = Program("")
    program.client.force_login(alice)
    session = program.client.session
    sessions.begin_session(session=session, now=timezone.now())
    session.save()
    return program
