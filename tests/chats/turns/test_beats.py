"""Leases and texts of all turns of a worker, renewed in one write."""

import asyncio
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone
from pytest_django import Settings

from chats.actions import lifecycle
from chats.models import Turn
from chats.turns import lease as leases
from chats.turns.lease import Heartbeat, Lease, Partial
from chats.turns.start import start_turn
from chats.turns.stop import stop_turn
from chats.turns.worker.heartbeats import LeaseKeeper
from contextpolicy.models import ModelSpec


@pytest.fixture
def claimed(alice: User, demo_model: ModelSpec, now: datetime) -> Callable[[], Lease]:
    def claim() -> Lease:
        chat = lifecycle.create_chat(owner=alice, now=now)
        turn = start_turn(user=alice, chat=chat, text="Hello", now=now).turn
        lease = leases.claim_turn(turn_id=turn.pk, worker="w", now=now)
        assert lease is not None
        Turn.objects.filter(pk=turn.pk).update(step=1)
        return lease

    return claim


def ask_to_stop(lease: Lease, alice: User, now: datetime) -> None:
    turn = Turn.objects.select_related("branch__chat").get(pk=lease.turn_id)
    stop_turn(turn=turn, user=alice, now=now)


def lose(lease: Lease) -> None:
    Turn.objects.filter(pk=lease.turn_id).update(lease_token="another")


def text_of(lease: Lease) -> str:
    return Turn.objects.values_list("partial_text", flat=True).get(pk=lease.turn_id)


def partial(lease: Lease, text: str, *, step: int = 1, begun_anew: int = 0) -> Partial:
    return Partial(lease=lease, step=step, begun_anew=begun_anew, text=text, reasoning="")


def test_one_write_saves_what_is_ours_and_tells_of_the_rest(
    alice: User, now: datetime, claimed: Callable[[], Lease]
) -> None:
    ours, stopped, lost, late = claimed(), claimed(), claimed(), claimed()
    ask_to_stop(stopped, alice, now)
    lose(lost)
    texts = [partial(lease, "text") for lease in (ours, stopped, lost)]
    beats = leases.save_partial_texts(texts=[*texts, partial(late, "of the step before", step=0)])
    assert beats == [
        Heartbeat.OURS,
        Heartbeat.STOP,
        Heartbeat.LOST,
        Heartbeat.OURS,
    ]
    assert [text_of(lease) for lease in (ours, stopped, lost, late)] == ["text", "", "", ""]


def test_a_text_that_was_taken_back_is_not_saved_in_the_place_of_the_next(
    claimed: Callable[[], Lease],
) -> None:
    lease = claimed()
    leases.update_held_turn(lease, begun_anew=1, partial_text="")
    assert leases.save_partial_texts(texts=[partial(lease, "of the call before")]) == [
        Heartbeat.OURS
    ]
    assert text_of(lease) == ""
    leases.save_partial_texts(texts=[partial(lease, "New", begun_anew=1)])
    assert text_of(lease) == "New"


def test_one_write_renews_every_lease_that_holds(
    alice: User, now: datetime, claimed: Callable[[], Lease]
) -> None:
    ours, stopped, lost = claimed(), claimed(), claimed()
    ask_to_stop(stopped, alice, now)
    lose(lost)
    soon = timezone.now() + timedelta(seconds=1)
    Turn.objects.update(lease_until=soon)
    assert leases.renew_leases(leases=[ours, stopped, lost]) == [
        Heartbeat.OURS,
        Heartbeat.STOP,
        Heartbeat.LOST,
    ]
    until = dict(Turn.objects.values_list("pk", "lease_until"))
    renewed = until[ours.turn_id]
    assert renewed is not None
    assert renewed > soon + timedelta(seconds=5)
    assert until[lost.turn_id] == soon


class FakeRun:
    def __init__(self) -> None:
        self.lease = Lease(turn_id=uuid.uuid4(), token="t")
        self.heard: list[Heartbeat] = []

    def get_unsaved_text(self) -> Partial | None:
        return partial(self.lease, "so far")

    def on_heartbeat(self, beat: Heartbeat) -> None:
        self.heard.append(beat)


class FakeHost:
    """A worker whose database fails once and then confirms the leases."""

    def __init__(self) -> None:
        self.failures = [OperationalError("away")]
        self.renewed: set[uuid.UUID] = set()

    async def db(self, function: Callable[..., Any], **_arguments: Any) -> list[Heartbeat]:
        if self.failures:
            raise self.failures.pop()
        return [Heartbeat.OURS for _ in range(2)]

    async def renew_streams(self, turn_ids: Iterable[uuid.UUID]) -> None:
        self.renewed.update(turn_ids)


@pytest.mark.parametrize("name", ["keep_leases", "checkpoint"])
def test_a_database_that_was_away_is_tried_at_the_next_beat(name: str, settings: Settings) -> None:
    settings.HEARTBEAT_EVERY = settings.CHECKPOINT_EVERY = 0.01
    first, second = FakeRun(), FakeRun()
    runs = {run.lease.turn_id: run for run in (first, second)}
    host = FakeHost()

    async def some_beats() -> None:
        beats = LeaseKeeper(worker=host, runs=runs)
        task = asyncio.create_task(getattr(beats, name)())
        while not second.heard:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(some_beats(), 10))
    assert first.heard[0] is Heartbeat.OURS
    assert host.renewed == (set(runs) if name == "keep_leases" else set())
