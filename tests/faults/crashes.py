"""`python -m tests.faults.crashes`: processes killed at statement borders of compaction.

A border lies before each SQL statement and on both sides of each commit. A child of this program
does something to a chat and is killed (SIGKILL) at one border; then the chat must hold what it held
before, every law of compaction, and the next trigger and the next turn must work.

    --every N      the matrix: the first border and every Nth after it, each in a chat of its own
    --kills N      chaos: N kills at random borders of random deeds, over --chats chats
    --workers N    N processes at the same time, --steps random deeds each, over --chats chats

Ends with a code other than 0 at the first violation. Data lies in a folder that goes with the
process, or in the database PALIMPSEST_TEST_DATABASE_URL, which must be empty.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import tests.environment  # noqa: F401  # the data's place, before the settings are read

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
# Alice says something in many chats before anybody answers.
os.environ["RUNS_PER_USER"] = "1000"

import django  # needs the environment

django.setup()

from asgiref.sync import async_to_sync  # noqa: E402  # needs the settings, as all below
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, connections, transaction  # noqa: E402
from django.utils import timezone  # noqa: E402

from chats import branching, history, library, queue  # noqa: E402
from chats.compaction import controls, force, maintain, marks, pauses, plan, undo  # noqa: E402
from chats.compaction.publish import publish_prepared  # noqa: E402
from chats.models import Branch, Chat, Compaction, Message, ProviderAccount, Turn  # noqa: E402
from chats.providers.base import Finished, TextDelta  # noqa: E402
from chats.refusals import Refusal  # noqa: E402
from chats.turns.run import run  # noqa: E402
from chats.turns.start import start  # noqa: E402
from contextpolicy import ledger, publish  # noqa: E402
from contextpolicy.engine.tokens import ApproximateCounter  # noqa: E402
from contextpolicy.models import AuditEvent, ModelSpec, PolicyAssignment  # noqa: E402
from tests.chats.compaction.conftest import SENTENCE, VALUES  # noqa: E402
from tests.chats.compaction.test_random_walks import check, check_receipts  # noqa: E402
from tests.chats.conftest import InlineWorker, ScriptedProvider  # noqa: E402

COUNTER = ApproximateCounter()
ROUNDS = 8
# More than any deed has; a border beyond the end of a deed kills nobody.
BORDERS = 120
Deed = Callable[[], Any]


class Violation(Exception):
    """A promise was broken."""


class Border:
    """Counts the borders that this process crosses, and dies at one."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.crossed = 0
        # There is no public place to stand at.
        self.commit = connection._commit  # type: ignore[attr-defined]

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        """Before a statement."""
        self.cross()
        return execute(sql, params, many, context)

    def committing(self) -> None:
        """Before and after a commit."""
        self.cross()
        self.commit()
        self.cross()

    def cross(self) -> None:
        """Go over the next border, or die there."""
        self.crossed += 1
        if self.crossed == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def in_child(deed: Deed, *, at: int = 0) -> bool:
    """Do it in a process of its own; True when that was killed at its border.

    A refusal with a code is a right answer; any other failure is a violation.
    """
    for opened in connections.all():
        opened.close()
        # Sockets of a pool would be shared with the child.
        getattr(opened, "close_pool", bool)()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            border = Border(at)
            connection._commit = border.committing  # type: ignore[attr-defined]  # as above
            with connection.execute_wrapper(border), suppress(Refusal):
                deed()
            code = 0
        except BaseException:  # noqa: BLE001  # whatever it is, this process ends here
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status != 0:
        raise Violation("a process failed in another way than by its death")
    return False


