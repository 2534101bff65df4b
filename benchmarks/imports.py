"""Imports in the background: time, memory, kills.

`python -m benchmarks.imports [--chats 1000] [--messages 20] [--kills 5] [--megabytes 0]` uses a
separate database: SQLite, or PostgreSQL under `scripts/with_postgres.sh`. `--megabytes` pads the
messages to this export size. `--apart` imports in a child process, as for large files. A child of
this program creates the chats, as a worker does. It is killed at random moments, and a successor
continues after the lease ends. The program fails unless every chat and message exists once at the
end.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from benchmarks.prepared import create_tables

LEASE = {"LEASE_SECONDS": "4", "HEARTBEAT_EVERY": "1"}
LOOK = 0.02


def main() -> None:
    """Send the file, import it, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=0)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.work:
        set_up()
        work(said.work)
        return
    with tempfile.TemporaryDirectory() as data:
        os.environ["PALIMPSEST_DATA"] = data
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        os.environ["REDIS_URL"] = f"unix://{data}/no-broker.sock"
        os.environ["LOG_LEVEL"] = "ERROR"
        os.environ["MAX_ATTEMPTS"] = "100"
        os.environ["IMPORT_APART_BYTES"] = "1" if said.apart else "1000000000"
        os.environ.update(LEASE)
        if os.environ.get("PALIMPSEST_TEST_DATABASE_URL"):
            os.environ["DATABASE_URL"] = os.environ["PALIMPSEST_TEST_DATABASE_URL"]
        set_up()
        create_tables()
        row = begun(said.chats, said.messages, megabytes=said.megabytes)
        sys.exit(play(row, chats=said.chats, messages=said.messages, kills=said.kills))


def set_up() -> None:
    """Load Django without sending any task."""
    import django

    django.setup()
    from chats.ground import queue

    queue.publish_task = queue.keep_here


def work(import_id: str) -> None:
    """Create chats until the import ends, task after task, as a worker does."""
    from uuid import UUID

    from django.utils import timezone

    from chats.exchange import apart
    from chats.models import FileImport
    from chats.prompt.tokenizer import O200kCounter

    while FileImport.objects.get(pk=import_id).finished_at is None:
        apart.import_file(
            import_id=UUID(import_id),
            counter=O200kCounter(),
            clock=timezone.now,
            is_closing=lambda: False,
        )
        time.sleep(LOOK)


def begun(chats: int, messages: int, *, megabytes: int) -> Any:
    """An import of this many chats and messages."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from chats.exchange import upload
    from contextpolicy.models import ModelSpec

    ModelSpec.objects.create(slug="m", provider="demo", name="m", is_default=True)
    alice = User.objects.create_user("alice")
    with tempfile.TemporaryFile() as file:
        write_export(file, chats=chats, messages=messages, megabytes=megabytes)
        return upload.start_import(file, owner=alice, now=timezone.now())


def write_export(file: IO[bytes], *, chats: int, messages: int, megabytes: int = 0) -> None:
    """Write an export in Claude's format, chat by chat."""
    from benchmarks import bulk

    texts = bulk.texts(1_000, words=bulk.vocabulary())
    least = megabytes * 1_000_000 // (chats * messages)
    for chat in range(chats):
        listed = []
        for place in range(messages):
            text = texts[(chat + place) % len(texts)]
            text = " ".join([text] * (least // len(text) + 1))
            sender = "assistant" if place % 2 else "human"
            listed.append({"uuid": f"m{place}", "sender": sender, "text": text})
        told = {"uuid": f"c{chat}", "name": f"Chat {chat}", "chat_messages": listed}
        file.write((b"," if chat else b"[") + json.dumps(told).encode())
    file.write(b"]")
    file.seek(0)


def most_memory(pid: int) -> int:
    """The memory of a process or of the child that imports for it, whichever is more; in kB."""
    from pathlib import Path

    from benchmarks.radius import memory_of

    try:
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        told = ""
    return max(memory_of(one, "Pss_Anon:") for one in [pid, *map(int, told.split())])


def play(row: Any, *, chats: int, messages: int, kills: int) -> int:
    """Run child processes, kill some, print the result, and return an exit code."""
    from django.db import connection

    from chats.models import Branch, Chat, FilePiece, ImportOutcome, Message

    dice, began, own, killed = random.Random(7), time.perf_counter(), 0, 0  # noqa: S311  # to be repeated
    while row.finished_at is None:
        child = subprocess.Popen(  # our own program, no shell
            [sys.executable, "-m", "benchmarks.imports", "--work", str(row.pk)]
        )
        # Of the total time, so that each child does a part; some die while they read the file.
        goal = dice.uniform(-0.1, 1) * chats / (kills + 1) + row.place
        while child.poll() is None:
            own = max(own, most_memory(child.pid))
            row.refresh_from_db()
            if killed < kills and row.place >= goal and row.lease_token is not None:
                time.sleep(dice.uniform(0, 0.05))
                child.kill()
                child.wait()
                killed += 1
            time.sleep(LOOK)
        row.refresh_from_db()
    took = time.perf_counter() - began
    found = (Chat.objects.count(), Branch.objects.count(), Message.objects.count())
    told = (row.state, row.added, row.were_here, row.not_taken, row.messages)
    is_exact = (
        found == (chats, chats, chats * messages)
        and told == ("done", chats, 0, 0, chats * messages)
        and ImportOutcome.objects.count() == chats
        and not FilePiece.objects.exists()
    )
    sys.stdout.write(
        f"{connection.vendor}: {found[0]} of {chats} chats are here once, {found[2]} messages,"
        f" {row.size / 1024 / 1024:.1f} MiB, {row.state} in {took:.0f} s with the waits for"
        f" {killed} killed, {own / 1024:.0f} MB at most\n"
    )
    return 0 if is_exact else 1


if __name__ == "__main__":
    main()
