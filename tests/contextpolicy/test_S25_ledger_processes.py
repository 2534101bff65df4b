"""S25 with real processes: concurrent writers make one gap-free chain, and database roles hold."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.faults.programs import CREATE_TABLES
from tests.faults.stores import Cluster
from tests.support.repository import ROOT

WRITERS, EVENTS_EACH = 4, 25

WRITE = """
import sys
import django
django.setup()
from django.db import transaction
from django.utils import timezone
from contextpolicy.ledger import record_event
sys.stdin.readline()
for number in range(int(sys.argv[1])):
    try:
        with transaction.atomic():
            record_event("policy.assigned", actor="system", now=timezone.now(), data={"n": number})
            if number % 5 == 4:
                raise RuntimeError("this one is rolled back")
    except RuntimeError:
        pass
"""
VERIFY = """
import django
django.setup()
from django.core.management import call_command
call_command("ledger_verify")
"""


def environment(folder: Path, url: str) -> dict[str, str]:
    """The environment of a process that uses this database, without the developer's settings."""
    return {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "PALIMPSEST_DATA": str(folder),
        "DATABASE_URL": url,
    }


def run(code: str, env: dict[str, str], *arguments: str) -> str:
    """The output of a process that must succeed."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=env,
        check=True,
        text=True,
        capture_output=True,
        timeout=200,
    ).stdout


@pytest.fixture
def postgres(cluster: Cluster) -> str:
    """The address of an empty database on the PostgreSQL server."""
    name = f"ledger_{uuid.uuid4().hex}"
    cluster.execute(f"CREATE DATABASE {name}")
    return cluster.url("postgres", name)


@pytest.mark.processes
@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.services)]
)
@pytest.mark.in_turn
def test_S25_writers_at_the_same_time_make_one_gap_free_chain(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = "" if database == "sqlite" else request.getfixturevalue("postgres")
    env = environment(tmp_path, url)
    run(CREATE_TABLES, env)

    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, str(EVENTS_EACH)],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    outcomes = [(writer.communicate(timeout=200)[1], writer.returncode) for writer in writers]

    assert outcomes == [("", 0)] * WRITERS
    kept = WRITERS * EVENTS_EACH * 4 // 5
    assert run(VERIFY, env) == f"Verified 1 chains, {kept} rows.\n"


@pytest.mark.services
@pytest.mark.processes
@pytest.mark.in_turn
def test_S25_the_application_role_of_postgresql_cannot_step_around_the_triggers(
    postgres: str, tmp_path: Path
) -> None:
    run(CREATE_TABLES, environment(tmp_path, postgres))
    role = sql.Identifier(f"app_{uuid.uuid4().hex}")
    with psycopg.connect(postgres, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(role))
        try:
            grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}"
            owner.execute(sql.SQL(grant).format(role))
            grant = "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {}"
            owner.execute(sql.SQL(grant).format(role))
            owner.execute(sql.SQL("SET ROLE {}").format(role))
            refused_to_the_application(owner)
        finally:
            owner.execute("RESET ROLE")
            owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
            owner.execute(sql.SQL("DROP ROLE {}").format(role))


def refused_to_the_application(connection: psycopg.Connection) -> None:
    """The role may append, and every other write fails."""
    zeros = "0" * 64
    connection.execute(
        "INSERT INTO contextpolicy_ledgerhead (scope, count, last_hash) VALUES ('x', 0, %s)",
        [zeros],
    )
    connection.execute(
        "INSERT INTO contextpolicy_auditevent"
        " (scope, seq, type, at, actor, data, previous_hash, hash)"
        " VALUES ('x', 1, 'policy.created', now(), 'system', '{}', %s, 'a')",
        [zeros],
    )
    connection.execute("UPDATE contextpolicy_ledgerhead SET count = 1, last_hash = 'a'")
    for statement in (
        b"UPDATE contextpolicy_auditevent SET actor = 'user:9'",
        b"DELETE FROM contextpolicy_auditevent",
        b"UPDATE contextpolicy_ledgerhead SET count = 0",
        b"DELETE FROM contextpolicy_ledgerhead",
    ):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            connection.execute(statement)
    for statement in (
        b"TRUNCATE contextpolicy_auditevent",
        b"DROP TRIGGER ledger_no_update ON contextpolicy_auditevent",
        b"ALTER TABLE contextpolicy_auditevent DISABLE TRIGGER ALL",
        b"SET session_replication_role = replica",
        b"DROP FUNCTION ledger_refuse() CASCADE",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


# Data of the previous version: plain hashes of texts in tables, and rows without call commitments.
BEFORE = """
import hashlib
import json
import sys
from datetime import timedelta
import django
django.setup()
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from chats.record import outbox
from contextpolicy.ledger import record_event
# That version had no webhooks.
outbox.SUBSCRIBERS.know((), seconds=3600)
old = [("chats", "0007_turn_api_key"), ("contextpolicy", "0004_modelspec_strict_roles")]
executor = MigrationExecutor(connection)
executor.migrate(old + [("auth", "0012_alter_user_first_name_max_length")])
apps = MigrationExecutor(connection).loader.project_state(old).apps
model = lambda name: apps.get_model("chats", name)
now = timezone.now()
sha = lambda text: hashlib.sha256(text.encode()).hexdigest()
alice = apps.get_model("auth", "User").objects.create(username="alice")
policy = apps.get_model("contextpolicy", "EffectivePolicy").objects.create(
    digest="e" * 64, values={}, sources={}
)
chat = model("Chat").objects.create(owner=alice, created_at=now, updated_at=now)
branch = model("Branch").objects.create(chat=chat, created_at=now, last_seq=1200)
messages = [
    model("Message")(
        branch=branch, seq=n, accepted=n, role="user", created_at=now,
        parts=[] if n == 1 else [{"type": "text", "text": f"word {n}"}],
        metadata={"erased_sha256": sha("yes")} if n == 1 else {},
        erased_at=now if n == 1 else None,
    )
    for n in range(1, 1201)
]
model("Message").objects.bulk_create(messages)
erased, kept = messages[0], messages[1]
turn = model("Turn").objects.create(
    branch=branch, accepted=1, trigger=kept, status="completed", attempt=1, queued_at=now
)
model("PromptText").objects.create(digest=sha("state"), origin="tail", text="", erased_at=now)
for call in range(1, 1203):
    segments = [["history", str((erased if call == 1 else kept).pk), 1, 3, None, "", None]]
    if call == 2:
        segments = [["tail", "state", 0, 3, None, sha("state"), None]]
    model("Receipt").objects.create(
        turn=turn, attempt=1, step=1, call=call, effective_policy=policy, model_name="m",
        segments=segments, left_out=[], budget={}, prompt_tokens=3, last_seq=1,
        prompt_sha256=sha(f"prompt {call}"), outcome="ok", created_at=now, finished_at=now,
    )