def prepare() -> User:
    """Tables, Alice, a model, and a policy that folds early."""
    call_command("migrate", verbosity=0)
    queue.publish = lambda task, arguments: None  # nobody listens
    now = timezone.now()
    ProviderAccount.objects.get_or_create(slug="demo", defaults={"name": "Demo", "kind": "demo"})
    ModelSpec.objects.all().update(is_default=False)
    ModelSpec.objects.update_or_create(
        slug="crashes",
        defaults={
            "provider": "demo",
            "name": "demo",
            "context_window": 128_000,
            "is_default": True,
        },
    )
    PolicyAssignment.objects.filter(level="instance").delete()
    policy = publish.create_policy(
        slug="crashes", name="Crashes", values=VALUES, actor="system", now=now
    )
    publish.assign(policy=policy, level="instance", actor="system", now=now)
    return User.objects.create_user(f"alice-{uuid.uuid4().hex[:8]}")


def new_chat(owner: User) -> Chat:
    """A chat with a summary due."""
    chat = library.create_chat(owner=owner, now=timezone.now())
    for number in range(ROUNDS):
        say(chat, f"Question {number}. {SENTENCE}")
    return chat


def say(chat: Chat, text: str) -> Turn:
    """A whole turn, which must be answered once."""
    turn = start(user=chat.owner, chat=chat, text=text, now=timezone.now()).turn
    worker = InlineWorker(ScriptedProvider([[TextDelta(SENTENCE * 6), Finished("stop")]]))
    async_to_sync(run)(turn_id=turn.pk, worker=worker, runs=worker.runs)
    turn.refresh_from_db()
    replies = Message.objects.filter(turn=turn, role="assistant").count()
    if (turn.status, replies) != ("completed", 1):
        raise Violation(f"the turn is {turn.status} ({turn.error_code}) with {replies} replies")
    return turn


def branch_of(chat: Chat) -> Branch:
    """The chat's active branch as it is now."""
    chat.refresh_from_db(fields=["active_branch"])
    rows = Branch.objects.select_related("active_compaction__base", "chat")
    return rows.get(pk=str(chat.active_branch_id))


def originals(chat: Chat) -> str:
    """A hash over every message of the chat."""
    rows = Message.objects.filter(branch__chat=chat).order_by("accepted")
    values = [[str(row.pk), row.seq, row.role, row.parts] for row in rows]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def in_force(chat: Chat) -> tuple[Any, int]:
    """What is in force, and the revision."""
    branch = branch_of(chat)
    return branch.active_compaction_id, branch.context_revision


def assert_whole(chat: Chat, *, said: str) -> None:
    """No message lost, doubled or changed; every law of compaction; an unbroken ledger."""
    if originals(chat) != said:
        raise Violation("the originals changed")
    check(chat)
    for row in Compaction.objects.filter(branch__chat=chat):
        events = Counter(
            AuditEvent.objects.filter(chat_id=chat.pk, data__compaction=str(row.pk)).values_list(
                "type", flat=True
            )
        )
        once = {"published": "compaction.published", "prepared": "compaction.prepared"}
        if row.kind == "summary" and row.status in once and events[once[row.status]] != 1:
            raise Violation(f"a {row.status} summary has the events {events}")
        if row.status in once and row.kind == "summary" and not (row.text and row.sections):
            raise Violation("a usable summary is not whole")
    if breaks := list(ledger.verify(scope=f"chat:{chat.pk}")):
        raise Violation(f"the ledger is broken: {breaks}")


def heal(chat: Chat) -> None:
    """Time goes by: claims of the dead run out, and failures no longer count."""
    dead = Compaction.objects.filter(branch__chat=chat, status="preparing")
    dead.update(lease_until=timezone.now() - timedelta(hours=1))
    plan.sweep_dead(now=timezone.now())
    pauses.reset_breaker(chat=chat, actor="system", now=timezone.now())


def compact(chat: Chat) -> None:
    """Somebody asks for a compaction and a worker does it."""
    controls.compact_now(user=chat.owner, chat=chat, now=timezone.now())
    tidy(chat)


def tidy(chat: Chat) -> None:
    """What a worker does after a turn."""
    maintain.maintain(chat_id=chat.pk, counter=COUNTER, now=timezone.now())


