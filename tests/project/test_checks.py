"""System checks of a production instance."""

import importlib
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings
from redis.exceptions import ConnectionError as RedisConnectionError

from chats.models import ProviderAccount
from chats.streams.connection import Streams
from project import checks, database_url, env, probes
from project.checks import check_broker_eviction, check_secrets, check_sqlite_host
from tests.support.repository import ROOT

# The security headers that a browser behind TLS gets.
SIGN_IN = """
import django; django.setup()
import json
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from project.tables import create_in_empty_database
create_in_empty_database()
call_command("migrate", verbosity=0, skip_checks=True)
User.objects.create_user("alice", password="correct horse battery")
browser = Client(headers={"host": "chat.example.org"})
plain = browser.get("/login/")
page = browser.get("/login/", secure=True)
form = {"username": "alice", "password": "correct horse battery"}
entered = browser.post("/login/", form, secure=True)
cookies = {**page.cookies, **entered.cookies}
print(json.dumps({
    "plain": [plain.status_code, plain.headers["Location"]],
    "entered": entered.status_code,
    "cookies": {name: dict(cookie) for name, cookie in cookies.items()},
    "headers": dict(entered.headers),
}))
"""


def test_f28_a_process_that_ends_is_not_ready(
    db: None, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "get_broker_eviction", lambda: probes.KEEPS_ALL)
    monkeypatch.setattr(probes, "list_broker_warnings", list)
    streams = Streams()
    monkeypatch.setattr(probes, "STREAMS", streams)
    assert client.get("/readyz").status_code == 200
    streams.closing.set()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["faults"]) == (503, {"process": "shutting down"})


@pytest.fixture
def production(tmp_path: Path) -> dict[str, str]:
    """The environment of an instance behind TLS."""
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "PALIMPSEST_DATA": str(tmp_path),
        "PALIMPSEST_PUBLIC_URL": "https://chat.example.org",
        "TRUSTED_PROXY": "1",
        "SECRET_KEY": secrets.token_urlsafe(64),
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "DATABASE_URL": "",
    }
    del env["PALIMPSEST_TESTING"]
    return env


