"""`python -m tests.faults.round_kills`: kill processes while agents reply, in turn or in parallel.

Each step is an operation in a child process, or several at the same time. Operations: a person's
message, work on a turn, a stop, a retry of a failed reply, continuing a round, regenerating a
reply, and a sweep. Some are killed (SIGKILL) at a random boundary: before a statement, or on either
side of a commit. Dead workers are swept and the work continues. A model of the script
(`round_play`) computes the expected state with the pure engine. Every step is compared with it.

--rounds N     minimum number of rounds
    --kills N      number of kills; the rest is not killed
    --naive NAME   break the product first to check that this program notices

Exits with a code other than 0 at the first violation. Data is stored as for `crashes`.
"""

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tests.faults.borders import Border, fork  # Sets up Django, so it comes first.

# isort: split

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from chats.background import due_jobs
from chats.ground.refusals import Refusal
from chats.models import Branch, Message, Round, Turn
from chats.record import history
from chats.turns.stop import stop_turn
from tests.faults import town
from tests.faults.laws import Violation, branch_of
from tests.faults.round_play import FOREVER, NAMES, RULES
from tests.faults.round_scene import Deed, Scene
from tests.faults.round_ways import WAYS

# More boundaries than the work on a turn has.
BORDERS = 100
# The maximum number of branches of a chat, so that the checks stay fast.
BRANCHES = 6
STUCK_SECONDS = 60


def in_children(deeds: Sequence[Deed], *, at: Sequence[int]) -> int:
    """Run operations concurrently in child processes; return how many were killed.

    Leases of dead workers are released at once, as by the sweep. A refusal with a code is a valid
    result; any other failure is a violation.
    """
    children: dict[int, int] = {}
    for number, (action, place) in enumerate(zip(deeds, at, strict=True)):
        children[fork(partial(under_borders, action, at=place))] = number
    killed, give_up = 0, time.monotonic() + STUCK_SECONDS
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            number = children.pop(child)
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                killed += 1
                if children:
                    due_jobs.take_over(now=timezone.now(), worker=f"test-{number}")
            elif status != 0:
                end_all(children)
                raise Violation("a process failed in another way than by its death")
        elif time.monotonic() > give_up:
            end_all(children)
            raise Violation("a process never ends")
        else:
            time.sleep(0.002)
    return killed


def end_all(children: dict[int, int]) -> None:
    """End the remaining processes."""
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def under_borders(action: Deed, *, at: int) -> None:
    """Run an operation and die at a boundary."""
    border = Border(at)
    connection._commit = border.committing  # type: ignore[attr-defined]  # as in `crashes`
    with connection.execute_wrapper(border), suppress(Refusal):
        action()


