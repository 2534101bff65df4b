"""Deactivating an account stops its replies, rounds and imports."""

import io
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chats.background.due_jobs import run_all_due_jobs, run_due_job
from chats.exchange.upload import start_import
from chats.models import FileImport, Round, Turn
from chats.turns.lease import claim_turn
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent
from tests.chats.teams.conftest import play, team_of
from tests.contextpolicy.pages import submitted
from tests.support.team_rounds import Plays

__all__ = ["play", "team_of"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("demo_model")]


@pytest.fixture
def queued(alice: User, chat: Any, now: datetime) -> Turn:
    """A queued reply of Alice, who also has a waiting import."""
    start_import(io.BytesIO(b"[]"), owner=alice, now=now)
    return start_turn(user=alice, chat=chat, text="Hello", now=now).turn


def test_a_deactivated_users_work_is_stopped(
    owner: Client,
    alice: User,
    queued: Turn,
    now: datetime,
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        submitted(owner, reverse("admin:auth_user_change", args=[alice.pk]), is_active=None)
    queued.refresh_from_db()
    assert queued.status == Turn.Status.STOPPED
    assert FileImport.objects.get().state == FileImport.State.STOPPED
    actor = AuditEvent.objects.get(type="turn.stop_requested").actor
    assert actor.startswith("user:")
    assert actor != f"user:{alice.pk}"


@pytest.mark.parametrize("is_running", [False, True])
def test_work_of_users_who_were_deactivated_elsewhere_is_stopped(
    alice: User, queued: Turn, now: datetime, is_running: bool
) -> None:
    if is_running:
        assert claim_turn(turn_id=queued.pk, worker="w", now=now)
    run_due_job("replies", now=now)
    queued.refresh_from_db()
    assert not Turn.objects.filter(stop_requested_at__isnull=False).exists()
    User.objects.filter(pk=alice.pk).update(is_active=False)
    for _ in range(2):
        run_due_job("replies", now=now)
    queued.refresh_from_db()
    assert queued.stop_requested_at is not None
    assert queued.is_over != is_running
    assert FileImport.objects.get().state == FileImport.State.STOPPED
    assert AuditEvent.objects.filter(type="turn.stop_requested").count() == 1


def test_a_round_of_a_deactivated_owner_keeps_waiting_for_its_person(
    play: Plays, alice: User, now: datetime
) -> None:
    game = play("Planner", "Writer", humans=("Ann",))
    game.ask("@Planner plan it.")
    game.answer("[NEXT:Ann] [NEXT:Writer]")
    User.objects.filter(pk=alice.pk).update(is_active=False)
    run_all_due_jobs(now=game.now)
    assert (game.round().status, game.round().queue) == (Round.Status.WAITING, ["ann", "writer"])
    assert not Turn.objects.exclude(status=Turn.Status.COMPLETED).exists()
    # The session of a deactivated user is refused.
    client = Client()
    client.force_login(alice)
    address = reverse("chats:round-go-on", args=[game.chat.pk])
    assert client.post(address).status_code in {302, 403}
    assert game.queued() is None