def matrix(owner: User, *, every: int) -> Counter[str]:
    """Kill at one border after the other until the deed ends before it; what came of it."""
    seen: Counter[str] = Counter()
    for at in range(1, BORDERS * 10, every):
        chat = new_chat(owner)
        said, before = originals(chat), in_force(chat)
        killed = in_child(lambda chat=chat: compact(chat), at=at)  # type: ignore[misc]  # bound now
        after = in_force(chat)
        assert_whole(chat, said=said)
        if after != before:
            summary = force.summary_of(branch_of(chat).active_compaction)
            if summary is None or summary.status != "published" or after[1] != before[1] + 1:
                raise Violation(f"border {at}: neither as before nor fully published")
        seen["published" if after != before else "as before"] += 1
        heal(chat)
        compact(chat)
        if force.summary_of(branch_of(chat).active_compaction) is None:
            raise Violation(f"border {at}: the next trigger brought no summary")
        assert_whole(chat, said=said)
        say(chat, "And now?")
        check_receipts(chat, known=set())
        if not killed:
            seen["not killed"] += 1
            return seen
    raise Violation("the deed never ends")


def deeds(chat: Chat, dice: random.Random) -> dict[str, Deed]:
    """What is killed in chaos."""
    owner, now = chat.owner, timezone.now()
    newest = Compaction.objects.select_related("branch").filter(
        branch__chat=chat, kind="summary", status__in=["published", "undone"]
    )
    row = newest.order_by("-created_at").first()
    branch = branch_of(chat)
    seq = dice.randrange(1, branch.last_seq + 1)
    path = history.on_path(branch, after=seq - 1, before=seq + 1).select_related("branch")
    message = path.get()
    mark: dict[str, Any] = {"message": message, "actor": f"user:{owner.pk}", "now": now}
    found: dict[str, Deed] = {
        "compact": lambda: compact(chat),
        "prepare": lambda: tidy(chat),
        "publish": lambda: publish_prepared(branch_id=branch.pk, now=now),
        "pin": lambda: (marks.unpin if message.pinned_at else marks.pin)(**mark),
        "exclude": lambda: (marks.include if message.excluded else marks.exclude)(**mark),
    }
    if row is not None:
        turn_back = undo.undo if row.status == "published" else undo.redo
        found["undo, redo"] = lambda: turn_back(user=owner, compaction=row, now=now)
    return found


