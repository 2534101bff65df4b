"""The initial data of a new instance; a second start changes nothing."""

import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from chats.ground.secrets import decrypt
from chats.models import ProviderAccount
from contextpolicy.models import ContextPolicy, ModelSpec, PolicyAssignment
from project import launcher
from project.seed import SMALL_MODEL_MISSED, seed_database
from project.supervisor import Child
from tests.fakes.fake_server import FakeServer

pytestmark = pytest.mark.django_db
BASE = "http://127.0.0.1:8420"
SAY = "print('printed')"


def test_a_second_start_adds_nothing(now: datetime) -> None:
    seed_database(now=now, base_url=BASE)
    ContextPolicy.objects.filter(slug="demo").update(name="Changed by a person")
    counted = [model.objects.count() for model in (ContextPolicy, ModelSpec, ProviderAccount)]
    seed_database(now=now, base_url=BASE)
    again = [model.objects.count() for model in (ContextPolicy, ModelSpec, ProviderAccount)]
    assert again == counted
    assert ContextPolicy.objects.get(slug="demo").name == "Changed by a person"
    assert User.objects.count() == 1


def test_the_administrator_has_no_password_but_a_link(now: datetime) -> None:
    printed = seed_database(now=now, base_url=BASE)
    assert f"{BASE}/login/link/" in printed
    assert not User.objects.get().has_usable_password()


def test_only_a_new_administrator_gets_a_link_in_the_log(now: datetime) -> None:
    seed_database(now=now, base_url=BASE)
    again = seed_database(now=now, base_url=BASE)
    assert "/login/link/" not in again
    assert "Sign-in link: " in again
    assert "manage.py login_link" in again
    assert f"Sign in as admin (valid 1 hour, once): {BASE}/login/link/" in seed_database(
        now=now, base_url=BASE, with_link=True
    )


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_launcher_asks_for_a_link_for_a_terminal_only(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    asked: list[Sequence[str]] = []

    def start(child: Child) -> None:
        asked.append(child.command)
        child.process = subprocess.Popen([sys.executable, "-c", SAY], stdout=child.stdout)

    monkeypatch.setattr(Child, "start", start)
    assert launcher.prepare_database(base_url=BASE, in_fork=None) == "printed\n"
    assert ("--with-link" in asked[0]) is is_terminal


def test_a_provider_of_the_environment_is_connected_once(
    now: datetime, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeServer() as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        settings.OPENAI_BASE_URL = fake.base_url
        settings.OPENAI_API_KEY = "sk-canary-1234567890"
        settings.ALLOWED_PRIVATE_PROVIDERS = [fake.host]
        printed = seed_database(now=now, base_url=BASE)
        seed_database(now=now, base_url=BASE)
    account = ProviderAccount.objects.get(kind="openai")
    assert "not connected" not in printed
    assert decrypt(account.encrypted_key) == "sk-canary-1234567890"
    assert ModelSpec.objects.get(is_default=True).provider == account.slug
    assert PolicyAssignment.objects.get(level="instance").policy.slug == "long-chats"


def test_a_provider_that_does_not_answer_does_not_stop_the_start(
    now: datetime, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    settings.OPENAI_BASE_URL = "http://127.0.0.1:9/v1"
    settings.ALLOWED_PRIVATE_PROVIDERS = ["127.0.0.1:9"]
    printed = seed_database(now=now, base_url=BASE)
    assert "is not connected yet" in printed
    assert ModelSpec.objects.get(is_default=True).slug == "demo"


def test_a_connected_small_model_is_followed_to_its_port(now: datetime, settings: Settings) -> None:
    old, new = "http://127.0.0.1:4321/v1", "http://127.0.0.1:5432/v1"
    settings.ALLOWED_PRIVATE_PROVIDERS = ["127.0.0.1:5432"]
    for slug, url in (("small-model-2", old), ("small-models", old), ("mine", "http://x/v1")):
        ProviderAccount.objects.create(slug=slug, name=slug, base_url=url)

    settings.SMALL_MODEL_URL = new
    assert "not running" not in seed_database(now=now, base_url=BASE)
    addresses = dict(ProviderAccount.objects.values_list("slug", "base_url"))
    assert addresses == {
        "demo": "",
        "small-model-2": new,
        "small-models": old,
        "mine": "http://x/v1",
    }


def test_a_connected_small_model_that_was_not_started_is_said(
    now: datetime, settings: Settings
) -> None:
    settings.SMALL_MODEL_URL = ""
    assert "not running" not in seed_database(now=now, base_url=BASE)
    url = "http://127.0.0.1:4321/v1"
    ProviderAccount.objects.create(slug="small-model", name="Small", base_url=url)

    assert SMALL_MODEL_MISSED in seed_database(now=now, base_url=BASE)
    assert ProviderAccount.objects.get(slug="small-model").base_url == url
