"""Chats of four kinds, and the operations of a person and a worker in them, for `crashes`."""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from chats.actions import branching, erasure, lifecycle, marks
from chats.background import due_jobs
from chats.compaction import coverage, maintain, pauses
from chats.compaction.people import controls, undo
from chats.compaction.publish import publish_prepared
from chats.ground import queue
from chats.models import Branch, Chat, Compaction, ProviderAccount, Turn
from chats.providers import registry
from chats.providers.base import Finished, ProviderError, ProviderRequest, TextDelta
from chats.record import history
from chats.turns.start import start_turn
from chats.turns.stop import stop_turn
from contextpolicy import policy_assignments, publish
from contextpolicy.models import ContextPolicy, ModelSpec, PolicyAssignment
from project.tables import create_in_empty_database
from tests.fakes.summaries import summary_of
from tests.faults.laws import COUNTER, Violation, assert_nothing_in_the_making, branch_of
from tests.faults.naive import put
from tests.support.chat_summaries import SENTENCE, SMALL_POLICY
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

ROUNDS = 8
# The kinds: compaction without a model, room for undone summaries, a model that often fails, no
# summaries, and a model that refuses prompts as too long.
PLAIN, ROOMY, BY_MODEL, WITHOUT, NARROW = "plain", "roomy", "by-model", "without", "narrow"
KINDS = (PLAIN, ROOMY, BY_MODEL, WITHOUT, NARROW)
POLICIES: dict[str, dict[str, Any]] = {
    PLAIN: SMALL_POLICY,
    ROOMY: {**SMALL_POLICY, "token_budget": 16_000},
    BY_MODEL: {**SMALL_POLICY, "summarization_model": BY_MODEL},
    WITHOUT: {"strategy": "sliding_window", "token_budget": 2400, "reserve_tokens": 400},
}
OVERFLOW = ProviderError("context_overflow", status=400, limit=1900, actual=2600)
# Valid failures of a turn: its worker was declared dead repeatedly, or the prompt could not shrink.
MAY_FAIL = {"worker_lost", "context_overflow"}
OFTEN = {"say", "compact", "prepare", "publish", "undo, redo", "take over", "stop"}
Deed = Callable[[], Any]
Deeds = dict[str, Deed]


class UnexpectedFailures(logging.Handler):
    """Ends the program at a failure that the product survives and only logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise a violation with the cause."""
        cause = record.exc_info[1] if record.exc_info else None
        raise Violation(f"{record.getMessage()}: {cause!r}") from cause


class Summariser:
    """Writes good and bad summaries, or none, at random."""

    BAD = ("summary_echo", "summary_short", "summary_link", "summary_french")

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Any]:
        """One summary; half of them are good."""
        end = self.dice.choice(["stop"] * 6 + ["length", "none", "error"])
        kind = self.dice.choice(["summary"] * 8 + [*self.BAD])
        body = {"messages": [{"content": message.content} for message in request.messages]}
        yield TextDelta(summary_of(kind, body))
        if end == "error":
            raise ProviderError("provider_timeout")
        if end != "none":
            yield Finished("length" if end == "length" else "stop")

    async def aclose(self) -> None:
        """Do nothing."""


def prepare(dice: random.Random) -> User:
    """Create tables, Alice, models and policies, and install a fake queue and summariser."""
    create_in_empty_database()
    call_command("migrate", verbosity=0)
    put(queue, "publish_task", after_commit)
    logging.getLogger("chats").addHandler(UnexpectedFailures(level=logging.ERROR))
    use(dice)
    now = timezone.now()
    ProviderAccount.objects.get_or_create(slug="demo", defaults={"name": "Demo", "kind": "demo"})
    ModelSpec.objects.all().update(is_default=False)
    for slug in (PLAIN, BY_MODEL, NARROW):
        ModelSpec.objects.create(
            slug=slug,
            provider="demo",
            name=slug,
            context_window=128_000,
            is_default=slug == PLAIN,
        )
    PolicyAssignment.objects.filter(level="instance").delete()
    for slug, values in POLICIES.items():
        policy = publish.create_policy(slug=slug, name=slug, values=values, actor="system", now=now)
        # Of two policies the stricter limits apply.
        if slug == ROOMY:
            policy_assignments.assign_policy(
                policy=policy, level="instance", actor="system", now=now
            )
    return User.objects.create_user(f"alice-{uuid.uuid4().hex[:8]}")


