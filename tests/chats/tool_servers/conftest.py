"""Fixtures: a tool server with approved tools, and a policy that allows them."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings

from chats.models import Chat, Turn
from chats.prompt.tokenizer import O200kCounter
from chats.tool_servers.servers import read_definitions, request_reading, save_tool_server
from chats.turns.start import start_turn
from contextpolicy import ledger
from contextpolicy.models import ModelSpec, ToolDefinition, ToolServer
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.tool_servers import approve_definition
from tests.fakes.tool_server import FakeToolServer, serving_tools


@pytest.fixture(autouse=True)
def ledger_holds(db: None) -> Iterator[None]:
    """After the test, the audit log has an entry for each model call, and it matches."""
    del db
    yield
    assert [found.reason for found in ledger.find_ledger_breaks()] == []


@pytest.fixture
def server(settings: Settings) -> Iterator[FakeToolServer]:
    """A server that this instance may call."""
    with serving_tools() as fake:
        settings.ALLOWED_PRIVATE_PROVIDERS = [fake.host]
        yield fake


@pytest.fixture
def connect(server: FakeToolServer, db: None) -> Callable[..., ToolServer]:
    """Connect the server, read its definitions, and approve them if asked."""
    del db

    def connecting(*, approves: bool = True, asks: bool = False) -> ToolServer:
        now = timezone.now()
        row = ToolServer.objects.filter(slug="files").first()
        if row is None:
            values = {"slug": "files", "name": "Files", "transport": "http", "url": server.url}
            row = save_tool_server(
                server=ToolServer(),
                values=values,
                credential="secret-of-server",
                actor="system",
                now=now,
            )
        request_reading(row, now=now)
        read_definitions(server_id=row.pk, counter=O200kCounter(), now=now)
        for tool in ToolDefinition.objects.all() if approves else ():
            approve_definition(tool, digest=tool.digest, actor="system", now=now)
        ToolDefinition.objects.update(asks=asks)
        row.refresh_from_db()
        return row

    return connecting


@pytest.fixture
def allow(now: datetime, demo_model: ModelSpec) -> Callable[..., None]:
    """Assign a policy to the installation with these fields."""
    del demo_model
    ModelSpec.objects.update(supports_tools=True)

    def allowing(**values: Any) -> None:
        policy = create_policy(slug="p", name="P", values=values, actor="system", now=now)
        assign_policy(policy=policy, level="instance", actor="system", now=now)

    return allowing


@pytest.fixture
def ask(
    alice: User, chat: Chat, now: datetime, work: Callable[..., Any]
) -> Callable[..., tuple[Turn, Any]]:
    """Run a turn in which the model plays the given scripts."""

    def asking(*scripts: list[Any], text: str = "Do it") -> tuple[Turn, Any]:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        return turn, work(turn, *scripts)

    return asking
