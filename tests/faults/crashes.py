"""`python -m tests.faults.crashes`: kill processes at statement boundaries of compaction.

A boundary is before each SQL statement and on both sides of each commit. A child process runs an
operation on a chat and is killed (SIGKILL) at one boundary. The chat must then have its earlier
content and satisfy every invariant (`laws`). The next trigger and the next turn must work.

--every N      matrix: the first boundary and every Nth after it, each in a new chat
    --kills N      chaos: N kills at random boundaries of random operations, over --chats chats,
                   of gateway requests, and of the replies of teams
    --workers N    N concurrent processes, --steps random operations each, over --chats chats
    --naive NAME   break the product first (see `naive`) to check that this program notices

Exits with a code other than 0 at the first violation. Data is in a folder that is removed with the
process, or in the database PALIMPSEST_TEST_DATABASE_URL, which must be empty.
"""

import argparse
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tests.environment  # noqa: F401  # the data's place, before the settings are read

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
# Alice writes messages in many chats before any reply is made.
os.environ["TURNS_PER_USER"] = "1000"

import django  # needs the environment

django.setup()

from django.contrib.auth.models import User  # noqa: E402  # needs the settings, as all below
from django.db import connection, connections, transaction  # noqa: E402  # as above
from django.utils import timezone  # noqa: E402  # as above

from chats.compaction import coverage  # noqa: E402  # as above
from chats.compaction.publish import publish_prepared  # noqa: E402  # as above
from chats.ground.refusals import Refusal  # noqa: E402  # as above
from chats.models import Chat, Compaction  # noqa: E402  # as above
from chats.record import locking  # noqa: E402  # as above
from contextpolicy import ledger  # noqa: E402  # as above
from contextpolicy.models import AuditEvent, ModelSpec  # noqa: E402  # as above
from tests.faults import (  # noqa: E402  # as above
    naive,
    program_place,  # as above
    town,
)
from tests.faults.laws import (  # noqa: E402  # as above
    Seen,
    Violation,
    assert_laws,
    assert_sound,
    assert_undo_gives_back,
    branch_of,
    in_force,
    originals,
)
from tests.faults.program_place import ProgramPlace  # noqa: E402  # as above
from tests.faults.round_play import RULES  # noqa: E402  # as above
from tests.faults.round_scene import Scene  # noqa: E402  # as above
from tests.faults.town import Deed, compact, heal, new_chat, say, summaries  # noqa: E402  # as above
from tests.support.chat_summaries import SENTENCE  # noqa: E402  # as above

# More than any operation has; a boundary after its end kills no process.
BORDERS = 120
PROGRAMS, TEAMS = 4, 4


