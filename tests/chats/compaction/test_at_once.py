"""Several at once, in threads with connections of their own: nobody waits for ever, nothing breaks."""

import random
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.db.utils import OperationalError

from chats import history, library
from chats.compaction import controls, force, maintain, marks, undo
from chats.compaction.publish import publish_prepared
from chats.models import Branch, Chat, Compaction, Message, ProviderAccount, Receipt
from chats.providers.base import Finished, TextDelta
from chats.refusals import Refusal
from chats.turns.start import start
from contextpolicy import ledger
from contextpolicy.engine.partition import LeftOut, check_partition
from contextpolicy.engine.tokens import ApproximateCounter
from contextpolicy.models import ContextPolicy, ModelSpec, PolicyAssignment, PolicyVersion
from tests.chats.compaction.conftest import SENTENCE, VALUES, Work

COUNTER = ApproximateCounter()
ROUNDS = 25


@pytest.fixture
def busy_chat(transactional_ledger: None, now: datetime, work: Work) -> Chat:
    """A chat that every connection sees, with a summary due."""
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
        policy=policy, number=1, values=VALUES, created_at=now
    )
    policy.save()
    chat = library.create_chat(owner=alice, now=now)
    for number in range(8):
        turn = start(user=alice, chat=chat, text=f"{number}. {SENTENCE}", now=now).turn
        work(turn, [TextDelta(SENTENCE * 6), Finished("stop")])
    return chat


def in_threads(deeds: list[Callable[[random.Random], Any]]) -> list[BaseException]:
    """Each deed again and again in a thread of its own; what went wrong without a code of ours."""
    wrong: list[BaseException] = []

    def repeat(deed: Callable[[random.Random], Any], seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311  # a test's dice
        try:
            for _ in range(ROUNDS):
                try:
                    deed(dice)
                except Refusal:
                    continue
                except OperationalError as error:
                    # SQLite has one writer: a queue that is too long is no fault of ours.
                    if "locked" not in str(error):
                        raise
        except BaseException as error:
            wrong.append(error)
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=repeat, args=(deed, seed)) for seed, deed in enumerate(deeds)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    return wrong


def test_inv_38_edits_and_undos_against_running_preparations(
    busy_chat: Chat, now: datetime
) -> None:
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        pytest.skip("A database in memory has one connection.")
    alice = busy_chat.owner
    clock = iter(now + timedelta(minutes=n) for n in range(100_000))

    def any_message(dice: random.Random) -> Message:
        branch = Branch.objects.get(chat=busy_chat)
        seq = dice.randrange(1, branch.last_seq + 1)
        return history.on_path(branch, after=seq - 1, before=seq + 1).select_related("branch").get()

    def newest_summary() -> Compaction:
        rows = Compaction.objects.select_related("branch").filter(kind="summary")
        row = rows.order_by("-created_at").first()
        if row is None:
            raise controls.NotInForce
        return row

    def tidy(_dice: random.Random) -> None:
        maintain.maintain(chat_id=busy_chat.pk, counter=COUNTER, now=next(clock))

    def publish(_dice: random.Random) -> None:
        publish_prepared(branch_id=Branch.objects.get(chat=busy_chat).pk, now=next(clock))

    def mark(dice: random.Random) -> None:
        deed = dice.choice([marks.pin, marks.unpin, marks.exclude, marks.include])
        deed(message=any_message(dice), actor="user:1", now=next(clock))

    def turn_back(dice: random.Random) -> None:
        deed = dice.choice([undo.undo, undo.redo])
        deed(user=alice, compaction=newest_summary(), now=next(clock))

    def compact(_dice: random.Random) -> None:
        controls.compact_now(user=alice, chat=busy_chat, now=next(clock))
        maintain.maintain(chat_id=busy_chat.pk, counter=COUNTER, now=next(clock))

    wrong = in_threads([tidy, tidy, publish, mark, mark, turn_back, compact, compact])
    assert wrong == []
    branch = Branch.objects.select_related("active_compaction__base").get(chat=busy_chat)
    summary = force.summary_of(branch.active_compaction)
    assert summary is None or force.is_true(summary, branch)
    making = Compaction.objects.filter(status__in=force.IN_THE_MAKING)
    assert making.count() <= 1
    for receipt in Receipt.objects.all():
        check_partition(
            last_seq=receipt.last_seq,
            sent=sorted(segment[2] for segment in receipt.segments if segment[2]),
            left_out=[LeftOut(*part) for part in receipt.left_out],
        )
    assert list(ledger.verify()) == []
