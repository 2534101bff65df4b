"""Counts all chats that a policy would change: time, memory, kills, a stop.

`python -m benchmarks.radius [--chats 10000] [--kills 3]` uses a separate database: SQLite, or
PostgreSQL under `scripts/with_postgres.sh`. A child of this program counts, as a worker does. It is
killed at random moments, and a successor continues. The count is also stopped and resumed once. The
program fails unless every chat has been counted once at the end.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.prepared import create_tables

SHORT, LONG, WINDOW = 6, 40, 12
# The share of chats that are long and would change.
SHARE = 3
LEASE = {"LEASE_SECONDS": "6", "HEARTBEAT_EVERY": "2"}
LOOK = 0.1


def main() -> None:
    """Build, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--count", default="", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.count:
        set_up()
        count(said.count)
        return
    with tempfile.TemporaryDirectory() as data:
        os.environ["PALIMPSEST_DATA"] = data
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        os.environ["REDIS_URL"] = f"unix://{data}/no-broker.sock"
        os.environ["LOG_LEVEL"] = "ERROR"
        os.environ["CHATS_PER_USER"] = "1000000"
        os.environ.update(LEASE)
        if os.environ.get("PALIMPSEST_TEST_DATABASE_URL"):
            os.environ["DATABASE_URL"] = os.environ["PALIMPSEST_TEST_DATABASE_URL"]
        set_up()
        create_tables()
        row = build(said.chats)
        sys.exit(play(row, chats=said.chats, kills=said.kills))


def set_up() -> None:
    """Load Django without sending any task."""
    import django

    django.setup()
    from chats.ground import queue

    queue.publish_task = queue.keep_here


def count(radius_id: str) -> None:
    """Count until the count ends or is stopped, task after task, as a worker does."""
    from uuid import UUID

    from django.utils import timezone

    from chats.simulation import radius
    from contextpolicy.models import BlastRadius

    while BlastRadius.objects.get(pk=radius_id).state == "counting":
        radius.continue_radius_count(
            radius_id=UUID(radius_id), clock=timezone.now, is_closing=lambda: False
        )
        time.sleep(LOOK)


def build(chats: int) -> Any:
    """Create the chats, a policy for everyone, and a running count."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from benchmarks import bulk
    from chats.models import Branch, Chat, Message
    from chats.simulation import radius
    from contextpolicy.models import ModelSpec
    from contextpolicy.policy_assignments import assign_policy
    from contextpolicy.publish import create_policy

    now = timezone.now()
    alice = User.objects.create_user("alice")
    ModelSpec.objects.create(slug="m", provider="demo", name="m", is_default=True)
    wide, narrow = ({"strategy": "simple", "window_size": size} for size in (LONG, WINDOW))
    policy = create_policy(slug="house", name="House", values=wide, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    said = bulk.texts(1_000, words=bulk.vocabulary())
    for start in range(0, chats, 500):
        numbers = range(start, min(start + 500, chats))
        made = [Chat(owner=alice, created_at=now, updated_at=now) for _ in numbers]
        Chat.objects.bulk_create(made)
        sizes = [LONG if number % SHARE == 0 else SHORT for number in numbers]
        branches = [
            Branch(chat=chat, created_at=now, last_seq=size)
            for chat, size in zip(made, sizes, strict=True)
        ]
        Branch.objects.bulk_create(branches)
        for chat, branch in zip(made, branches, strict=True):
            chat.active_branch, chat.accepted_count = branch, branch.last_seq
        Chat.objects.bulk_update(made, ["active_branch", "accepted_count"])
        Message.objects.bulk_create(
            (
                Message(
                    branch=branch,
                    seq=seq,
                    accepted=seq,
                    role="user" if seq % 2 else "assistant",
                    parts=[{"type": "text", "text": said[(place + seq) % len(said)]}],
                    token_count=60,
                    created_at=now,
                )
                for place, branch in enumerate(branches, start=start)
                for seq in range(1, branch.last_seq + 1)
            ),
            batch_size=1_000,
        )
    return radius.start_radius_count(
        policy=policy, values=narrow, locks=[], place="assigned", actor="system", now=now
    )


def play(row: Any, *, chats: int, kills: int) -> int:
    """Run counting processes, kill some, stop once; print the cost and return an exit code."""
    from django.db import connection
    from django.utils import timezone

    from chats.simulation import radius

    dice, began, most, own, killed = random.Random(11), time.perf_counter(), 0, 0, 0  # noqa: S311  # to be repeated
    is_stopped = False
    while row.state == "counting":
        child = subprocess.Popen(  # our own program, no shell
            [sys.executable, "-m", "benchmarks.radius", "--count", str(row.pk)]
        )
        # Of the total time, so that each child does a part.
        goal = dice.uniform(0.2, 1) * chats / (kills + 2) + row.judged
        while child.poll() is None:
            most = max(most, memory_of(child.pid, "Pss:"))
            own = max(own, memory_of(child.pid, "Pss_Anon:"))
            row.refresh_from_db()
            if killed < kills and row.judged >= goal:
                child.kill()
                child.wait()
                killed += 1
            elif not is_stopped and killed == kills and row.judged >= goal:
                radius.stop_radius_count(radius_id=row.pk, actor="system", now=timezone.now())
                is_stopped = True
            time.sleep(LOOK)
        row.refresh_from_db()
        if row.state == "stopped":
            row = radius.resume_radius_count(radius_id=row.pk, actor="system", now=timezone.now())
    took = time.perf_counter() - began
    wanted = len(range(0, chats, SHARE))
    is_exact = (row.state, row.judged, row.changed) == ("finished", chats, wanted)
    sys.stdout.write(
        f"{connection.vendor}: {row.judged} of {chats} chats counted once, {row.changed} change"
        f" (wanted {wanted}), {row.failed} failed, in {took:.0f} s with the waits for"
        f" {killed} killed and {int(is_stopped)} stop, {most / 1024:.0f} MB at most (PSS),"
        f" {own / 1024:.0f} of them without mapped files\n"
    )
    return 0 if is_exact else 1


def memory_of(pid: int, name: str) -> int:
    """The proportional memory (PSS) of a process in kB; 0 when it has ended."""
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except (OSError, ValueError):
        return 0
    lines = (line.split() for line in told.splitlines())
    return next((int(words[1]) for words in lines if words[0] == name), 0)


if __name__ == "__main__":
    main()
