"""Fixtures: clients of /v1 and a model that plays scripts, in the test's database."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.files import reading
from chats.gateway.chat_completions import views
from chats.models import StoredFile
from chats.people import keys
from chats.providers import registry
from chats.providers.base import Finished, TextDelta
from chats.streams import connection
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from tests.chats.compaction.conftest import fold, set_policy, writer, writes
from tests.support.gateway_clients import USAGE, GatewayClient, MakeClient, SilentBus
from tests.support.gateway_passthrough import ScriptModel
from tests.support.scripted_worker import ScriptedProvider

__all__ = ["fold", "set_policy", "writer", "writes"]


@pytest.fixture(autouse=True)
def checked(built_again: None) -> None:
    """Rebuild the request of every call in these tests from rows."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an approximate token counter and no broker."""
    monkeypatch.setattr(views, "O200kCounter", ApproximateCounter)
    monkeypatch.setattr(connection.STREAMS, "hub", SilentBus)


@pytest.fixture
def make(sent: list[tuple[str, dict[str, str]]], demo_model: ModelSpec) -> MakeClient:
    """Create a client for a user."""

    def making(owner: User, *, scopes: tuple[str, ...] = ("gateway",)) -> GatewayClient:
        _, secret = keys.create_key(owner=owner, name="app", scopes=scopes, now=timezone.now())
        return GatewayClient(secret, sent)

    return making


@pytest.fixture
def program(make: MakeClient, alice: User) -> GatewayClient:
    """Alice's client."""
    return make(alice)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ScriptModel:
    """Set the script for model calls in the web process."""

    def scripted(*script: Any) -> ScriptedProvider:
        said = list(script or (TextDelta("It is "), TextDelta("secret."), USAGE, Finished("stop")))
        provider = ScriptedProvider([said])
        monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
        return provider

    return scripted


@pytest.fixture
def working(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files like a worker while a request waits for them."""

    def work() -> None:
        for row in StoredFile.objects.filter(state=StoredFile.State.PENDING):
            reading.read_uploaded_file(file_id=row.pk, counter=ApproximateCounter())

    monkeypatch.setattr(reading, "pause", work)
