"""Fixtures: API clients, one per user, each with a key for all scopes."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Chat, Compaction, Turn
from chats.people import keys, sessions
from chats.turns.start import start_turn
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.listed_refusals import listed_refusals
from tests.chats.api.programs import MakeProgram, Program
from tests.chats.compaction.conftest import (
    fold,
    long_chat,
    say,
    set_policy,
    small_policy,
    writer,
    writes,
)
from tests.support.chat_summaries import SetPolicy, reload_branch
from tests.support.team_endpoints import TeamEndpoints

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
    branch = reload_branch(long_chat)
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


@pytest.fixture
def with_summaries(now: datetime) -> None:
    """A policy under which users can correct summaries."""
    values = {"strategy": "dynamic_summary", "turn_threshold": None}
    made = create_policy(slug="p", name="P", values=values, actor="system", now=now)
    assign_policy(policy=made, level="instance", actor="system", now=now)


@pytest.fixture
def team(of_alice: Program, chat: Chat) -> "TeamEndpoints":
    """Alice's chat, accessed by her client."""
    return TeamEndpoints(of_alice, chat)
