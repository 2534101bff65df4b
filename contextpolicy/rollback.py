"""Refuses to reverse a migration that would drop data whose hashes are in the ledger.

Without those columns verification would report tampering, even after migrating forward again.
Protected columns are declared next to the code that verifies them, so a later migration needs no
guard.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management import CommandError
from django.db.migrations import Migration
from django.db.migrations.operations import (
    AddField,
    CreateModel,
    SeparateDatabaseAndState,
)

# By app and model: the keys with which ledger rows record its hashes. As long as no ledger row has
# such a key, the columns may be dropped: they are computed again when migrating forward. A model
# that is not listed here is protected as soon as its table has values.
COMMITTED_BY: dict[tuple[str, str], tuple[str, ...]] = {}
# The columns of each app and model whose hashes the ledger records; None for the whole table.
PROTECTED: dict[tuple[str, str], frozenset[str] | None] = {
    ("contextpolicy", "auditevent"): None,
    ("contextpolicy", "ledgerhead"): None,
    ("contextpolicy", "ledgerkey"): None,
    ("contextpolicy", "ledgerorigin"): None,
    ("contextpolicy", "ledgerleaf"): None,
    ("contextpolicy", "ledgercheckpoint"): None,
    ("contextpolicy", "ledgertimestamp"): None,
}
REFUSED = (
    "{migration} cannot be rolled back: it would drop {place}, which the audit log commits to, and "
    "its chains would read as tampered. Nothing was changed. To run an older version, restore a "
    "backup from before the upgrade."
)


def check_plan(
    *, plan: Sequence[tuple[Migration, bool]], apps: Any, using: str, **_signal: Any
) -> None:
    """Raise CommandError for a plan that would drop values whose hashes the ledger records.

    Receives the signal `pre_migrate`; `apps` contains the models of the current tables.
    """
    for migration, goes_back in plan:
        if not goes_back:
            continue
        for app, model, column in list_dropped_columns(migration.app_label, migration.operations):
            if is_committed(app, model, column, apps=apps, using=using):
                place = f"{model}.{column}" if column else f"the table of {model}"
                raise CommandError(REFUSED.format(migration=migration, place=place))


def list_dropped_columns(app: str, operations: Sequence[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield app, model and column for each column that the rollback drops.

    For a dropped table, the column is empty.
    """
    for operation in operations:
        match operation:
            case CreateModel():
                yield app, operation.name_lower, ""
            case AddField():
                yield app, operation.model_name_lower, operation.name
            case SeparateDatabaseAndState():
                yield from list_dropped_columns(app, operation.database_operations)


def is_committed(app: str, model: str, column: str, *, apps: Any, using: str) -> bool:
    """Return True if the ledger has hashes of values that would be dropped."""
    if not is_protected(app, model, column):
        return False
    keys = COMMITTED_BY.get((app, model), ())
    if keys:
        events = apps.get_model("contextpolicy", "AuditEvent").objects.using(using)
        if not events.filter(data__has_any_keys=keys).exists():
            return False
    return has_values(apps.get_model(app, model), column, using=using)


def is_protected(app: str, model: str, column: str) -> bool:
    """Return True if the ledger has hashes of the column, or of any column of a table."""
    if (app, model) not in PROTECTED:
        return False
    columns = PROTECTED[app, model]
    return columns is None or not column or column in columns


def has_values(model: Any, column: str, *, using: str) -> bool:
    """Return True if a row's value differs from the column's default, or if a table has rows."""
    rows = model.objects.using(using)
    if not column:
        return bool(rows.exists())
    field = model._meta.get_field(column)  # noqa: SLF001  # documented by Django
    found = rows.exclude(**{f"{column}__isnull": True})
    # With a random default every row has a value.
    if field.has_default() and (empty := field.get_default()) == field.get_default():
        found = found.exclude(**{column: empty})
    return bool(found.exists())
