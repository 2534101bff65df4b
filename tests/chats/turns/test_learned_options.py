"""The options that a server refused are known to every process, until it expires."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Chat, ProviderAccount
from chats.prompt.model_choice import get_model_account
from chats.providers import learned_options, stored_options
from chats.providers.accounts import save_provider_account
from chats.turns.start import start_turn
from contextpolicy.models import ModelSpec
from tests.fakes.calls import asked, collect
from tests.fakes.fake_server import FakeServer
from tests.support.scripted_worker import ScriptedProvider
from tests.support.wire_worker import WireWorker

pytestmark = [pytest.mark.processes, pytest.mark.django_db]


@pytest.fixture
def server(demo_model: ModelSpec, settings: Any) -> Iterator[FakeServer]:
    """A local server that serves the chat's model."""
    del demo_model
    with FakeServer() as fake:
        settings.ALLOWED_PRIVATE_PROVIDERS = [fake.host]
        ProviderAccount.objects.update(kind="openai", base_url=fake.base_url)
        ModelSpec.objects.update(name="fake-chat", supports_tools=True)
        fake.configure(tokens=3)
        yield fake


def ask(chat: Chat, user: User, server: FakeServer) -> list[dict[str, Any]]:
    """Let a new process answer a message, and return the bodies of its requests."""
    server.forget_requests()
    turn = start_turn(user=user, chat=chat, text="Hello", now=timezone.now()).turn
    async_to_sync(WireWorker(ScriptedProvider([])).whole_turn)(turn)
    turn.refresh_from_db()
    assert turn.status == "completed", turn.error_sentence
    return [record["body"] for record in server.requests()]


def learned() -> dict[str, Any]:
    found: dict[str, Any] = ModelSpec.objects.get(name="fake-chat").learned_options
    return found


@pytest.mark.parametrize("option", ["max_tokens", "stream_options"])
def test_another_process_sends_only_accepted_options(
    chat: Chat, alice: User, server: FakeServer, option: str
) -> None:
    server.configure(reject=option, tokens=3)
    first = ask(chat, alice, server)
    assert [option in body for body in first] == [True, False]
    second = ask(chat, alice, server)
    assert [option in body for body in second] == [False]


def test_a_turn_stores_what_another_call_of_its_process_learned(
    chat: Chat, alice: User, server: FakeServer
) -> None:
    server.configure(reject="stream_options", tokens=3)
    turn = start_turn(user=alice, chat=chat, text="Hello", now=timezone.now()).turn
    account = get_model_account(ModelSpec.objects.get(name="fake-chat"))

    async def run() -> None:
        worker = WireWorker(ScriptedProvider([]))
        # As a pass-through request.
        await collect(worker.provider(account), asked("Hi"))
        await worker.whole_turn(turn)

    async_to_sync(run)()
    sent = ["stream_options" in record["body"] for record in server.requests()]
    assert sent == [True, False, False]
    assert learned()["takes_usage_option"] is False


def test_an_expired_option_is_tried_again(chat: Chat, alice: User, server: FakeServer) -> None:
    server.configure(reject="stream_options", tokens=3)
    ask(chat, alice, server)
    old = timezone.now() - learned_options.EXPIRES - timedelta(hours=1)
    ModelSpec.objects.update(learned_options={**learned(), "learned_at": old.isoformat()})
    # The server was upgraded.
    server.configure(reject="", tokens=3)
    assert ["stream_options" in body for body in ask(chat, alice, server)] == [True]


def test_a_request_that_stays_refused_teaches_nothing(
    chat: Chat, alice: User, server: FakeServer
) -> None:
    server.configure(reject="messages", tokens=3)
    turn = start_turn(user=alice, chat=chat, text="stream_options", now=timezone.now()).turn
    async_to_sync(WireWorker(ScriptedProvider([])).whole_turn)(turn)
    turn.refresh_from_db()
    assert turn.status == "failed"
    assert learned() == {}


def test_another_address_forgets_what_was_learned(
    chat: Chat, alice: User, server: FakeServer, now: datetime
) -> None:
    server.configure(reject="stream_options", tokens=3)
    ask(chat, alice, server)
    assert learned()["takes_usage_option"] is False
    account = ProviderAccount.objects.get()
    values = {"base_url": "https://models.example/v1"}
    save_provider_account(account=account, values=values, api_key="", actor="system", now=now)
    assert learned() == {}


@pytest.mark.parametrize(
    ("stored", "valid"),
    [
        ({"limit_name": "max_completion_tokens"}, {"limit_name": "max_completion_tokens"}),
        ({"limit_name": "temperature"}, {}),
        ({"most_output": 8192}, {"most_output": 8192}),
        ({"most_output": 1}, {}),
        ({"id_form": "nine", "fills": ["replies", "other"]}, {"id_form": "nine"}),
        ({"model": "gpt"}, {}),
    ],
)
def test_only_known_values_are_used(
    stored: dict[str, Any], valid: dict[str, Any], now: datetime
) -> None:
    values = {**stored, "learned_at": now.isoformat()}
    fills = tuple(fill for fill in stored.get("fills", ()) if fill == "replies")
    assert learned_options.select_valid_options(values, now=now) == {
        **valid,
        "fills": fills,
        "without": frozenset(),
    }


def test_only_known_hints_are_stored_as_refused(demo_model: ModelSpec, now: datetime) -> None:
    refused = {"without": frozenset({"prompt_cache_key", "channel"})}
    stored_options.store_learned_options(model_id=demo_model.pk, options=refused, now=now)
    demo_model.refresh_from_db()
    assert demo_model.learned_options["without"] == ["prompt_cache_key"]
    found = learned_options.select_valid_options(demo_model.learned_options, now=now)
    assert found["without"] == frozenset({"prompt_cache_key"})
