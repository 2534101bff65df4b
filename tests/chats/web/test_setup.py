"""Connecting a model server from the first-run page."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from chats import providers_setup
from chats.models import ProviderAccount
from chats.providers.discovery import FoundServer
from chats.refusals import Refusal
from chats.sessions import SIGNED_IN_AT


@pytest.fixture(autouse=True)
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on this host."""
    monkeypatch.setattr(providers_setup, "found_servers", list)


@pytest.fixture
def operator(alice: User, page: Client) -> User:
    """Alice may connect servers, and has just signed in."""
    alice.user_permissions.add(Permission.objects.get(codename="change_provideraccount"))
    signed_in(page, at=timezone.now())
    return alice


def signed_in(page: Client, *, at: datetime) -> None:
    """Move the sign-in of a browser's session."""
    session = page.session
    session[SIGNED_IN_AT] = at.isoformat()
    session.save()


def test_who_may_not_connect_is_told_who_may(page: Client) -> None:
    html = page.get("/setup/").content.decode()

    assert "Only operators connect model servers" in html
    assert 'name="api_key"' not in html


def test_who_may_not_connect_is_refused(page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers_setup, "connect", lambda **_: pytest.fail("connected"))

    response = page.post("/setup/", {"base_url": "https://api.example.com/v1"})

    assert response.status_code == 403
    assert "Ask an operator" in response.content.decode()


def test_an_operator_connects_a_server(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(providers_setup, "connect", lambda **call: calls.append(call))

    form = {"name": "Mine", "base_url": "https://api.example.com/v1", "api_key": "sk-secret"}
    response = page.post("/setup/", form)

    assert response.headers["Location"] == "/setup/"
    assert form.items() <= calls[0].items()
    assert calls[0]["actor"] == f"user:{operator.pk}"


def test_a_refused_server_keeps_what_was_typed_but_never_the_key(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise Refusal

    monkeypatch.setattr(providers_setup, "connect", refuse)

    form = {"name": "Mine", "base_url": "https://api.example.com/v1", "api_key": "sk-secret"}
    response = page.post("/setup/", form)

    html = response.content.decode()
    assert response.status_code == 400
    assert "This cannot be done." in html
    assert 'value="https://api.example.com/v1"' in html
    assert "sk-secret" not in html


def test_a_server_on_this_host_is_offered_with_its_models(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FoundServer("Ollama", "http://127.0.0.1:11434/v1", ("qwen3", "llama"))
    monkeypatch.setattr(providers_setup, "found_servers", lambda: [server])

    html = page.get("/setup/").content.decode()

    assert "Found on this computer" in html
    assert "qwen3, llama" in html


def test_a_connected_server_shows_the_end_of_its_key_only(page: Client) -> None:
    ProviderAccount.objects.create(
        slug="m", name="Mine", base_url="https://m.example/v1", key_last_four="4f2a"
    )

    html = page.get("/setup/").content.decode()

    assert "•••• 4f2a" in html


@pytest.mark.parametrize(("minutes", "is_paused"), [(1, True), (-1, False)])
def test_f12_a_refused_key_is_told_as_long_as_its_server_is_not_asked(
    page: Client, minutes: int, is_paused: bool
) -> None:
    until = timezone.now() + timedelta(minutes=minutes)
    ProviderAccount.objects.create(
        slug="locked",
        name="Locked",
        kind="openai",
        base_url="https://api.example.com/v1",
        paused_until=until,
        paused_reason="its provider refused the key",
    )

    html = page.get("/setup/").content.decode()

    assert ("paused</span>" in html) is is_paused
    assert ("its provider refused the key" in html) is is_paused


def test_the_settings_page_names_the_person_and_the_keys(page: Client, alice: User) -> None:
    html = page.get("/settings/").content.decode()

    assert alice.username in html
    assert "Sign out" in html
    assert "Shift Enter" in html


def test_a_key_is_taken_only_soon_after_a_sign_in(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers_setup, "connect", lambda **_: pytest.fail("connected"))
    signed_in(page, at=timezone.now() - timedelta(minutes=16))

    html = page.get("/setup/").content.decode()
    response = page.post("/setup/", {"base_url": "https://api.example.com/v1"})

    assert 'name="api_key"' not in html
    assert 'href="/login/?next=/setup/"' in html
    assert response.status_code == 403
    assert 'href="/login/?next=/setup/"' in response.content.decode()
