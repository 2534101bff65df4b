"""Fixtures for the tests of the administration."""

from collections.abc import Iterator

import pytest
from django.test import Client
from pytest_django import Settings

from contextpolicy.roles import OPERATOR, OWNER
from tests.chats.compaction.conftest import (
    fold,
    long_chat,
    say,
    set_policy,
    small_policy,
    writer,
    writes,
)
from tests.contextpolicy.people import person, signed_in
from tests.fakes.fake_server import FakeServer

# The long chats come from the fixtures of the compaction tests.
__all__ = ["fold", "long_chat", "say", "set_policy", "small_policy", "writer", "writes"]


@pytest.fixture(scope="module")
def running_fake() -> Iterator[FakeServer]:
    """A running model server."""
    with FakeServer() as server:
        yield server


@pytest.fixture
def fake(running_fake: FakeServer, settings: Settings) -> FakeServer:
    """The model server with default behaviour, allowed in the settings."""
    running_fake.configure(models=["fake-chat", "fake-small"])
    settings.ALLOWED_PRIVATE_PROVIDERS = [running_fake.host]
    return running_fake


@pytest.fixture
def operator(db: None) -> Client:
    """The browser of Otto, an operator with a recent sign-in."""
    return signed_in(person("otto", OPERATOR))


@pytest.fixture
def owner(db: None) -> Client:
    """The browser of Olga, an Owner with a recent sign-in."""
    return signed_in(person("olga", OWNER))
