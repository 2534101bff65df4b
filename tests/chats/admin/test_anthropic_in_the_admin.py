"""Servers with Anthropic's API in the administration: account, models, thinking, breakpoints."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from chats.actions.lifecycle import create_chat
from chats.models import Chat, ProviderAccount, Receipt
from chats.providers import accounts, kinds
from chats.turns.start import start_turn
from contextpolicy.models import ContextPolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.roles import POLICY_ADMIN
from tests.contextpolicy.pages import opened, submitted
from tests.contextpolicy.people import person, signed_in
from tests.fakes.fake_server import FakeServer
from tests.support.provider_pages import ADD_PROVIDER, PROVIDER_LIST, get_provider_page
from tests.support.scripted_worker import ScriptedProvider
from tests.support.wire_worker import WireWorker

pytestmark = pytest.mark.django_db
POLICIES = "/admin/contextpolicy/contextpolicy/add/"


@pytest.fixture(scope="module")
def running() -> Iterator[FakeServer]:
    with FakeServer(kind="anthropic") as server:
        yield server


@pytest.fixture
def server(running: FakeServer, settings: Settings) -> FakeServer:
    """A server with Anthropic's API, allowed in the settings."""
    settings.ALLOWED_PRIVATE_PROVIDERS = [running.host]
    running.configure(models=[{"id": "claude-fake", "max_input_tokens": 200_000}])
    running.forget_requests()
    return running


def made(operator: Client, **values: str) -> Any:
    """Return the response to the form of a new account."""
    given = {"name": "Claude", "slug": "claude", "kind": "anthropic", "enabled": "on"}
    return submitted(operator, ADD_PROVIDER, **given, **values)


def ask(user: User, chat: Chat, text: str, now: datetime) -> None:
    """Send a message and get its reply over HTTP."""
    turn = start_turn(user=user, chat=chat, text=text, now=now).turn
    async_to_sync(WireWorker(ScriptedProvider([])).whole_turn)(turn)


@pytest.mark.requirement("S0.6", by="admin")
def test_administrators_connect_it_let_it_think_and_switch_marks_off(
    operator: Client, server: FakeServer, alice: User, now: datetime
) -> None:
    chat = create_chat(owner=alice, now=now)
    assert made(operator, base_url=server.base_url, api_key="sk-ant-canary").status_code == 302
    account = ProviderAccount.objects.get(slug="claude")
    action = {"action": "fetch_models", "_selected_action": [str(account.pk)]}
    assert "1 new model." in operator.post(PROVIDER_LIST, action, follow=True).content.decode()
    model = ModelSpec.objects.get(provider="claude")
    page = reverse("admin:contextpolicy_modelspec_change", args=[model.pk])
    assert submitted(operator, page, thinking="1024").status_code == 302

    ask(alice, chat, "Hello", now)
    (record,) = server.requests()
    assert record["body"]["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert record["headers"]["authorization"] == "…nary"
    assert "cache_control" in str(record["body"])
    assert Receipt.objects.get().usage["written"] > 0

    editor = signed_in(person("paula", POLICY_ADMIN))
    form = {"name": "Plain", "slug": "plain", "cache_marks": "no"}
    assert submitted(editor, POLICIES, **form).status_code == 302
    policy = ContextPolicy.objects.select_related("current").get(slug="plain")
    assert policy.current is not None
    assert policy.current.values["cache_marks"] is False
    assign_policy(policy=policy, level="instance", actor="user:1", now=now)
    ask(alice, chat, "And again", now)
    assert "cache_control" not in str(server.requests()[-1]["body"])


def test_without_an_address_it_is_anthropics_own(operator: Client) -> None:
    assert made(operator, base_url="").status_code == 302
    assert ProviderAccount.objects.get(slug="claude").base_url == kinds.ANTHROPIC_URL


def test_without_its_package_the_form_says_how_it_is_installed(
    operator: Client, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = accounts.save_provider_account(
        account=ProviderAccount(slug="stored"),
        values={"name": "Stored", "kind": "anthropic", "base_url": ""},
        actor="system",
        now=now,
    )
    monkeypatch.setattr(kinds, "find_spec", lambda name: None)
    answer = made(operator, base_url="")
    (sentence,) = answer.context["adminform"].form.errors["kind"]
    assert "make anthropic" in sentence
    # A stored account can still be renamed. Its server is not called.
    assert submitted(operator, get_provider_page(stored), name="Other").status_code == 302
    action = {"action": "fetch_models", "_selected_action": [str(stored.pk)]}
    assert "make anthropic" in opened_after(operator, action)


def opened_after(operator: Client, action: dict[str, Any]) -> str:
    """Return the page after an action."""
    operator.post(PROVIDER_LIST, action)
    return opened(operator, PROVIDER_LIST).words
