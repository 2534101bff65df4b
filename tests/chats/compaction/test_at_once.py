"""Concurrency: threads with separate connections neither deadlock nor corrupt data."""

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from pytest_django import Settings

from chats.actions import branching, lifecycle, marks
from chats.compaction import attempts, claims, coverage, maintain, perform, publish
from chats.compaction.people import controls, undo
from chats.compaction.publish import publish_prepared
from chats.ground.background_lock import alone
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Compaction, ImportedChat, Message, ProviderAccount, Turn
from chats.providers.base import Finished, TextDelta
from chats.record import history, imports
from chats.record.locking import lock_branch, lock_chat, lock_chat_for_writing
from chats.turns import writes
from chats.turns.start import TooManyTurns, check_turn_limits, start_turn
from chats.turns.stop import stop_turn
from contextpolicy import ledger
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import (
    AuditEvent,
    ContextPolicy,
    ModelSpec,
    PolicyAssignment,
    PolicyVersion,
)
from tests.faults.programs import until
from tests.support.chat_summaries import SENTENCE, SMALL_POLICY, Work

COUNTER = ApproximateCounter()
ROUNDS = 25


@pytest.fixture
def busy_chat(transactional_ledger: None, now: datetime, work: Work) -> Chat:
    """A committed chat, visible to every connection, with a summary due."""
    alice = User.objects.create_user("alice")
    ProviderAccount.objects.get_or_create(slug="demo", defaults={"name": "Demo", "kind": "demo"})
    ModelSpec.objects.get_or_create(
        slug="demo",
        defaults={
            "provider": "demo",
            "name": "demo",
            "context_window": 128_000,
            "is_default": True,
        },
    )
    policy = ContextPolicy.objects.create(slug="small", name="Small")
    PolicyAssignment.objects.filter(level="instance").delete()
    PolicyAssignment.objects.create(policy=policy, level="instance")
    policy.current = PolicyVersion.objects.create(
        policy=policy, number=1, values=SMALL_POLICY, created_at=now
    )
    policy.save()
    chat = lifecycle.create_chat(owner=alice, now=now)
    for number in range(8):
        turn = start_turn(user=alice, chat=chat, text=f"{number}. {SENTENCE}", now=now).turn
        work(turn, [TextDelta(SENTENCE * 6), Finished("stop")])
    return chat


class Deeds:
    """The actions of the threads. Each call has a different minute."""

    def __init__(self, chat: Chat, now: datetime) -> None:
        self.chat = chat
        self.clock = iter(now + timedelta(minutes=n) for n in range(100_000))

    def tidy(self, _dice: random.Random) -> None:
        """Run maintenance as a worker does after a turn."""
        maintain.maintain_chat_context(chat_id=self.chat.pk, counter=COUNTER, now=next(self.clock))

    def publish(self, _dice: random.Random) -> None:
        """Publish as a turn does at the high threshold."""
        branch = Branch.objects.get(chat=self.chat)
        publish_prepared(branch_id=branch.pk, now=next(self.clock))

    def mark(self, dice: random.Random) -> None:
        """Pin, unpin, exclude or include a random message."""
        branch = Branch.objects.get(chat=self.chat)
        seq = dice.randrange(1, branch.last_seq + 1)
        rows = history.select_path_messages(branch, after=seq - 1, before=seq + 1).select_related(
            "branch"
        )
        action = dice.choice(
            [marks.pin_message, marks.unpin_message, marks.exclude_message, marks.include_message]
        )
        action(message=rows.get(), actor="user:1", now=next(self.clock))

    def turn_back(self, dice: random.Random) -> None:
        """Undo or redo the newest summary."""
        rows = Compaction.objects.select_related("branch").filter(kind="summary")
        row = rows.order_by("-created_at").first()
        action = dice.choice([undo.undo_summary, undo.redo_summary])
        if row is not None:
            action(user=self.chat.owner, compaction=row, now=next(self.clock))

    def compact(self, dice: random.Random) -> None:
        """Request a compaction and run it."""
        controls.compact_now(user=self.chat.owner, chat=self.chat, now=next(self.clock))
        self.tidy(dice)


def again_and_again(
    action: Callable[[random.Random], Any], seed: int, wrong: list[BaseException]
) -> None:
    """Repeat an action in one thread. Refusals with a known code are expected."""
    dice = random.Random(seed)  # noqa: S311  # a test's dice
    try:
        for _ in range(ROUNDS):
            with suppress(Refusal):
                action(dice)
    except BaseException as error:  # noqa: BLE001  # told to the test's own thread
        wrong.append(error)
    finally:
        connections.close_all()


ONE_CONNECTION = pytest.mark.skipif(
    connection.vendor == "sqlite", reason="its test database has one connection"
)


