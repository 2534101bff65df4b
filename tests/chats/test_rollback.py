"""A rollback of migrations is refused if it would drop data that the ledger commits to."""

import io
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps as installed
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from chats.checkpoints import signing
from chats.models import Chat, Compaction, Message, Receipt
from chats.record import commitment_check
from chats.turns.start import start_turn
from contextpolicy import ledger, rollback
from contextpolicy.models import LedgerHead

# Columns that ledger verification never reads. Dropping them leaves the ledger valid.
FREE_OF_RECEIPTS = {
    "compaction",
    "compaction_need",
    "outcome",
    "error_code",
    "usage",
    "created_at",
    "finished_at",
}
FREE_OF_SUMMARIES = {
    "base",
    "previous",
    "displaced",
    "revises",
    "from_seq",
    "to_seq",
    "exceptions",
    "source_count",
    "source_digest",
    "sections",
    "retention",
    "skills",
    "trigger",
    "asked_by",
    "focus",
    "rung",
    "attempt",
    "needs_approval",
    "reason",
    "remark",
    "context_revision",
    "effective_policy",
    "prompt_version",
    "model_name",
    "tokens_before",
    "tokens_after",
    "summary_tokens",
    "duration_ms",
    "cost",
    "currency",
    "usage",
    "worker",
    "lease_token",
    "lease_until",
    "created_at",
    "finished_at",
    "published_at",
}


@pytest.fixture
def replied(alice: User, chat: Chat, now: datetime, work: Callable[..., Any]) -> Receipt:
    """A reply whose receipt has every kind of value that the ledger commits to."""
    turn = start_turn(user=alice, chat=chat, text="Hello", now=now).turn
    work(turn)
    Receipt.objects.update(body_sha256="0" * 64)
    return Receipt.objects.get(turn=turn)


def checked(app: str, name: str) -> None:
    """Check the plan of a rollback to a migration against the current tables."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan([(app, name)])
    assert any(goes_back for _, goes_back in plan)
    rollback.check_plan(plan=plan, apps=installed, using="default")


def migrate(app: str, name: str) -> None:
    """Run the rollback as an operator does."""
    call_command("migrate", app, name, stdout=io.StringIO(), verbosity=0)


@pytest.mark.tampers
@pytest.mark.parametrize("name", ["0042", "0041", "0009", "zero"])
def test_a_rollback_over_committed_columns_is_refused_and_changes_nothing(
    name: str, replied: Receipt
) -> None:
    with pytest.raises(CommandError) as refused:
        migrate("chats", name)
    assert rollback.REFUSED.partition("{place}")[2] in str(refused.value)
    assert Receipt.objects.get().body_sha256 == "0" * 64


def forget_message_commitments() -> None:
    """Leave messages as an older version stored them: a newer migration guards commitments."""
    Message.objects.update(salt="", commitment="")


def test_a_rollback_over_the_commitments_of_messages_is_refused(replied: Receipt) -> None:
    with pytest.raises(CommandError, match=r"0064_message_commitments .* message\.salt"):
        checked("chats", "0063_reason_values")


def test_a_rollback_over_the_bodies_of_summaries_is_refused(
    chat: Chat, replied: Receipt, now: datetime
) -> None:
    branch = chat.active_branch
    assert branch is not None
    forget_message_commitments()
    checked("chats", "0043_bodies_of_calls")
    Compaction.objects.create(
        branch=branch,
        kind="summary",
        status="failed",
        reason="x",
        from_seq=1,
        to_seq=1,
        trigger="asked",
        effective_policy_id=replied.effective_policy_id,
        created_at=now,
        bodies=["0" * 64],
    )
    with pytest.raises(CommandError, match=r"0044_bodies_of_summaries .* compaction\.bodies"):
        checked("chats", "0043_bodies_of_calls")
    checked("chats", "0044_bodies_of_summaries")


def test_a_rollback_over_signed_checkpoints_is_refused(chat: Chat, now: datetime) -> None:
    checked("contextpolicy", "0010_drafts_of_versions")
    signing.sign_checkpoint(actor="system", now=now, reason="asked")
    with pytest.raises(CommandError, match="0011_ledger_checkpoints cannot be rolled back"):
        migrate("contextpolicy", "0010")


@pytest.mark.parametrize(
    ("app", "name"),
    [
        ("chats", "0042_imports_in_the_background"),
        ("contextpolicy", "0010_drafts_of_versions"),
        ("chats", "0009_search_places"),
    ],
)
def test_without_such_values_a_rollback_is_allowed(app: str, name: str, db: None) -> None:
    assert not LedgerHead.objects.exists()
    checked(app, name)


def test_what_the_ledger_does_not_commit_to_may_be_dropped(replied: Receipt) -> None:
    forget_message_commitments()
    checked("chats", "0045_calls_of_summaries")
    checked("contextpolicy", "0018_readers_of_the_ledger")


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("Receipt", "salt", models.CharField(max_length=64, default="")),
        migrations.CreateModel("Receipt", fields=[]),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.AddField("receipt", "salt", models.CharField(max_length=64, default=""))
            ]
        ),
    ],
    ids=["column", "table", "separate"],
)
def test_a_later_migration_is_guarded_without_a_word_of_its_own(
    operation: Any, replied: Receipt
) -> None:
    later = migrations.Migration("0999_later", "chats")
    vars(later)["operations"] = [operation]
    rollback.check_plan(plan=[(later, False)], apps=installed, using="default")
    with pytest.raises(CommandError, match=r"chats\.0999_later cannot be rolled back"):
        rollback.check_plan(plan=[(later, True)], apps=installed, using="default")


def test_every_column_of_receipts_and_summaries_is_protected_or_free() -> None:
    """A developer who adds a column decides here whether the ledger commits to it."""
    for model, committed, free in (
        (Receipt, commitment_check.COMMITTED_OF_RECEIPTS, FREE_OF_RECEIPTS),
        (Compaction, commitment_check.COMMITTED_OF_SUMMARIES, FREE_OF_SUMMARIES),
    ):
        columns = {field.name for field in model._meta.concrete_fields}
        names = {name.removesuffix("_id") for name in committed} if model is Receipt else committed
        assert names | free == columns
        assert not names & free


def test_each_protected_column_is_dropped_by_a_migration_that_is_found(db: None) -> None:
    """Catches protected names without a column, which would protect nothing."""
    loader = MigrationLoader(connection)
    found = {
        drop
        for migration in loader.disk_migrations.values()
        for drop in rollback.list_dropped_columns(migration.app_label, migration.operations)
    }
    for (app, model), columns in rollback.PROTECTED.items():
        assert (app, model, "") in found
        model_class = installed.get_model(app, model)
        for column in columns or ():
            assert model_class._meta.get_field(column.removesuffix("_id"))


def test_the_guard_hears_of_every_migration(replied: Receipt) -> None:
    """The signal handler is connected once, and also checks the plans of other apps."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan([("chats", "0042_imports_in_the_background")])
    with pytest.raises(CommandError):
        models.signals.pre_migrate.send(
            sender=installed.get_app_config("contextpolicy"),
            app_config=SimpleNamespace(label="contextpolicy"),
            verbosity=0,
            interactive=False,
            using="default",
            plan=plan,
            apps=installed,
        )
    assert list(ledger.find_chain_breaks()) == []
