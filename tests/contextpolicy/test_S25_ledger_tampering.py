"""S25: the database rejects changes of the ledger, and verification detects a changed copy.

"A copy" is the test's transaction. The triggers are dropped in it, as a thief of the file would do,
and everything is rolled back.
"""
# ruff: noqa: S608 (the SQL has no input from outside)

import importlib
import io
import uuid
from collections.abc import Callable
from datetime import datetime

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, transaction

from contextpolicy.ledger import GENESIS, compute_event_hash, record_event
from contextpolicy.models import AuditEvent, LedgerHead

EVENTS, HEADS = "contextpolicy_auditevent", "contextpolicy_ledgerhead"
CHAT = uuid.UUID("018f0000-0000-7000-8000-000000000001")
TRIGGERS = importlib.import_module("contextpolicy.migrations.0002_ledger_triggers")

pytestmark = pytest.mark.django_db


def run(statement: str, *values: str | int) -> None:
    """Run a raw statement in a savepoint, so that an error does not end the test's transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)


@pytest.fixture
def ledger(now: datetime) -> None:
    """Five rows of one chain, and another chain that stays unchanged."""
    for number in range(1, 6):
        record_event("policy.assigned", actor="user:1", now=now, data={"n": number})
    record_event("chat.created", actor="user:2", now=now, chat_id=CHAT)


@pytest.fixture
def copy(ledger: None) -> None:
    """The same rows without triggers."""
    for statement in TRIGGERS.DROP[connection.vendor]:
        run(statement)


def verified() -> tuple[int, str]:
    """Exit code and output of the verification command."""
    out = io.StringIO()
    try:
        call_command("ledger_verify", stdout=out)
    except CommandError as error:
        return error.returncode, out.getvalue()
    return 0, out.getvalue()


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE {EVENTS} SET actor = 'user:9' WHERE seq = 3",
        f"UPDATE {EVENTS} SET id = id + 100",
        f"DELETE FROM {EVENTS} WHERE seq = 5",
        f"DELETE FROM {EVENTS}",
        f"DELETE FROM {HEADS}",
        f"UPDATE {HEADS} SET count = 4 WHERE scope = 'instance'",
        f"UPDATE {HEADS} SET count = count + 1 WHERE scope = 'instance'",
        f"UPDATE {HEADS} SET last_hash = '{GENESIS}' WHERE scope = 'instance'",
        f"UPDATE {HEADS} SET scope = 'elsewhere' WHERE scope = 'instance'",
        f"INSERT INTO {HEADS} (scope, count, last_hash) VALUES ('new', 7, '{GENESIS}')",
        f"INSERT INTO {HEADS} (scope, count, last_hash) VALUES ('new', 0, 'f')",
    ],
)
def test_S25_raw_changes_are_refused(statement: str, ledger: None) -> None:
    with pytest.raises(DatabaseError, match=r"never|head of a ledger chain"):
        run(statement)

    assert verified()[0] == 0


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="REPLACE is SQLite's word")
@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize("key", ["id", "scope and seq", "head"])
def test_S25_replace_is_refused_with_and_without_recursive_triggers(
    recursive: str, key: str, ledger: None
) -> None:
    columns = "scope, seq, type, at, actor, data, previous_hash, hash"
    statements = {
        "id": f"REPLACE INTO {EVENTS} (id, {columns}) SELECT id, {columns} FROM {EVENTS}",
        "scope and seq": f"REPLACE INTO {EVENTS} ({columns}) SELECT {columns} FROM {EVENTS}",
        "head": f"REPLACE INTO {HEADS} VALUES ('instance', 0, '{GENESIS}')",
    }
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA recursive_triggers = {recursive}")
    try:
        with pytest.raises(DatabaseError, match=r"never|head of a ledger chain"):
            run(statements[key])
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA recursive_triggers = ON")


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite knows no TRUNCATE")
@pytest.mark.parametrize("table", [EVENTS, HEADS])
def test_S25_truncate_is_refused(table: str, ledger: None) -> None:
    with pytest.raises(DatabaseError, match="never"):
        run(f"TRUNCATE {table}")


def test_S25_an_untouched_ledger_verifies(ledger: None) -> None:
    assert verified() == (0, "Verified 2 chains, 6 rows.\n")


def edit() -> None:
    """Change the actor of row 3."""
    run(f"UPDATE {EVENTS} SET actor = 'user:9' WHERE scope = 'instance' AND seq = 3")


def edit_and_hash_again() -> None:
    """Change the actor of row 3 and recompute its hash."""
    edit()
    row = AuditEvent.objects.get(scope="instance", seq=3)
    run(f"UPDATE {EVENTS} SET hash = %s WHERE id = %s", compute_event_hash(row), row.pk)


def delete_middle() -> None:
    """Delete row 2."""
    run(f"DELETE FROM {EVENTS} WHERE scope = 'instance' AND seq = 2")


def delete_middle_and_close_the_gap() -> None:
    """Delete row 2 and renumber the later ones."""
    delete_middle()
    for seq in (3, 4, 5):
        run(f"UPDATE {EVENTS} SET seq = %s WHERE scope = 'instance' AND seq = %s", seq - 1, seq)


def delete_tail() -> None:
    """Delete rows 4 and 5."""
    run(f"DELETE FROM {EVENTS} WHERE scope = 'instance' AND seq > 3")


def delete_all() -> None:
    """Delete all rows of the chain."""
    run(f"DELETE FROM {EVENTS} WHERE scope = 'instance'")


def swap() -> None:
    """Swap rows 2 and 3."""
    for old, new in ((2, 99), (3, 2), (99, 3)):
        run(f"UPDATE {EVENTS} SET seq = %s WHERE scope = 'instance' AND seq = %s", new, old)


def insert() -> None:
    """Insert a forged row 3 and renumber the later ones."""
    for seq in (5, 4, 3):
        run(f"UPDATE {EVENTS} SET seq = %s WHERE scope = 'instance' AND seq = %s", seq + 1, seq)
    append(seq=3, previous=AuditEvent.objects.get(scope="instance", seq=1).hash)


def append_past_the_head() -> None:
    """Append a row 6 that continues the chain, without updating the head row."""
    append(seq=6, previous=AuditEvent.objects.get(scope="instance", seq=5).hash)


def truncate_and_rechain() -> None:
    """Rewrite all rows from 2 on, with consistent hashes."""
    run(f"DELETE FROM {EVENTS} WHERE scope = 'instance' AND seq > 1")
    for seq in (2, 3):
        append(seq=seq, previous=AuditEvent.objects.get(scope="instance", seq=seq - 1).hash)


def rechain_to_the_same_length() -> None:
    """As before, with the original number of rows."""
    truncate_and_rechain()
    for seq in (4, 5):
        append(seq=seq, previous=AuditEvent.objects.get(scope="instance", seq=seq - 1).hash)


def lose_the_head() -> None:
    """Delete the head row."""
    run(f"DELETE FROM {HEADS} WHERE scope = 'instance'")


def append(*, seq: int, previous: str) -> None:
    """Append a forged row with a valid hash."""
    first = AuditEvent.objects.get(scope="instance", seq=1)
    event = AuditEvent(
        scope="instance",
        seq=seq,
        type="policy.assigned",
        at=first.at,
        actor="user:9",
        data={"forged": True},
        previous_hash=previous,
    )
    event.hash = compute_event_hash(event)
    event.save(force_insert=True)


@pytest.mark.parametrize(
    ("tamper", "seq"),
    [
        (edit, 3),
        (edit_and_hash_again, 4),
        (delete_middle, 2),
        (delete_middle_and_close_the_gap, 2),
        (delete_tail, 4),
        (delete_all, 1),
        (swap, 2),
        (insert, 3),
        (append_past_the_head, 6),
        (truncate_and_rechain, 4),
        (rechain_to_the_same_length, 5),
        (lose_the_head, 5),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_S25_verification_names_the_first_bad_row(
    tamper: Callable[[], None], seq: int, copy: None
) -> None:
    tamper()

    code, output = verified()

    assert code != 0
    lines = output.splitlines()
    assert len(lines) == 1, "the other chain holds"
    assert lines[0].startswith(f"instance: row {seq}: ")


def test_S25_one_scope_can_be_asked_for(copy: None) -> None:
    edit()
    out = io.StringIO()

    call_command("ledger_verify", scope=f"chat:{CHAT}", stdout=out)

    assert out.getvalue() == "Verified 1 chains, 1 rows.\n"
    with pytest.raises(CommandError):
        call_command("ledger_verify", scope="instance", stdout=out)


def test_S25_a_scope_that_does_not_exist_is_no_success(ledger: None) -> None:
    with pytest.raises(CommandError, match="There is no chain 'chat:1'"):
        call_command("ledger_verify", scope="chat:1", stdout=io.StringIO())


def test_S25_every_trigger_that_is_made_is_dropped_again(ledger: None) -> None:
    for vendor in ("sqlite", "postgresql"):
        made = {statement.split()[2].split("(")[0] for statement in TRIGGERS.CREATE[vendor]}
        dropped = {statement.split()[2].split("(")[0] for statement in TRIGGERS.DROP[vendor]}
        assert made == dropped
    assert LedgerHead.objects.count() == 2