def beside(
    waiting: Callable[[], Any],
    *,
    inside: Callable[[], Any],
    then: Callable[[], Any] = lambda: None,
) -> Any:
    """Return the result of `waiting`, which waits for the transaction that runs `inside`.

    `then` runs in the same transaction while `waiting` is blocked.
    """
    found: list[Any] = []

    def wait() -> None:
        try:
            found.append(waiting())
        finally:
            connections.close_all()

    thread = threading.Thread(target=wait)
    with transaction.atomic():
        inside()
        thread.start()
        until(is_waited_for, what="somebody who waits for a lock")
        then()
    thread.join(20)
    return found[0]


def is_waited_for() -> bool:
    """Return True if a connection waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


@ONE_CONNECTION
def test_a_message_that_waits_for_a_new_branch_goes_there(busy_chat: Chat, now: datetime) -> None:
    alice = busy_chat.owner
    last = Message.objects.select_related("branch").filter(branch__chat=busy_chat).latest("seq")
    made: list[Branch] = []
    accepted = beside(
        lambda: start_turn(user=alice, chat=busy_chat, text="Here?", now=now),
        inside=lambda: made.append(
            branching.branch_from_message(user=alice, message=last, now=now)
        ),
    )
    assert accepted.turn.branch_id == made[0].pk


@ONE_CONNECTION
def test_replies_of_one_person_are_counted_across_chats_that_ask_at_once(
    busy_chat: Chat, now: datetime, settings: Settings
) -> None:
    settings.TURNS_PER_USER = 1
    alice = busy_chat.owner
    other = lifecycle.create_chat(owner=alice, now=now)

    def ask() -> str:
        try:
            start_turn(user=alice, chat=busy_chat, text="Here", now=now)
        except TooManyTurns as refusal:
            return refusal.code
        return "accepted"

    told = beside(ask, inside=lambda: start_turn(user=alice, chat=other, text="There", now=now))
    assert told == "too_many_runs"
    assert Turn.objects.get(status="queued").branch.chat == other


@ONE_CONNECTION
def test_inv_40_a_plan_that_waits_for_a_publication_stands_on_it(
    busy_chat: Chat, now: datetime
) -> None:
    branch = Branch.objects.get(chat=busy_chat)
    given: dict[str, Any] = {"chat_id": busy_chat.pk, "counter": COUNTER, "now": now}
    maintain.maintain_chat_context(**given)
    assert Compaction.objects.get().status == "prepared"
    asked = attempts.AttemptSpec(asked=attempts.CompactionRequest(by="user:1"))
    claimed = beside(
        lambda: claims.claim_compaction(**given, attempt=asked),
        inside=lambda: publish_prepared(branch_id=branch.pk, now=now),
    )
    assert (
        claimed is None or claimed.row.displaced_id == Compaction.objects.earliest("created_at").pk
    )


@ONE_CONNECTION
def test_threads_that_wait_to_compute_leave_their_connections_to_others(busy_chat: Chat) -> None:
    asked: list[int] = []

    def ask() -> None:
        try:
            asked.append(Chat.objects.count())
            with alone:
                asked.append(Chat.objects.count())
        finally:
            connections.close_all()

    # More threads than connections in the pool.
    threads = [threading.Thread(target=ask) for _ in range(20)]
    with alone:
        for thread in threads:
            thread.start()
        until(lambda: len(asked) == len(threads), what="every thread")
    for thread in threads:
        thread.join(20)
    assert asked == [1] * 2 * len(threads)


@ONE_CONNECTION
def test_a_message_to_a_team_and_a_plan_that_is_claimed_do_not_wait_for_each_other(
    busy_chat: Chat, now: datetime
) -> None:
    branch = Branch.objects.get(chat=busy_chat)

    def accept() -> None:
        lock_chat_for_writing(busy_chat.pk)
        check_turn_limits(user=busy_chat.owner, chat=busy_chat, api_key=None, choice=None, now=now)

    claimed = beside(
        lambda: claims.claim_compaction(chat_id=busy_chat.pk, counter=COUNTER, now=now),
        inside=accept,
        # A round locks the branch again before its commit.
        then=lambda: lock_branch(branch.pk),
    )
    assert claimed is not None


@ONE_CONNECTION
def test_an_erasure_in_an_imported_chat_and_a_plan_that_is_claimed_do_not_wait_for_each_other(
    busy_chat: Chat, now: datetime
) -> None:
    ImportedChat.objects.create(
        owner=busy_chat.owner, chat=busy_chat, form="jsonl", source_id="a", created_at=now
    )
    claimed = beside(
        lambda: claims.claim_compaction(chat_id=busy_chat.pk, counter=COUNTER, now=now),
        inside=lambda: lock_chat(busy_chat.pk),
        then=lambda: imports.release_import_files(busy_chat, now=now),
    )
    assert claimed is not None


@ONE_CONNECTION
def test_inv_42_an_attempt_that_ended_while_it_was_overtaken_ended_once(
    busy_chat: Chat, now: datetime
) -> None:
    claimed = claims.claim_compaction(chat_id=busy_chat.pk, counter=COUNTER, now=now)
    assert claimed is not None
    message = Message.objects.select_related("branch").get(branch__chat=busy_chat, seq=1)
    beside(
        lambda: marks.exclude_message(message=message, actor="user:1", now=now),
        inside=lambda: publish.mark_attempt_failed(claimed=claimed, reason="late", now=now),
    )
    claimed.row.refresh_from_db()
    assert (claimed.row.status, claimed.row.reason) == ("failed", "late")
    ends = AuditEvent.objects.filter(type__in=["compaction.failed", "compaction.overtaken"])
    assert ends.count() == 1


@ONE_CONNECTION
def test_a_turn_that_is_stopped_while_it_is_absorbed_ends_once(
    busy_chat: Chat, now: datetime
) -> None:
    alice = busy_chat.owner
    said: dict[str, Any] = {"user": alice, "chat": busy_chat, "now": now}
    given: dict[str, Any] = {"counter": COUNTER, "now": now}
    begun = writes.claim_and_open(
        turn_id=start_turn(text="First", **said).turn.pk, worker="a", **given
    )
    second = start_turn(text="Second", **said).turn
    assert begun is not None
    beside(
        lambda: writes.open_step(lease=begun[0], **given),
        inside=lambda: stop_turn(user=alice, turn=second, now=now),
    )
    second.refresh_from_db()
    assert second.status == "stopped"
    ends = AuditEvent.objects.filter(type__in=["turn.stopped", "turn.absorbed"])
    assert list(ends.values_list("turn_id", flat=True)) == [second.pk]


@ONE_CONNECTION
def test_inv_47_a_summary_that_a_new_branch_takes_while_it_is_replaced_is_in_force_there(
    busy_chat: Chat, work: Work, now: datetime
) -> None:
    given: dict[str, Any] = {"chat_id": busy_chat.pk, "counter": COUNTER, "now": now}
    parent = Branch.objects.get(chat=busy_chat)
    maintain.maintain_chat_context(**given)
    assert publish_prepared(branch_id=parent.pk, now=now)
    for number in range(3):
        turn = start_turn(
            user=busy_chat.owner, chat=busy_chat, text=f"{number}. {SENTENCE}", now=now
        )
        work(turn.turn, [TextDelta(SENTENCE * 6), Finished("stop")])
    claimed = claims.claim_compaction(
        **given, attempt=attempts.AttemptSpec(asked=attempts.CompactionRequest(by="user:1"))
    )
    assert claimed is not None
    performed = perform.perform_compaction(claimed, counter=COUNTER, renew=lambda *_: None)
    assert publish.store_summary(claimed=claimed, performed=performed, now=now)
    last = Message.objects.select_related("branch").filter(branch=parent).latest("seq")
    assert beside(
        lambda: publish_prepared(branch_id=parent.pk, now=now),
        inside=lambda: branching.branch_from_message(user=busy_chat.owner, message=last, now=now),
    )
    in_force = Branch.objects.values_list("active_compaction", "active_compaction__status")
    assert len(set(in_force)) == 2
    assert {status for _, status in in_force} == {"published"}


@ONE_CONNECTION
def test_inv_38_marks_and_undos_against_running_preparations(
    busy_chat: Chat, now: datetime
) -> None:
    deeds, wrong = Deeds(busy_chat, now), list[BaseException]()
    parts = [deeds.tidy, deeds.publish, deeds.mark, deeds.turn_back, deeds.compact]
    threads = [
        threading.Thread(target=again_and_again, args=(action, seed, wrong))
        for seed, action in enumerate([*parts, deeds.tidy, deeds.mark, deeds.compact])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert wrong == []
    branch = Branch.objects.select_related("active_compaction__base").get(chat=busy_chat)
    summary = coverage.get_active_summary(branch.active_compaction)
    assert summary is None or coverage.is_true(summary, branch)
    assert Compaction.objects.filter(status__in=coverage.IN_THE_MAKING).count() <= 1
    in_force = [row.pk for row in (branch.active_compaction, summary) if row]
    published = Compaction.objects.filter(status="published").values_list("pk", flat=True)
    assert set(published) == set(in_force)
    assert list(ledger.find_ledger_breaks()) == []