def chaos(owner: User, *, kills: int, chats: int, seed: int) -> Counter[tuple[str, str]]:
    """Kill random deeds at random borders; how many of each were killed or ended before."""
    dice = random.Random(seed)  # noqa: S311  # a test's dice
    places = [new_chat(owner) for _ in range(chats)]
    seen: Counter[tuple[str, str]] = Counter()
    killed = 0
    while killed < kills:
        chat = dice.choice(places)
        said = originals(chat)
        name, deed = dice.choice(sorted(deeds(chat, dice).items(), key=lambda item: item[0]))
        died = in_child(deed, at=dice.randrange(1, BORDERS if name == "compact" else BORDERS // 3))
        killed += died
        seen[name, "killed" if died else "ended"] += 1
        assert_whole(chat, said=said)
        heal(chat)
        assert_whole(chat, said=said)
        say(chat, f"Step {killed}. {SENTENCE}")
    for chat in places:
        compact(chat)
        said = originals(chat)
        assert_whole(chat, said=said)
        check_receipts(chat, known=set())
    return seen


def alongside(owner: User, *, workers: int, chats: int, steps: int, seed: int) -> Counter[str]:
    """Processes that do random deeds to the same chats at the same time; which deeds were done.

    After each of its steps a process locks the chat it touched and looks at every law.
    """
    places = [new_chat(owner) for _ in range(chats)]
    for opened in connections.all():
        opened.close()
        getattr(opened, "close_pool", bool)()
    children = []
    for number in range(workers):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                walk(places, dice=random.Random(seed * 1000 + number), steps=steps)  # noqa: S311  # a test's dice
                code = 0
            except BaseException:  # noqa: BLE001  # whatever it is, this process ends here
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    if any(ends):
        raise Violation("a process beside others found a law broken")
    for chat in places:
        answer_all(chat)
        heal(chat)
        say(chat, "And now?")
        check(chat)
        check_receipts(chat, known=set())
    kinds = AuditEvent.objects.filter(chat_id__in=[chat.pk for chat in places])
    if breaks := list(ledger.verify()):
        raise Violation(f"the ledger is broken: {breaks}")
    return Counter(kinds.values_list("type", flat=True))


def walk(places: list[Chat], *, dice: random.Random, steps: int) -> None:
    """One process: a deed, then a look; a revision never goes back."""
    revisions: dict[uuid.UUID, int] = {}
    for _ in range(steps):
        chat = dice.choice(places)
        with suppress(Refusal):
            deed = dice.choice(sorted(more_deeds(chat, dice).items(), key=lambda item: item[0]))[1]
            deed()
        with transaction.atomic():
            force.locked_chat(chat.pk)
            check(chat)
            for branch in Branch.objects.filter(chat=chat):
                if branch.context_revision < revisions.get(branch.pk, 0):
                    raise Violation("a context revision went back")
                revisions[branch.pk] = branch.context_revision


def more_deeds(chat: Chat, dice: random.Random) -> dict[str, Deed]:
    """What is done beside others: also edits and branches."""
    found = deeds(chat, dice)
    branch, now = branch_of(chat), timezone.now()
    # Not the first rounds: every branch keeps something that can be folded.
    path = history.on_path(branch, after=0, before=branch.last_seq + 1).select_related("branch")
    said = list(path.filter(role="user").order_by("seq"))
    other = dice.choice(list(Branch.objects.filter(chat=chat).order_by("created_at")))
    found["choose"] = lambda: branching.choose_branch(
        user=chat.owner, chat=chat, branch_id=other.pk, now=now
    )
    if len(said) > 1:
        by: dict[str, Any] = {"user": chat.owner, "message": dice.choice(said[1:]), "now": now}
        found["edit"] = lambda: branching.edit(text=f"Instead. {SENTENCE}", **by)
        found["branch"] = lambda: branching.branch_from(**by)
    return found


def answer_all(chat: Chat) -> None:
    """Let a worker answer everything that was said meanwhile."""
    for turn in Turn.objects.filter(branch__chat=chat, status="queued").order_by("accepted"):
        worker = InlineWorker(ScriptedProvider([]))
        async_to_sync(run)(turn_id=turn.pk, worker=worker, runs=worker.runs)
    left = Turn.objects.filter(branch__chat=chat, status__in=["queued", "running", "failed"])
    if left.exists():
        raise Violation(f"turns were not answered: {list(left.values_list('status', flat=True))}")


def main() -> None:
    """Do what is asked for and print a table."""
    given = argparse.ArgumentParser()
    given.add_argument("--every", type=int, default=0)
    given.add_argument("--kills", type=int, default=0)
    given.add_argument("--workers", type=int, default=0)
    given.add_argument("--steps", type=int, default=25)
    given.add_argument("--chats", type=int, default=20)
    given.add_argument("--seed", type=int, default=1)
    asked = given.parse_args()
    owner = prepare()
    lines = [f"database: {connection.vendor}, seed {asked.seed}"]
    if asked.every:
        found = matrix(owner, every=asked.every)
        lines += [f"{what:<24}{n:>6}" for what, n in sorted(found.items())]
    if asked.kills:
        table = chaos(owner, kills=asked.kills, chats=asked.chats, seed=asked.seed)
        lines.append(f"{'deed':<16}{'killed':>8}{'ended':>8}")
        for name in sorted({name for name, _ in table}):
            lines.append(f"{name:<16}{table[name, 'killed']:>8}{table[name, 'ended']:>8}")
        lines.append(f"{sum(n for (_, end), n in table.items() if end == 'killed')} kills")
    if asked.workers:
        numbers = {"workers": asked.workers, "chats": asked.chats, "steps": asked.steps}
        events = alongside(owner, seed=asked.seed, **numbers)
        lines += [f"{what:<28}{n:>6}" for what, n in sorted(events.items())]
    lines.append("0 lost, 0 doubled, 0 half-published, every receipt a partition")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