def kill_rounds(
    owner: User, *, rounds_wanted: int, kills: int, dice: random.Random
) -> Counter[tuple[str, str]]:
    """Kill operations of rounds at random boundaries; return the kills and completions of each."""
    kinds = sorted(RULES)
    scenes = [Scene(owner, kinds[n % len(kinds)]) for n in range(max(6, rounds_wanted // 5))]
    seen: Counter[tuple[str, str]] = Counter()
    killed = number = 0
    while killed < kills or Round.objects.count() < rounds_wanted:
        number += 1
        scene = dice.choice(scenes)
        name, deeds = pick(scene, number=number, dice=dice)
        hit = [killed < kills and dice.random() < 0.6 / len(deeds) ** 0.5 for _ in deeds]
        borders = BORDERS if "work" in name or "lanes" in name else BORDERS // 4
        died = in_children(deeds, at=[dice.randrange(1, borders) if one else 0 for one in hit])
        killed += died
        seen[name, "killed"] += died
        seen[name, "ended"] += len(deeds) - died
        scene.look(certain=not died)
        if died:
            again = killed < kills and dice.random() < 0.3
            if in_children([scene.heal], at=[dice.randrange(1, BORDERS // 4) if again else 0]):
                killed += 1
                seen["heal", "killed"] += 1
                scene.look(certain=True)
                scene.heal()
            scene.look(certain=True)
    for scene in scenes:
        settle(scene, seen=seen)
    return seen


def pick(scene: Scene, *, number: int, dice: random.Random) -> tuple[str, list[Deed]]:
    """Pick one operation that the chat allows, or several concurrent ones."""
    turns = scene.unfinished()
    named = dice.choice(NAMES) if dice.random() < 0.3 else ""
    text = f"{f'@{named} ' if named else ''}Message {number}: what do you think?"
    if not turns:
        return begin(scene, text=text, named=named, dice=dice)
    found = dice.random()
    if found < 0.06:
        return stop_some(scene, turns, dice=dice)
    if found < 0.08 and (again := anew(scene, dice=dice)):
        return again
    if found < 0.25:
        return write(scene, text=text, named=named, dice=dice)
    lanes = sum(bool(turn.lane) for turn in turns)
    if found < (0.95 if lanes > 1 else 0.65):
        return together(scene, dice=dice)
    return "work", [scene.work]


def stop_some(scene: Scene, turns: list[Turn], *, dice: random.Random) -> tuple[str, list[Deed]]:
    """Stop a reply, with or without its parallel replies, or stop all."""
    given: dict[str, Any] = {"user": scene.chat.owner, "turn": dice.choice(turns)}
    given |= {"now": timezone.now(), "with_others": dice.random() < 0.5}
    if dice.random() < 0.4:
        return "stop all", [scene.stop]
    return "stop", [partial(stop_turn, **given)]


def write(scene: Scene, *, text: str, named: str, dice: random.Random) -> tuple[str, list[Deed]]:
    """Write a message between two replies, during one, or concurrently with a worker."""
    found = dice.random()
    said = scene.say(text, named)
    if found < 0.3:
        return "write", [said]
    if found < 0.7:
        return "work, write", [partial(scene.work, meanwhile=said)]
    return "work beside it", [partial(scene.work, worker="test-0"), said]


def together(scene: Scene, *, dice: random.Random) -> tuple[str, list[Deed]]:
    """Two or three workers: on lanes of a round, on branches, or on the same turn."""
    turns = scene.workable()
    is_apart = sum(bool(turn.lane) for turn in turns) > 1
    workers = dice.choice([2, 2, 3])
    chosen = turns[:workers] if dice.random() < 0.7 else dice.sample(turns, min(2, len(turns)))
    chosen += [chosen[0]] * (2 - len(chosen))
    deeds = [
        partial(scene.work, turn, worker=f"test-{number}") for number, turn in enumerate(chosen)
    ]
    return "lanes at once" if is_apart else "two workers", list(deeds)


def begin(scene: Scene, *, text: str, named: str, dice: random.Random) -> tuple[str, list[Deed]]:
    """A person's action while no reply runs: write, continue, retry or regenerate."""
    branch = branch_of(scene.chat)
    last = Turn.objects.filter(branch=branch).order_by("accepted").last()
    made = Round.objects.filter(branch=branch).order_by("started_at").last()
    found = dice.random()
    # The script of `round_play` has no retry of a reply that was stopped.
    if last is not None and last.status == Turn.Status.FAILED and found < 0.95:
        return "retry", [scene.retry(last)]
    if made is not None and made.status in ("limit", "pair", "stopped", "failed") and found < 0.6:
        return "go on", [scene.go_on]
    if found < 0.25 and (again := anew(scene, dice=dice)):
        return again
    return "ask", [scene.say(text, named)]


def anew(scene: Scene, *, dice: random.Random) -> tuple[str, list[Deed]] | None:
    """Regenerate a reply, alone or with the replies that followed; None without a reply."""
    branch = branch_of(scene.chat)
    path = history.select_path_messages(branch, after=0, before=branch.last_seq + 1)
    replies = list(path.filter(role="assistant", turn__agent__isnull=False).order_by("seq"))
    if not replies or Branch.objects.filter(chat=scene.chat).count() >= BRANCHES:
        return None
    plays_on = dice.random() < 0.5
    message = Message.objects.get(pk=dice.choice(replies).pk)
    return (
        "again, play on" if plays_on else "again alone",
        [scene.ask_again(message, play_on=plays_on)],
    )


def settle(scene: Scene, *, seen: Counter[tuple[str, str]]) -> None:
    """Work until the queue is empty, then check that all replies exist."""
    while scene.unfinished():
        if in_children([scene.work], at=[0]):
            raise Violation("a process was killed from outside")
        seen["work", "ended"] += 1
        scene.look(certain=True)
    if Round.objects.filter(branch__chat=scene.chat, status="running").exists():
        raise Violation("a round runs and no agent is left to speak")


def main() -> None:
    """Run with the given options and print a table."""
    given = argparse.ArgumentParser()
    given.add_argument("--rounds", type=int, default=50)
    given.add_argument("--kills", type=int, default=100)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--naive", choices=sorted(WAYS))
    asked = given.parse_args()
    dice = random.Random(asked.seed)  # noqa: S311  # a test's dice
    # Stopped messages wait until the next round.
    settings.WAITING_PER_CHAT = FOREVER
    owner = town.prepare(dice)
    if asked.naive:
        WAYS[asked.naive]()
    table = kill_rounds(owner, rounds_wanted=asked.rounds, kills=asked.kills, dice=dice)
    lines = [f"database: {connection.vendor}, seed {asked.seed}"]
    lines.append(f"{'action':<24}{'killed':>8}{'ended':>8}")
    for name in sorted({name for name, _ in table}):
        lines.append(f"{name:<24}{table[name, 'killed']:>8}{table[name, 'ended']:>8}")
    ends = Counter(Round.objects.values_list("status", flat=True))
    turns = Counter(Turn.objects.values_list("status", flat=True))
    again = Turn.objects.filter(attempt__gt=1).count()
    lines += [
        "rounds: " + ", ".join(f"{n} {what}" for what, n in sorted(ends.items())),
        "turns: " + ", ".join(f"{n} {what}" for what, n in sorted(turns.items())),
        f"{again} turns were begun again",
        f"{sum(ends.values())} rounds,"
        f" {sum(n for (_, end), n in table.items() if end == 'killed')} kills",
        "0 hops lost, 0 doubled, every speaker the script's, every prompt the same again",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