def run(env: dict[str, str], *arguments: str) -> str:
    """The output of this Python, which must succeed."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_production_settings_pass_every_deployment_check(production: dict[str, str]) -> None:
    said = run(production, "manage.py", "check", "--deploy", "--fail-level", "WARNING")
    assert "no issues" in said


def test_S10_S11_behind_tls_cookies_and_headers_are_bound_to_it(
    production: dict[str, str],
) -> None:
    told = json.loads(run(production, "-c", SIGN_IN))
    assert told["plain"] == [301, "https://chat.example.org/login/"]
    assert told["entered"] == 302
    assert set(told["cookies"]) == {"__Host-sid", "__Host-csrf"}
    for cookie in told["cookies"].values():
        assert (cookie["secure"], cookie["samesite"]) == (True, "Lax")
        # The browser's requirements for the cookie prefix.
        assert (cookie["path"], cookie["domain"]) == ("/", "")
    assert told["cookies"]["__Host-sid"]["httponly"] is True
    assert told["cookies"]["__Host-sid"]["max-age"] <= 14 * 24 * 3600
    hsts = told["headers"]["Strict-Transport-Security"]
    # Subdomains and the preload list only on request.
    assert hsts == "max-age=31536000"
    assert told["headers"]["Content-Security-Policy"].endswith("upgrade-insecure-requests")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        pytest.param("DEBUG", True, "E001", id="debug"),
        pytest.param("SECRET_KEY", "short", "E002", id="short key"),
        pytest.param("ALLOWED_HOSTS", ["*"], "E003", id="any host"),
    ],
)
def test_an_unsound_setting_is_named(name: str, value: Any, code: str, settings: Settings) -> None:
    setattr(settings, name, value)
    assert f"palimpsest.{code}" in [message.id for message in check_secrets(None)]


def test_a_shared_key_is_named(settings: Settings) -> None:
    settings.ENCRYPTION_KEYS = [settings.SECRET_KEY]
    assert "palimpsest.E002" in [message.id for message in check_secrets(None)]


@pytest.mark.django_db
def test_missing_triggers_are_named() -> None:
    assert "palimpsest.E006" not in ids_of_database_checks()
    triggers: Any = importlib.import_module("contextpolicy.migrations.0002_ledger_triggers")
    with connection.cursor() as cursor:
        for statement in triggers.DROP[connection.vendor]:
            cursor.execute(statement)
    assert "palimpsest.E006" in ids_of_database_checks()


def test_sqlite_with_a_broker_elsewhere_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = settings.DATABASES["default"]
    monkeypatch.setitem(default, "ENGINE", database_url.build_sqlite_settings(Path("x"))["ENGINE"])
    settings.REDIS_URL = "redis://127.0.0.1:6379/0"
    assert check_sqlite_host(None) == []
    settings.REDIS_URL = "redis://broker.example.org:6379/0"
    assert [message.id for message in check_sqlite_host(None)] == ["palimpsest.E004"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("noeviction", [], id="keeps all"),
        pytest.param("allkeys-lru", ["palimpsest.E005"], id="evicts"),
    ],
)
def test_a_broker_that_evicts_is_named(
    policy: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "get_broker_eviction", lambda: policy)
    assert [message.id for message in check_broker_eviction(None)] == expected


def test_an_absent_broker_is_left_to_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise RedisConnectionError

    monkeypatch.setattr(checks, "get_broker_eviction", absent)
    assert check_broker_eviction(None) == []


@pytest.mark.django_db
def test_a_well_known_password_of_a_superuser_is_named() -> None:
    User.objects.create_superuser("root", password="a long one of its own")
    nobody = User.objects.create_superuser("nobody")
    nobody.set_unusable_password()
    nobody.save()
    assert "palimpsest.E007" not in ids_of_database_checks()
    User.objects.create_superuser("operator", password="operator")
    assert "palimpsest.E007" in ids_of_database_checks()


@pytest.mark.django_db
def test_a_public_provider_over_plain_http_is_named(settings: Settings) -> None:
    settings.ALLOWED_PRIVATE_PROVIDERS = ["127.0.0.1:11434"]
    ProviderAccount.objects.create(slug="own", name="own", base_url="http://127.0.0.1:11434/v1")
    ProviderAccount.objects.create(
        slug="off", name="off", base_url="http://api.example.com/v1", enabled=False
    )
    assert "palimpsest.E008" not in ids_of_database_checks()
    ProviderAccount.objects.create(slug="far", name="far", base_url="http://api.example.com/v1")
    assert "palimpsest.E008" in ids_of_database_checks()


def ids_of_database_checks() -> list[str | None]:
    """The ids of the checks that use the database."""
    return [message.id for message in run_checks(tags=["database"], databases=["default"])]


@pytest.mark.parametrize(
    "said",
    [
        "https://chat.example.org/palimpsest",
        "https://chat.example.org/?a=1",
        "https://me:secret@chat.example.org",
        "https://chat.example.org:99999",
        "http://chat.example.org",
        "https://chat.example.org?",
        "https://chat.example.org#",
        "https://chat.example.org:0",
        "https://*.example.org",
        "https://chat example.org",
    ],
)
def test_a_public_address_is_a_host_alone(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_PUBLIC_URL", said)
    with pytest.raises(env.Misconfigured):
        env.read_public_url("PALIMPSEST_PUBLIC_URL")
    for sound in ("https://chat.example.org", "https://chat.example.org:8443/", ""):
        monkeypatch.setenv("PALIMPSEST_PUBLIC_URL", sound)
        assert env.read_public_url("PALIMPSEST_PUBLIC_URL") == sound.rstrip("/")


@pytest.mark.parametrize(
    ("said", "origin"),
    [
        (" HTTPS://Chat.Example.ORG ", "https://chat.example.org"),
        ("https://chat.example.org:443", "https://chat.example.org"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("https://[2001:DB8::1]:8443", "https://[2001:db8::1]:8443"),
    ],
)
def test_a_public_address_is_what_browsers_send(
    said: str, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIMPSEST_PUBLIC_URL", said)
    assert env.read_public_url("PALIMPSEST_PUBLIC_URL") == origin
    # An origin of scripts is compared without changes, so another form is refused.
    monkeypatch.setenv("GATEWAY_ORIGINS", origin)
    assert env.read_origins("GATEWAY_ORIGINS") == [origin]
    for other in (said.strip(), "https://*.example.org"):
        monkeypatch.setenv("GATEWAY_ORIGINS", other)
        if other != origin:
            with pytest.raises(env.Misconfigured):
                env.read_origins("GATEWAY_ORIGINS")


@pytest.mark.parametrize(
    ("said", "count"), [("", 0), ("0", 0), ("off", 0), ("1", 1), ("yes", 1), ("3", 3)]
)
def test_trusted_proxies_are_counted(
    said: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUSTED_PROXY", said)
    assert env.read_proxy_count("TRUSTED_PROXY") == count
    monkeypatch.setenv("TRUSTED_PROXY", "many")
    with pytest.raises(env.Misconfigured, match="number of proxies"):
        env.read_proxy_count("TRUSTED_PROXY")


@pytest.mark.parametrize(
    ("headers", "cause"),
    [
        ({"origin": "https://elsewhere.example"}, "https://elsewhere.example"),
        ({}, "cookie"),
    ],
)
def test_a_refused_form_names_its_cause(db: None, headers: dict[str, str], cause: str) -> None:
    browser = Client(enforce_csrf_checks=True, headers=headers)
    page = browser.post("/login/", {"username": "a", "password": "b"})
    assert page.status_code == 403
    assert cause in page.content.decode()
    if headers:
        browser.force_login(User.objects.create_user("alice"))
        told = browser.post("/api/v1/chats", {}, content_type="application/json").json()["error"]
        assert told["code"] == "csrf_failed"
        assert "PALIMPSEST_PUBLIC_URL" in told["message"]


def test_an_unknown_host_is_refused_with_the_remedy(db: None, client: Client) -> None:
    for address in ("/login/", "/api/v1/chats"):
        answer = client.get(address, headers={"host": "other.example"})
        assert answer.status_code == 400
        # An error page with a forged host would help the attacker.
        assert "other.example" not in answer.content.decode()
        assert "PALIMPSEST_PUBLIC_URL" in answer.content.decode()
