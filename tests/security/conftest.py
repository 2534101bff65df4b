"""People with and without rights, and Alice's things behind every address."""

from datetime import datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from chats import keys, providers_setup, rates
from contextpolicy import roles
from tests.chats.api.programs import Program
from tests.contextpolicy.people import person, signed_in
from tests.security.world import World, build

SUPERUSER = "superuser"
WHO = [roles.USER, roles.POLICY_ADMIN, roles.OPERATOR, roles.AUDITOR, roles.OWNER, SUPERUSER]


@pytest.fixture(autouse=True)
def quiet(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test pays for another's requests, and no page looks for servers on this host."""
    settings.STATIC_ROOT = tmp_path
    settings.API_REQUESTS_PER_MINUTE = 1_000_000
    settings.MESSAGES_PER_MINUTE = 1_000_000
    rates.REQUESTS.clear()
    rates.MESSAGES.clear()
    monkeypatch.setattr(providers_setup, "found_servers", list)


@pytest.fixture
def world(alice: User, now: datetime) -> World:
    """What Alice owns."""
    return build(alice=alice, now=now)


@pytest.fixture
def page(alice: User) -> Client:
    """Alice's browser."""
    return signed_in(alice)


def browser_of(who: str) -> Client:
    """The browser of somebody with this role who has just signed in."""
    if who == SUPERUSER:
        return signed_in(User.objects.create_superuser("root"))
    return signed_in(person("charles", who))


def program_of(user: User) -> Program:
    """A program with a key that may do everything its owner may."""
    scopes = keys.SCOPES
    _, secret = keys.create_key(owner=user, name="p", scopes=scopes, now=timezone.now())
    return Program(secret)
