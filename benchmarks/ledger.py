"""A ledger of a million rows: signed once, verified completely, exported.

`python -m benchmarks.ledger [--rows 1000000]` uses a separate database: SQLite, or PostgreSQL under
`scripts/with_postgres.sh`. The rows are in chains of chats, fifty in each, as replies create them.
Every third ends a turn and commits to the receipt of its call, whose prompt has thirty pieces. The
measured work is that of the weekly verification. The only check is that the verification passes.
"""

import argparse
import importlib
import os
import sys
import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.prepared import create_tables

OF_A_CHAIN, PIECES, AT_ONCE = 50, 30, 40


def main() -> None:
    """Build, sign, verify, export; print each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as data:
        os.environ["PALIMPSEST_DATA"] = data
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        os.environ["REDIS_URL"] = f"unix://{data}/no-broker.sock"
        os.environ["LOG_LEVEL"] = "ERROR"
        if os.environ.get("PALIMPSEST_TEST_DATABASE_URL"):
            os.environ["DATABASE_URL"] = os.environ["PALIMPSEST_TEST_DATABASE_URL"]
        import django

        django.setup()
        create_tables()
        told("built", build, rows)
        told("signed", sign)
        told("verified", verify)
        told("exported", export)


def told(name: str, act: Any, *given: Any) -> None:
    """Run a step and print its cost."""
    # Reset the peak.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    began, worked = time.perf_counter(), time.process_time()
    said = act(*given)
    took, used = time.perf_counter() - began, time.process_time() - worked
    sys.stdout.write(f"{name}: {took:.1f} s, {used:.1f} of a processor, {peak():.0f} MB. {said}\n")
    sys.stdout.flush()


def peak() -> float:
    """The peak memory of this process in this step, in megabytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    line = next(line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def build(rows: int) -> str:
    """Create the chats with their chains in batches."""
    from django.contrib.auth.models import User
    from django.db import connection, transaction

    from contextpolicy.models import EffectivePolicy

    alice = User.objects.create_user("alice")
    policy = EffectivePolicy.objects.create(digest="0" * 64, values={}, sources={})
    chats = rows // OF_A_CHAIN
    guard("DROP")
    for start in range(0, chats, AT_ONCE):
        with transaction.atomic():
            made = [chain_of(alice, policy) for _ in range(min(AT_ONCE, chats - start))]
            store([row for each in made for row in each])
    guard("CREATE")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return f"{chats} chains"


def guard(statements: str) -> None:
    """Drop or create the triggers that allow inserts into a chain only row by row."""
    from django.db import connection

    triggers: Any = importlib.import_module("contextpolicy.migrations.0002_ledger_triggers")
    with connection.cursor() as cursor:
        for statement in getattr(triggers, statements)[connection.vendor]:
            cursor.execute(statement)


def chain_of(owner: Any, policy: Any) -> list[Any]:
    """The rows of one chat in memory: the chat, its turns with receipts, its chain."""
    from django.utils import timezone

    from chats.models import Branch, Chat, Message, Receipt, Turn
    from chats.record.receipts import seal_receipt
    from contextpolicy import ledger
    from contextpolicy.models import AuditEvent, LedgerHead

    now = timezone.now()
    chat = Chat(owner=owner, title="", created_at=now, updated_at=now)
    branch = Branch(chat=chat, created_at=now)
    head = LedgerHead(scope=f"chat:{chat.pk}", count=0, last_hash=ledger.GENESIS)
    found: list[Any] = [chat, branch, head]

    def event(kind: str, turn: Any = None, **data: Any) -> None:
        row = AuditEvent(
            type=kind,
            at=now + timedelta(seconds=head.count),
            actor="worker",
            chat_id=chat.pk,
            turn_id=turn.pk if turn else None,
            data=data,
            scope=head.scope,
            seq=head.count + 1,
            previous_hash=head.last_hash,
        )
        row.hash = ledger.compute_event_hash(row)
        head.count, head.last_hash = row.seq, row.hash
        found.append(row)

    event("chat.created")
    for place in range(1, (OF_A_CHAIN - 1) // 3 + 1):
        said = Message(
            branch=branch,
            seq=place,
            accepted=place,
            role="user",
            parts=[{"type": "text", "text": "And now?"}],
            token_count=3,
            created_at=now,
        )
        turn = Turn(
            branch=branch,
            accepted=100 + place,
            trigger=said,
            status="completed",
            attempt=1,
            queued_at=now,
            finished_at=now,
        )
        receipt = Receipt(
            turn=turn,
            attempt=1,
            step=1,
            effective_policy=policy,
            model_name="m",
            segments=[
                ["history", uuid.uuid4().hex, number, 9, None, ""] for number in range(PIECES)
            ],
            left_out=[[1, place, "budget"]],
            budget={"limit": 8000},
            prompt_tokens=270,
            prompt_sha256="0" * 64,
            last_seq=place,
            created_at=now,
            outcome="ok",
        )
        seal_receipt(receipt)
        found += [said, turn, receipt]
        event("context.compressed", turn, cut=[], left_out=place)
        event("turn.started", turn, attempt=1)
        calls = [[str(receipt.pk), receipt.commitment]]
        event("turn.completed", turn, attempt=1, calls=calls)
    while head.count < OF_A_CHAIN:
        event("context.compressed", cut=[], left_out=1)
    return found


def store(rows: list[Any]) -> None:
    """Insert rows of several tables; the ledger's manager refuses bulk inserts."""
    from django.db.models import QuerySet

    by_table: dict[Any, list[Any]] = {}
    for row in rows:
        by_table.setdefault(type(row), []).append(row)
    for table, found in by_table.items():
        QuerySet(table).bulk_create(found, batch_size=500)


def sign() -> str:
    """Sign the first checkpoint, with an entry for each chain."""
    from django.utils import timezone

    from chats.checkpoints import signing

    return (
        f"{signing.sign_checkpoint(actor='system', now=timezone.now(), reason='due').size} entries"
    )


def verify() -> str:
    """Verify all chains, receipts and checkpoints, as the weekly job does."""
    from django.utils import timezone

    from contextpolicy import verification

    asked = verification.request_verification(scope="", actor="system", now=timezone.now())
    verification.run_verification(pk=asked.pk, clock=timezone.now)
    asked.refresh_from_db()
    return f"{asked.rows} rows in {asked.chains} chains, {asked.broken} broken, {asked.told}"


def export() -> str:
    """Export everything as JSON lines; read it piece by piece and discard it."""
    from django.utils import timezone

    from contextpolicy.audit.export import start_ledger_export, stream_ledger_export
    from contextpolicy.audit.search import parse_search_line

    search = parse_search_line("", names=True)
    begun = start_ledger_export(search=search, form="jsonl", actor="system", now=timezone.now())
    size = sum(map(len, stream_ledger_export(begun, checkpoint="")))
    return f"{size / 1e6:.0f} MB"


if __name__ == "__main__":
    main()