def use(dice: random.Random) -> None:
    """Use this random generator for the content and duration of summaries."""
    put(maintain, "failpoint", taking_time(dice))
    put(registry, "get_provider", lambda *_, **__: Summariser(dice))


def wait_long() -> None:
    """Raise the lock timeout: checks under a lock are slow on a busy machine.

    A deadlock still ends.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '60s'")


def after_commit(task: str, _arguments: dict[str, str], *, countdown: float = 0.0) -> None:
    """Replaces the broker: no worker listens, but tasks must not be sent before the commit."""
    if connection.in_atomic_block:
        raise Violation(f"{task} was sent inside a transaction")


def taking_time(dice: random.Random) -> Callable[[str], None]:
    """Delay a summary so that other processes act; no transaction may be open (law 44)."""

    def failpoint(_name: str) -> None:
        if connection.in_atomic_block:
            raise Violation("a transaction is open while a summary is written")
        time.sleep(dice.random() * 0.03)

    return failpoint


def new_chat(owner: User, *, kind: str = PLAIN) -> Chat:
    """A chat with a summary due."""
    now = timezone.now()
    model = ModelSpec.objects.get(slug=NARROW) if kind == NARROW else None
    chat = lifecycle.create_chat(owner=owner, now=now, model=model, title=kind)
    if kind != ROOMY:
        policy = ContextPolicy.objects.get(slug=PLAIN if kind == NARROW else kind)
        policy_assignments.assign_policy(
            policy=policy, level="chat", chat_id=chat.pk, actor="system", now=now
        )
    for number in range(ROUNDS):
        say(chat, f"Question {number}. {SENTENCE}")
    return chat


def say(chat: Chat, text: str, *, overflows: bool = False) -> None:
    """A complete turn."""
    turn = start_turn(user=chat.owner, chat=chat, text=text, now=timezone.now()).turn
    answer(turn, overflows=overflows)


def answer(turn: Turn, *, overflows: bool = False) -> None:
    """Work on a turn that another worker may hold."""
    said = [TextDelta(SENTENCE * 3), a_moment, TextDelta(SENTENCE * 3), Finished("stop")]
    worker = InlineWorker(ScriptedProvider([[OVERFLOW], said] if overflows else [said]))
    async_to_sync(worker.turn)(turn.pk)


async def a_moment(_worker: InlineWorker) -> None:
    """A short delay in which another process may declare this worker dead."""
    await asyncio.sleep(0.03)


def answer_all(chat: Chat) -> None:
    """Let a worker answer all waiting messages, one after the other."""
    queued = Turn.objects.filter(branch__chat=chat, status="queued").order_by("accepted")
    while turn := queued.first():
        answer(turn)
        turn.refresh_from_db()
        if not turn.is_over:
            raise Violation(f"a turn stays {turn.status}")
    turns = Turn.objects.filter(branch__chat=chat)
    for turn in turns.exclude(status__in=["completed", "absorbed", "stopped"]):
        if turn.status != "failed" or turn.error_code not in MAY_FAIL:
            raise Violation(f"a turn is {turn.status} ({turn.error_code})")


def compact(chat: Chat) -> None:
    """Request a compaction and let a worker run it."""
    controls.compact_now(user=chat.owner, chat=chat, now=timezone.now())
    tidy(chat)


def tidy(chat: Chat) -> None:
    """Run a worker's jobs after a turn."""
    maintain.maintain_chat_context(chat_id=chat.pk, counter=COUNTER, now=timezone.now())


def declare_dead(chat: Chat) -> None:
    """Declare the workers of the chat dead: expire their claims and leases, and sweep."""
    past = timezone.now() - timedelta(hours=1)
    branches = list(chat.branches.values_list("pk", flat=True))
    # Not with a join: it would read the state at the statement's start, not the changed row's.
    Compaction.objects.filter(branch__in=branches, status="preparing").update(lease_until=past)
    Turn.objects.filter(branch__in=branches, status="running").update(lease_until=past)
    due_jobs.run_all_due_jobs(now=timezone.now())


