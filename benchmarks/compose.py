"""The cost of composing one prompt with 1,000 and with 100,000 messages of history.

`python -m benchmarks.compose` prints seconds (median), queries, and the ratio. Both chats are in
one database and are measured alternately, so that noise affects both.
"""

import os
import statistics
import sys
import tempfile
import time
from typing import Any

from benchmarks.prepared import create_tables

SIZES = (1_000, 100_000)
ROUNDS = 40
CHUNK = 5_000


def fill(size: int) -> Any:
    """A chat with this many messages and a turn that waits to be composed."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from chats.actions import lifecycle
    from chats.models import Branch, Chat, Message, Turn
    from chats.turns.start import start_turn

    now = timezone.now()
    owner, _ = User.objects.get_or_create(username=f"bench-{size}")
    chat = lifecycle.create_chat(owner=owner, now=now)
    branch = Branch.objects.get(chat=chat)
    rows = (
        Message(
            branch=branch,
            seq=seq,
            accepted=seq,
            role="user" if seq % 2 else "assistant",
            parts=[{"type": "text", "text": f"Message {seq}: " + "some words about it " * 12}],
            token_count=60,
            counter_version="o200k-1",
            finish="" if seq % 2 else "stop",
            created_at=now,
        )
        for seq in range(1, size + 1)
    )
    Message.objects.bulk_create(rows, batch_size=CHUNK)
    Chat.objects.filter(pk=chat.pk).update(accepted_count=size)
    Branch.objects.filter(pk=branch.pk).update(last_seq=size)
    chat.refresh_from_db()
    turn = start_turn(user=owner, chat=chat, text="What now?", now=now).turn
    Message.objects.filter(branch=branch, seq=None).update(seq=size + 1, turn=turn)
    Branch.objects.filter(pk=branch.pk).update(last_seq=size + 1)
    return Turn.objects.select_related("branch__chat", "model", "trigger").get(pk=turn.pk)


def settle(turn: Any) -> None:
    """Let the window move once, as it would have before."""
    from chats.compaction import window
    from chats.prompt import built_prompt, composition
    from chats.prompt.tokenizer import O200kCounter

    for _ in range(3):
        prompt = composition.compose_prompt(turn=turn, counter=O200kCounter())
        if isinstance(prompt, built_prompt.Prompt):
            return
        assert isinstance(prompt, composition.WindowMoveRequired)
        window.move_window(branch_id=turn.branch_id, move=prompt, now=turn.queued_at)


def measure(turns: dict[int, Any]) -> dict[int, tuple[float, int]]:
    """Median seconds and queries per size, measured alternately."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from chats.prompt import composition
    from chats.prompt.tokenizer import O200kCounter

    counter = O200kCounter()
    seconds: dict[int, list[float]] = {size: [] for size in turns}
    queries = {}
    for _ in range(ROUNDS):
        for size, turn in turns.items():
            begun = time.perf_counter()
            composition.compose_prompt(turn=turn, counter=counter)
            seconds[size].append(time.perf_counter() - begun)
    for size, turn in turns.items():
        with CaptureQueriesContext(connection) as captured:
            composition.compose_prompt(turn=turn, counter=counter)
        queries[size] = len(captured)
    return {size: (statistics.median(seconds[size]), queries[size]) for size in turns}


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PALIMPSEST_DATA"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        import django

        django.setup()
        from django.utils import timezone

        from chats.ground import queue
        from contextpolicy.presets import replace_demo_policy, seed_policies
        from project.seed import seed_demo_model

        create_tables()
        seed_policies(now=timezone.now())
        replace_demo_policy(actor="system", now=timezone.now())
        seed_demo_model()
        queue.publish_task = queue.keep_here
        turns = {size: fill(size) for size in SIZES}
        for turn in turns.values():
            settle(turn)
        found = measure(turns)
    for size, (seconds, queries) in found.items():
        sys.stdout.write(f"{size:>8} messages: {seconds * 1000:6.2f} ms, {queries} queries\n")
    small, large = (found[size] for size in SIZES)
    sys.stdout.write(f"ratio {large[0] / small[0]:.2f}, queries {large[1]} against {small[1]}\n")


if __name__ == "__main__":
    main()