for n, (text, gone) in enumerate([("A summary.", None), ("", now)]):
    row = model("Compaction").objects.create(
        branch=branch, kind="summary", status="overtaken", from_seq=1, to_seq=2, text=text,
        text_sha256=sha(text or "yes"), prompt_sha256=sha("asked"), trigger="tokens",
        effective_policy=policy, created_at=now, finished_at=now, erased_at=gone,
    )
    with transaction.atomic():
        data = {"compaction": str(row.pk), "text_sha256": row.text_sha256}
        record_event("compaction.prepared", actor="worker", now=now, chat_id=chat.pk, data=data)
for key, of, at in (("kept", kept, now), ("erased", erased, now), ("old", kept, None)):
    model("IdempotencyRecord").objects.create(
        owner=alice, route="r", key=key, body_sha256=sha("yes"),
        result={"message": str(of.pk)}, created_at=at or now - timedelta(days=2),
    )
with transaction.atomic():
    data = {"sha256": sha("yes")}
    record_event("message.erased", actor="user:1", now=now, chat_id=chat.pk, data=data)
    data = {"attempt": 1, "finish": "stop"}
    where = {"chat_id": chat.pk, "turn_id": turn.pk}
    record_event("turn.completed", actor="worker", now=now, data=data, **where)
    record_event("policy.assigned", actor="system", now=now)
