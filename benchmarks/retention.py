"""A retention run over many messages: time, longest transaction, memory.

`python -m benchmarks.retention [--messages 10000]` uses a separate database: SQLite, or PostgreSQL
under `scripts/with_postgres.sh`. Half of the messages are in chats of a hundred messages, which
are too old and are erased completely. The other half is the old part of one chat that stays in
use. Every second message has a receipt that names the thirty messages before it. It has no pass
or fail limits.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from datetime import timedelta
from typing import Any

from benchmarks.prepared import create_tables

OF_A_CHAT, YOUNG, SENT = 100, 50, 30


def main() -> None:
    """Build, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    messages = parser.parse_args().messages
    with tempfile.TemporaryDirectory() as data:
        os.environ["PALIMPSEST_DATA"] = data
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        os.environ["REDIS_URL"] = f"unix://{data}/no-broker.sock"
        os.environ["LOG_LEVEL"] = "ERROR"
        os.environ["MESSAGES_PER_CHAT"] = os.environ["CHATS_PER_USER"] = "1000000"
        if os.environ.get("PALIMPSEST_TEST_DATABASE_URL"):
            os.environ["DATABASE_URL"] = os.environ["PALIMPSEST_TEST_DATABASE_URL"]
        import django

        django.setup()
        create_tables()
        build(messages)
        run(messages)


def build(messages: int) -> None:
    """Create the chats, and a policy of ninety days for everyone."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from benchmarks import bulk
    from chats.actions import lifecycle
    from chats.models import Message
    from contextpolicy.policy_assignments import assign_policy
    from contextpolicy.publish import create_policy

    now = timezone.now()
    alice = User.objects.create_user("alice")
    values = {"retention_days": 90}
    policy = create_policy(slug="ninety", name="90", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    said = bulk.texts(messages, words=bulk.vocabulary())
    whole, part = said[: messages // 2], said[messages // 2 :]
    for start in range(0, len(whole), OF_A_CHAT):
        chat = lifecycle.create_chat(owner=alice, now=now)
        bulk.fill(chat, whole[start : start + OF_A_CHAT], now=now)
    long = lifecycle.create_chat(owner=alice, now=now)
    branch = bulk.fill(long, [*part, *part[:YOUNG]], now=now)
    receipts(branch, now=now)
    rows = Message.objects.exclude(branch=branch, seq__gt=len(part))
    rows.update(created_at=now - timedelta(days=91))


def receipts(branch: Any, *, now: Any) -> None:
    """A finished turn for every second message, with a receipt of its prompt."""
    from chats.models import Message, Receipt, Turn
    from contextpolicy.models import EffectivePolicy

    policy, _ = EffectivePolicy.objects.get_or_create(
        digest="0" * 64, defaults={"values": {}, "sources": {}}
    )
    found = list(Message.objects.filter(branch=branch).order_by("seq"))
    for end in range(2, len(found), 2):
        turn = Turn.objects.create(
            branch=branch,
            accepted=branch.last_seq + end,
            trigger=found[end - 2],
            status="completed",
            queued_at=now,
            finished_at=now,
        )
        Receipt.objects.create(
            turn=turn,
            attempt=1,
            step=1,
            effective_policy=policy,
            model_name="m",
            segments=[
                ["history", str(row.pk), row.seq, 9, None, ""]
                for row in found[max(0, end - SENT) : end]
            ],
            left_out=[],
            budget={},
            prompt_tokens=9,
            prompt_sha256="0" * 64,
            last_seq=end,
            created_at=now,
        )


def run(messages: int) -> None:
    """Do the retention run and print its cost."""
    from django.db import connection
    from django.utils import timezone

    from chats.actions import certificates, retention, retention_rules

    began = time.perf_counter()
    found = retention_rules.preview_retention(now=timezone.now())
    previewed = time.perf_counter() - began
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row = retention.start_retention_run(actor="system", now=timezone.now())
    lease = retention.claim_retention_run()
    assert lease is not None
    took = []
    worked, began = time.process_time(), time.perf_counter()
    last = began
    for _ in retention.run_retention_steps(lease, clock=timezone.now):
        took.append(time.perf_counter() - last)
        last = time.perf_counter()
    row.refresh_from_db()
    whole, worked = time.perf_counter() - began, time.process_time() - worked
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    took.sort()
    sys.stdout.write(
        f"{connection.vendor}: preview of {found.messages} messages {previewed:.2f} s\n"
        f"run: {row.messages_erased} messages of {messages}, {row.chats_erased} chats whole,"
        f" in {whole:.1f} s, {worked:.1f} of them of a processor"
        f" ({1000 * worked / row.messages_erased:.1f} ms a message),"
        f" {len(took)} transactions, the median {1000 * took[len(took) // 2]:.0f} ms,"
        f" the longest {1000 * took[-1]:.0f} ms, {grown / 1024:.0f} MB more at most\n"
        f"certificate: {certificates.list_certificate_faults(row) or 'holds'}\n"
    )


if __name__ == "__main__":
    main()
