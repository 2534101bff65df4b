"""What must be right before people rely on an instance."""

import importlib
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.checks import run_checks
from django.db import connection
from pytest_django.fixtures import Settings

from project.checks import secrets_are_sound

ROOT = Path(__file__).resolve().parents[2]


def test_production_settings_pass_every_deployment_check(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "PALIMPSEST_DATA": str(tmp_path),
        "PALIMPSEST_PUBLIC_URL": "https://chat.example.org",
        "TRUSTED_PROXY": "1",
        "SECRET_KEY": secrets.token_urlsafe(64),
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
    }
    del env["PALIMPSEST_TESTING"]
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    # Our own command line.
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 silenced" in done.stdout


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
    assert f"palimpsest.{code}" in [message.id for message in secrets_are_sound(None)]


def test_a_shared_key_is_named(settings: Settings) -> None:
    settings.ENCRYPTION_KEYS = [settings.SECRET_KEY]
    assert "palimpsest.E002" in [message.id for message in secrets_are_sound(None)]


@pytest.mark.django_db
def test_missing_triggers_are_named() -> None:
    def found() -> list[str | None]:
        messages = run_checks(tags=["database"], databases=["default"])
        return [message.id for message in messages]

    assert "palimpsest.E006" not in found()
    triggers: Any = importlib.import_module("contextpolicy.migrations.0002_ledger_triggers")
    with connection.cursor() as cursor:
        for statement in triggers.DROP[connection.vendor]:
            cursor.execute(statement)
    assert "palimpsest.E006" in found()
