"""`python -m tests.faults.crashes`: kill processes at statement boundaries and at random times.

A boundary is before each SQL statement and on both sides of each commit. A child process runs an
operation on a chat and is killed (SIGKILL) at one boundary. The chat must then have its earlier
content and satisfy every invariant (`laws`). The next trigger and the next turn must work.

--every N      matrix: the first boundary and every Nth after it, each in a new chat
    --kills N      chaos: N kills of random operations at random places: in --chats chats, of
                   gateway requests, of replies of teams, of uploads, readers and deletions of
                   files, and of replies that call tools
    --of KINDS     only some of these: chats,requests,rounds,files,tools
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
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from tests.faults.borders import fork, in_child  # Sets up Django, so it comes first.

# isort: split

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from chats.background import due_jobs
from chats.compaction import coverage
from chats.compaction.publish import publish_prepared
from chats.files import storage, working_folders
from chats.ground.refusals import Refusal
from chats.models import Chat, Compaction
from chats.record import locking
from contextpolicy import ledger
from contextpolicy.models import AuditEvent, ModelSpec
from tests.faults import file_laws, file_place, naive, program_place, tool_place, town
from tests.faults.file_place import FilePlace
from tests.faults.laws import (
    Seen,
    Violation,
    assert_laws,
    assert_sound,
    assert_undo_gives_back,
    branch_of,
    in_force,
    originals,
)
from tests.faults.program_place import ProgramPlace
from tests.faults.round_play import RULES
from tests.faults.round_scene import Scene
from tests.faults.tool_place import ToolPlace
from tests.faults.town import compact, heal, new_chat, say, summaries
from tests.support.chat_summaries import SENTENCE

# More than any operation has; a boundary after its end kills no process.
BORDERS = 120
PROGRAMS, TEAMS, PEOPLE, ASKERS = 4, 4, 2, 2
KINDS = ("chats", "requests", "rounds", "files", "tools")


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


class Chaos:
    """The chats, clients, teams, people and tool calls whose processes are killed."""

    def __init__(self, owner: User, *, chats: int, dice: random.Random) -> None:
        self.dice = dice
        self.seen: Counter[tuple[str, str]] = Counter()
        self.known: set[Any] = set()
        self.killed = 0
        kinds = (town.BY_MODEL, town.PLAIN, town.NARROW)
        self.chats = [new_chat(owner, kind=kinds[n % len(kinds)]) for n in range(chats)]
        program_place.prepare()
        self.programs = [ProgramPlace(owner, n) for n in range(PROGRAMS)]
        rules = sorted(RULES)
        self.scenes = [Scene(owner, rules[n % len(rules)]) for n in range(TEAMS)]
        self.temporary = file_place.prepare()
        self.people = [FilePlace(n, dice=dice) for n in range(PEOPLE)]
        log = tool_place.prepare()
        self.askers = [ToolPlace(owner, n, log=log, dice=dice) for n in range(ASKERS)]

    def step(self, kind: str, *, number: int) -> int:
        """Kill an operation of one kind at a random place; return the kills."""
        dice, seen = self.dice, self.seen
        if kind == "chats":
            chat = dice.choice(self.chats)
            return kill_deed(chat, killed=self.killed, known=self.known, dice=dice, seen=seen)
        if kind == "requests":
            return kill_request(dice.choice(self.programs), dice=dice, seen=seen)
        if kind == "rounds":
            return kill_round(dice.choice(self.scenes), number=number, dice=dice, seen=seen)
        if kind == "files":
            return dice.choice(self.people).step(seen)
        return dice.choice(self.askers).step(seen)

    def settle(self) -> None:
        """End all work, then check every guarantee."""
        for chat in self.chats:
            assert_settled(chat)
        for scene in self.scenes:
            end_round(scene)
        for asker in self.askers:
            asker.settle()
        for person in self.people:
            person.settle()
        later = timezone.now() + 2 * storage.UPLOAD_TIME
        working_folders.UNLOCKED_SECONDS = 0.0
        due_jobs.run_due_job("removed_files", now=later)
        file_laws.assert_nothing_left()
        if left := [str(path) for path in self.temporary.iterdir()]:
            raise Violation(f"temporary files of killed processes stay: {left}")
        if breaks := list(ledger.find_ledger_breaks()):
            raise Violation(f"the ledger is broken: {breaks}")


def chaos(owner: User, *, kills: int, chats: int, of: Sequence[str], dice: random.Random) -> Chaos:
    """Kill random operations at random places, then check everything.

    Operations of the kinds `of` alternate.
    """
    here = Chaos(owner, chats=chats, dice=dice)
    for number in count(1):
        here.killed += here.step(of[number % len(of)], number=number)
        if here.killed >= kills:
            break
    here.settle()
    return here


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


def list_options() -> argparse.Namespace:
    """The options of this program."""
    given = argparse.ArgumentParser()
    given.add_argument("--every", type=int, default=0)
    given.add_argument("--kills", type=int, default=0)
    given.add_argument("--workers", type=int, default=0)
    given.add_argument("--steps", type=int, default=25)
    given.add_argument("--chats", type=int, default=20)
    given.add_argument("--of", default=",".join(KINDS))
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--naive", choices=sorted(naive.WAYS))
    return given.parse_args()


def list_kills(table: Counter[tuple[str, str]]) -> list[str]:
    """The lines of the table of kills."""
    lines = [f"{'action':<16}{'killed':>8}{'ended':>8}"]
    for name in sorted({name for name, _ in table}):
        lines.append(f"{name:<16}{table[name, 'killed']:>8}{table[name, 'ended']:>8}")
    lines.append(f"{sum(n for (_, end), n in table.items() if end == 'killed')} kills")
    return lines


def main() -> None:
    """Run the selected programs and print a table."""
    asked = list_options()
    dice = random.Random(asked.seed)  # noqa: S311  # a test's dice
    owner = town.prepare(dice)
    if asked.naive:
        naive.WAYS[asked.naive]()
    lines = [f"database: {connection.vendor}, seed {asked.seed}"]
    if asked.every:
        found = matrix(owner, every=asked.every)
        lines += [f"{what:<24}{n:>6}" for what, n in sorted(found.items())]
    if asked.kills:
        of = [kind for kind in KINDS if kind in asked.of.split(",")]
        here = chaos(owner, kills=asked.kills, chats=asked.chats, of=of, dice=dice)
        lines += list_kills(here.seen)
        lines.append(f"{sum(asker.unknown for asker in here.askers)} calls of unknown outcome")
    if asked.workers:
        numbers = {"workers": asked.workers, "chats": asked.chats, "steps": asked.steps}
        events = alongside(owner, seed=asked.seed, **numbers)
        lines += [f"{what:<28}{n:>6}" for what, n in sorted(events.items())]
    lines.append("0 lost, 0 doubled, 0 half-published, 0 burnt keys, every receipt a partition")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