"""
AFTER = """
import hashlib
import django
django.setup()
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from chats.record import idempotency
from chats.models import Compaction, IdempotencyRecord, Message, PromptText, Receipt
from chats.ground.commitments import is_commitment_valid
from contextpolicy.models import AuditEvent
sha = lambda text: hashlib.sha256(text.encode()).hexdigest()
now = timezone.now()
assert [row.metadata for row in Message.objects.filter(erased_at__isnull=False)] == [{}]
gone = Receipt.objects.filter(erased_at__isnull=False).order_by("call")
assert [(r.call, r.prompt_sha256, r.salt) for r in gone] == [(1, "", ""), (2, "", "")], gone
assert gone[1].segments[0][5] == "" and gone[0].segments[0][1] != ""
assert Receipt.objects.filter(erased_at=None).exclude(prompt_sha256="").count() == 1200
assert not PromptText.objects.exists()
summary = Compaction.objects.get(erased_at=None)
assert is_commitment_valid(summary.text_commitment, "A summary.", salt=summary.salt)
erased = Compaction.objects.exclude(erased_at=None).get()
assert (erased.text_commitment, erased.salt) == ("", "")
assert summary.calls == []
assert set(IdempotencyRecord.objects.values_list("key", flat=True)) == {"kept", "erased"}
alice = User.objects.get()
keyed = lambda key, body: idempotency.IdempotentRequest(user=alice, route="r", key=key, body=body)
assert keyed("kept", "yes").find(now=now)
for key, body in (("kept", "no"), ("erased", "yes"), ("erased", "no")):
    try:
        keyed(key, body).find(now=now)
    except idempotency.IdempotencyKeyReused:
        continue
    raise AssertionError((key, body))
marks = AuditEvent.objects.filter(type="ledger.form_changed")
assert [(m.scope, m.seq, m.data) for m in marks] == [
    ("instance", 2, {"form": {"from": 1, "to": 2}})
], marks
with connection.cursor() as cursor:
    for table in connection.introspection.table_names(cursor):
        if table == "contextpolicy_auditevent":
            continue
        cursor.execute(f'SELECT * FROM "{table}"')
        stored = repr(cursor.fetchall())
        assert sha("yes") not in stored and sha("state") not in stored, table
"""
BACK = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", "chats", "0007", skip_checks=True, verbosity=0)
call_command("migrate", "contextpolicy", "0004", skip_checks=True, verbosity=0)
"""
FRESH = """
import django
django.setup()
from contextpolicy.models import AuditEvent
assert not AuditEvent.objects.exists()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "database",
    ["sqlite", pytest.param("postgres", marks=[pytest.mark.services, pytest.mark.whole])],
)
@pytest.mark.in_turn
def test_S25_the_upgrade_salts_what_was_bare_and_says_where_the_new_form_begins(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = "" if database == "sqlite" else request.getfixturevalue("postgres")
    env = environment(tmp_path, url)
    run(BEFORE, env)
    run(CREATE_TABLES, env)
    run(AFTER, env)
    output = run(VERIFY, env)
    # Two of them name content that was erased before: a receipt and a summary.
    assert "Verified 2 chains, 8 rows." in output
    counted = "Model calls made before the audit log recorded commitments: 1,202"
    assert counted in output
    # Migrating back and forth again works, and summaries get commitments again.
    run(BACK, env)
    run(CREATE_TABLES, env)
    assert "Verified " in run(VERIFY, env)


@pytest.mark.processes
@pytest.mark.in_turn
def test_S25_a_new_instance_begins_in_the_new_form(tmp_path: Path) -> None:
    env = environment(tmp_path, "")
    run(CREATE_TABLES, env)
    run(FRESH, env)