def heal(chat: Chat) -> None:
    """Sweep dead workers, reset failures, and answer all messages."""
    declare_dead(chat)
    assert_nothing_in_the_making(chat)
    pauses.reset_breaker(chat=chat, actor="system", now=timezone.now())
    answer_all(chat)


def deeds(chat: Chat, dice: random.Random) -> Deeds:
    """The operations that chaos kills."""
    owner, now = chat.owner, timezone.now()
    branch = branch_of(chat)
    number = dice.randrange(10**9)
    found: Deeds = {
        "say": lambda: say(chat, f"Said {number}. {SENTENCE}", overflows=overflows(chat, dice)),
        "compact": lambda: compact(chat),
        "prepare": lambda: tidy(chat),
        "publish": lambda: publish_prepared(branch_id=branch.pk, now=now),
    }
    seq = dice.randrange(1, branch.last_seq + 1)
    path = history.select_path_messages(branch, after=seq - 1, before=seq + 1).select_related(
        "branch"
    )
    for message in path:
        mark: dict[str, Any] = {"message": message, "actor": f"user:{owner.pk}", "now": now}
        pins = marks.unpin_message if message.pinned_at else marks.pin_message
        hides = marks.include_message if message.excluded else marks.exclude_message
        found["pin"] = partial(pins, **mark)
        found["exclude"] = partial(hides, **mark)
    row = summaries(chat).filter(status__in=["published", "undone"]).first()
    if row is not None:
        turn_back = undo.undo_summary if row.status == "published" else undo.redo_summary
        found["undo, redo"] = lambda: turn_back(user=owner, compaction=row, now=now)
    return found


def pick(found: Deeds, dice: random.Random) -> tuple[str, Deed]:
    """Pick an operation; those of compaction are the most frequent."""
    names = sorted(found)
    name = dice.choices(names, [3 if name in OFTEN else 1 for name in names])[0]
    return name, found[name]


def overflows(chat: Chat, dice: random.Random) -> bool:
    """Return True if the model refuses the next prompt as too long."""
    return chat.title == NARROW and dice.random() < 0.3


def summaries(chat: Chat) -> Any:
    """The summaries of a chat, the newest first."""
    rows = Compaction.objects.select_related("branch").filter(branch__chat=chat, kind="summary")
    return rows.order_by("-created_at", "-attempt")


def more_deeds(chat: Chat, dice: random.Random) -> Deeds:
    """The concurrent operations: also edits, branches, erasures, and sweeps of running workers."""
    found = deeds(chat, dice)
    branch, now = branch_of(chat), timezone.now()
    # Not the first rounds: every branch keeps messages that can be compacted.
    path = history.select_path_messages(branch, after=0, before=branch.last_seq + 1).select_related(
        "branch"
    )
    said = list(path.filter(role="user").order_by("seq"))
    other = dice.choice(list(Branch.objects.filter(chat=chat).order_by("created_at")))
    found["choose"] = lambda: branching.choose_branch(
        user=chat.owner, chat=chat, branch_id=other.pk, now=now
    )
    found["take over"] = lambda: take_over(chat)
    if len(said) > 1:
        by: dict[str, Any] = {"user": chat.owner, "message": dice.choice(said[1:]), "now": now}
        found["edit"] = lambda: branching.edit_message(text=f"Instead. {SENTENCE}", **by)
        found["branch"] = lambda: branching.branch_from_message(**by)
        found["erase"] = lambda: erasure.erase_message(**by)
    turns = Turn.objects.filter(branch__chat=chat, status__in=["queued", "running"])
    if turn := turns.order_by("-accepted").first():
        found["stop"] = lambda: stop_turn(user=chat.owner, turn=turn, now=now)
    making = summaries(chat).filter(status="preparing").first()
    if making is not None:
        found["cancel"] = lambda: controls.cancel_summary(
            user=chat.owner, compaction=making, now=now
        )
    row = coverage.get_active_summary(branch.active_compaction)
    if row is not None:
        found["rerun"] = lambda: controls.request_summary_rerun(
            user=chat.owner, compaction=row, now=now
        )
    return found


def take_over(chat: Chat) -> None:
    """Declare the chat's workers dead and let another worker continue."""
    declare_dead(chat)
    for turn in Turn.objects.filter(branch__chat=chat, status="queued").order_by("accepted"):
        answer(turn)
    tidy(chat)
