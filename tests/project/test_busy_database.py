"""Optional writes, such as of a last-used time, while another writer holds the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from chats.actions import lifecycle
from chats.models import ApiKey, Chat
from chats.people.keys import create_key
from chats.people.sessions import SEEN_AT

pytestmark = pytest.mark.usefixtures("transactional_ledger")


@contextmanager
def another_writer() -> Iterator[None]:
    """Keep the database busy, as a transaction of another thread does."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL has many writers at a time")
    turn = connection.turn  # type: ignore[attr-defined]  # of project.sqlite
    with turn:
        yield


@pytest.fixture
def owner(transactional_ledger: None) -> User:
    return User.objects.create_user("ann", password="pw")


def test_a_key_works_although_its_use_cannot_be_recorded(owner: User) -> None:
    _, secret = create_key(
        owner=owner, name="k", scopes=["chats:read"], lifetime_days=1, now=timezone.now()
    )
    client = Client(headers={"authorization": f"Bearer {secret}"})
    with another_writer():
        assert client.get("/api/v1/chats").status_code == 200
        assert client.get("/api/v1/models").status_code == 200
    assert ApiKey.objects.get().last_used_at is None
    assert client.get("/api/v1/chats").status_code == 200
    assert ApiKey.objects.get().last_used_at is not None


def test_an_unread_chat_opens_although_its_mark_cannot_be_cleared(owner: User) -> None:
    chat = lifecycle.create_chat(owner=owner, now=timezone.now())
    Chat.objects.update(unread=True)
    client = Client()
    client.force_login(owner)
    client.get("/settings/")
    with another_writer():
        assert client.get(f"/chats/{chat.pk}/").status_code == 200
    assert Chat.objects.get().unread
    assert client.get(f"/chats/{chat.pk}/").status_code == 200
    assert not Chat.objects.get().unread


def test_a_page_opens_although_the_session_cannot_be_saved(owner: User) -> None:
    client = Client()
    client.force_login(owner)
    client.get("/settings/")
    session = client.session
    session[SEEN_AT] = (timezone.now() - timedelta(hours=2)).isoformat()
    session.save()
    before = session[SEEN_AT]
    with another_writer():
        assert client.get("/chats/archive").status_code == 200
    assert client.session[SEEN_AT] == before
