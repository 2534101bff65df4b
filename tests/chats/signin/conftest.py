"""Fixtures for the sign-in tests."""

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from tests.support.role_clients import PASSWORD


@pytest.fixture(autouse=True)
def doors(settings: Settings) -> None:
    """Add a page that shows the signed-in user, and use a fast password hasher."""
    settings.ROOT_URLCONF = "tests.chats.signin.urls"
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def password() -> str:
    """Alice's password."""
    return PASSWORD


@pytest.fixture
def alice(alice: User) -> User:
    """Alice with a password."""
    alice.set_password(PASSWORD)
    alice.save()
    return alice