class Border:
    """Counts the boundaries that this process crosses, and kills it at one."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.crossed = 0
        # Django has no public hook for this.
        self.commit = connection._commit  # type: ignore[attr-defined]

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        """Cross the boundary before a statement."""
        self.cross()
        return execute(sql, params, many, context)

    def committing(self) -> None:
        """Cross the boundaries before and after a commit."""
        self.cross()
        self.commit()
        self.cross()

    def cross(self) -> None:
        """Cross the next boundary, or die there."""
        self.crossed += 1
        if self.crossed == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def fork(action: Deed) -> int:
    """Run an operation in a child process and return its id. It exits with 1 on failure."""
    for opened in connections.all():
        opened.close()
        # A connection pool would share its sockets with the child.
        getattr(opened, "close_pool", bool)()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        action()
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it is, this process ends here
        traceback.print_exc()
    finally:
        os._exit(code)


def in_child(action: Deed, *, at: int = 0) -> bool:
    """Run an operation in a child process; return True if it was killed at its boundary.

    A refusal with a code is a valid result; any other failure is a violation.
    """

    def under_borders() -> None:
        border = Border(at)
        connection._commit = border.committing  # type: ignore[attr-defined]  # as above
        with connection.execute_wrapper(border), suppress(Refusal):
            action()

    _, status = os.waitpid(fork(under_borders), 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status != 0:
        raise Violation("a process failed in another way than by its death")
    return False


def assert_whole(chat: Chat, *, said: dict[str, str], known: set[Any]) -> None:
    """Check that no message is lost, doubled or changed, all invariants, and the ledger."""
    if not said.items() <= originals(chat).items():
        raise Violation("the originals changed")
    assert_laws(chat, known=known)
    if breaks := list(ledger.find_ledger_breaks(scope=f"chat:{chat.pk}")):
        raise Violation(f"the ledger is broken: {breaks}")


def matrix(owner: User, *, every: int) -> Counter[str]:
    """Kill at each boundary in turn until the operation completes; return the counts."""
    seen: Counter[str] = Counter()
    for at in range(1, BORDERS * 10, every):
        chat, known = new_chat(owner), set[Any]()
        said, before = originals(chat), in_force(chat)
        killed = in_child(lambda chat=chat: compact(chat), at=at)  # type: ignore[misc]  # bound now
        after = in_force(chat)
        assert_whole(chat, said=said, known=known)
        if after != before:
            summary = coverage.get_active_summary(branch_of(chat).active_compaction)
            if summary is None or summary.status != "published" or after[1] != before[1] + 1:
                raise Violation(f"border {at}: neither as before nor fully published")
        seen["published" if after != before else "as before"] += 1
        heal(chat)
        compact(chat)
        if coverage.get_active_summary(branch_of(chat).active_compaction) is None:
            raise Violation(f"border {at}: the next trigger brought no summary")
        say(chat, "And now?")
        assert_whole(chat, said=said, known=known)
        if not killed:
            seen["not killed"] += 1
            return seen
    raise Violation("the action never ends")


def chaos(owner: User, *, kills: int, chats: int, dice: random.Random) -> Counter[tuple[str, str]]:
    """Kill random operations at random boundaries; return the kills and completions of each.

    Operations in chats, gateway requests and rounds of teams alternate.
    """
    kinds = (town.BY_MODEL, town.PLAIN, town.NARROW)
    places = [new_chat(owner, kind=kinds[n % len(kinds)]) for n in range(chats)]
    program_place.prepare()
    programs = [ProgramPlace(owner, n) for n in range(PROGRAMS)]
    rules = sorted(RULES)
    scenes = [Scene(owner, rules[n % len(rules)]) for n in range(TEAMS)]
    seen: Counter[tuple[str, str]] = Counter()
    known: set[Any] = set()
    killed = number = 0
    while killed < kills:
        number += 1
        if number % 3 == 1:
            killed += kill_request(dice.choice(programs), dice=dice, seen=seen)
            continue
        if number % 3 == 2:
            killed += kill_round(dice.choice(scenes), number=number, dice=dice, seen=seen)
            continue
        killed += kill_deed(dice.choice(places), killed=killed, known=known, dice=dice, seen=seen)
    for chat in places:
        assert_settled(chat)
    for scene in scenes:
        end_round(scene)
    return seen


def end_round(scene: Scene) -> None:
    """Work until no team member has a pending reply."""
    while scene.unfinished():
        scene.work()
        scene.look(certain=True)


def kill_deed(
    chat: Chat,
    *,
    killed: int,
    known: set[Any],
    dice: random.Random,
    seen: Counter[tuple[str, str]],
) -> bool:
    """Kill an operation at a random boundary, check every invariant, then continue the chat."""
    said = originals(chat)
    name, action = town.pick(town.deeds(chat, dice), dice)
    short = name not in {"compact", "say"}
    died = in_child(action, at=dice.randrange(1, BORDERS // 3 if short else BORDERS))
    seen[name, "killed" if died else "ended"] += 1
    assert_whole(chat, said=said, known=known)
    if name != "say" and originals(chat) != said:
        raise Violation("a message came from nowhere")
    heal(chat)
    say(chat, f"Step {killed + died}. {SENTENCE}")
    assert_whole(chat, said=said, known=known)
    assert_sound(chat)
    return died


def kill_request(
    place: ProgramPlace, *, dice: random.Random, seen: Counter[tuple[str, str]]
) -> bool:
    """Kill a gateway request at a random boundary, then repeat it with its idempotency key."""
    body, leaves = place.next_request(dice), dice.random() < 0.2
    died = in_child(place.action(body, leaves=leaves), at=dice.randrange(1, BORDERS))
    seen["request", "killed" if died else "ended"] += 1
    place.settle(body, seen)
    return died


def kill_round(
    scene: Scene, *, number: int, dice: random.Random, seen: Counter[tuple[str, str]]
) -> bool:
    """Kill a step of a team's round at a random boundary: a message, or a reply."""
    is_asked = not scene.unfinished()
    action = scene.say(f"Message {number}: what do you think?", "") if is_asked else scene.work
    died = in_child(action, at=dice.randrange(1, BORDERS // 4 if is_asked else BORDERS))
    seen["round", "killed" if died else "ended"] += 1
    scene.look(certain=not died)
    if died:
        scene.heal()
        scene.look(certain=True)
    return died


def assert_settled(chat: Chat) -> None:
    """Check that all turns are answered, and that compaction and its undo still work."""
    heal(chat)
    if chat.title == town.WITHOUT and summaries(chat).exists():
        raise Violation("a summary was written under a policy without summaries")
    # The second summary builds on the first.
    for number in range(2 if chat.title != town.WITHOUT else 0):
        say(chat, f"At last {number}. {SENTENCE}")
        say(chat, f"And then {number}. {SENTENCE}")
        assert_undo_gives_back(chat, compact=lambda: compact(chat))
    if chat.title == town.PLAIN:
        assert_one_request_is_enough(chat)
    assert_laws(chat, known=set())
    assert_sound(chat)


def assert_one_request_is_enough(chat: Chat) -> None:
    """Law 62: a second request on an unchanged chat is a recorded no-op."""
    compact(chat)
    skipped = AuditEvent.objects.filter(chat_id=chat.pk, type="compaction.skipped")
    before = (summaries(chat).count(), in_force(chat), skipped.count() + 1)
    compact(chat)
    if (summaries(chat).count(), in_force(chat), skipped.count()) != before:
        raise Violation("a second request on an unchanged chat was not a recorded no-op")


def alongside(owner: User, *, workers: int, chats: int, steps: int, seed: int) -> Counter[str]:
    """Run random operations on the same chats in several processes; return the resulting events.

    After each step a process locks the chat it changed and checks every invariant.
    """
    places = [new_chat(owner, kind=town.KINDS[n % len(town.KINDS)]) for n in range(chats)]
    children = [
        fork(lambda n=n: walk(places, dice=random.Random(seed * 1000 + n), steps=steps))  # type: ignore[misc]  # noqa: S311  # a test's dice, bound now
        for n in range(workers)
    ]
    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            for other in children:
                os.kill(other, signal.SIGKILL)
            raise Violation("one of several processes found a broken law")
    for chat in places:
        assert_settled(chat)
    if breaks := list(ledger.find_ledger_breaks()):
        raise Violation(f"the ledger is broken: {breaks}")
    learned = ModelSpec.objects.filter(slug=town.NARROW, learned_window__isnull=True).exists()
    refused = AuditEvent.objects.filter(type="model.limit_learned").exists()
    if refused and learned:
        raise Violation("a learned limit was forgotten")
    kinds = AuditEvent.objects.filter(chat_id__in=[chat.pk for chat in places])
    return Counter(kinds.values_list("type", flat=True))


def walk(places: list[Chat], *, dice: random.Random, steps: int) -> None:
    """Run random operations in one process, with a check after each."""
    town.use(dice)
    town.wait_long()
    seen = Seen()
    for _ in range(steps):
        chat = dice.choice(places)
        with suppress(Refusal):
            town.pick(town.more_deeds(chat, dice), dice)[1]()
        with transaction.atomic():
            lock(chat)
            seen.look(chat)
            # Another process changes the limit of the narrow model.
            if chat.title != town.NARROW:
                try_undo(chat)


def try_undo(chat: Chat) -> None:
    """Publish a prepared summary and undo it; the chat must be unchanged."""
    point = transaction.savepoint()
    try:
        given: dict[str, Any] = {"branch_id": branch_of(chat).pk, "now": timezone.now()}
        assert_undo_gives_back(chat, compact=lambda: publish_prepared(**given))
    finally:
        transaction.savepoint_rollback(point)


def lock(chat: Chat) -> None:
    """Lock a chat and its summaries until the transaction ends."""
    locking.lock_chat(chat.pk)
    rows = Compaction.objects.select_for_update(of=("self",), no_key=True)
    list(rows.filter(branch__chat=chat).order_by("pk").values_list("pk"))


def main() -> None:
    """Run the selected programs and print a table."""
    given = argparse.ArgumentParser()
    given.add_argument("--every", type=int, default=0)
    given.add_argument("--kills", type=int, default=0)
    given.add_argument("--workers", type=int, default=0)
    given.add_argument("--steps", type=int, default=25)
    given.add_argument("--chats", type=int, default=20)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--naive", choices=sorted(naive.WAYS))
    asked = given.parse_args()
    dice = random.Random(asked.seed)  # noqa: S311  # a test's dice
    owner = town.prepare(dice)
    if asked.naive:
        naive.WAYS[asked.naive]()
    lines = [f"database: {connection.vendor}, seed {asked.seed}"]
    if asked.every:
        found = matrix(owner, every=asked.every)
        lines += [f"{what:<24}{n:>6}" for what, n in sorted(found.items())]
    if asked.kills:
        table = chaos(owner, kills=asked.kills, chats=asked.chats, dice=dice)
        lines.append(f"{'action':<16}{'killed':>8}{'ended':>8}")
        for name in sorted({name for name, _ in table}):
            lines.append(f"{name:<16}{table[name, 'killed']:>8}{table[name, 'ended']:>8}")
        lines.append(f"{sum(n for (_, end), n in table.items() if end == 'killed')} kills")
    if asked.workers:
        numbers = {"workers": asked.workers, "chats": asked.chats, "steps": asked.steps}
        events = alongside(owner, seed=asked.seed, **numbers)
        lines += [f"{what:<28}{n:>6}" for what, n in sorted(events.items())]
    lines.append("0 lost, 0 doubled, 0 half-published, 0 burnt keys, every receipt a partition")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
