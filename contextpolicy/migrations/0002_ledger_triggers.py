"""The database itself holds the ledger in place, whatever the application does.

Rows of the ledger are neither changed nor deleted. On SQLite an insert over an existing key is
refused as well, because INSERT OR REPLACE skips the delete trigger on connections without
`recursive_triggers`. On PostgreSQL TRUNCATE is refused. A head row starts at zero, moves only to
the row that continues it, and stays.

SQLite drops a table's triggers when a later migration rebuilds the table: such a migration must
run CREATE again.
"""

from typing import Any

from django.db import migrations

EVENTS = "contextpolicy_auditevent"
HEADS = "contextpolicy_ledgerhead"
CHANGED = "Audit events are never changed."
DELETED = "Audit events are never deleted."
HEAD_MOVED = "The head of a ledger chain moves only to the row that continues it."
HEAD_STARTED = "The head of a ledger chain starts once, at zero."
HEAD_DELETED = "The head of a ledger chain is never deleted."
GENESIS = "0" * 64

CREATE: dict[str, list[str]] = {
    "sqlite": [
        f"CREATE TRIGGER ledger_no_update BEFORE UPDATE ON {EVENTS} "
        f"BEGIN SELECT RAISE(ABORT, '{CHANGED}'); END",
        f"CREATE TRIGGER ledger_no_delete BEFORE DELETE ON {EVENTS} "
        f"BEGIN SELECT RAISE(ABORT, '{DELETED}'); END",
        f"CREATE TRIGGER ledger_no_replace BEFORE INSERT ON {EVENTS} WHEN EXISTS ("
        f"SELECT 1 FROM {EVENTS} WHERE id = NEW.id OR (scope = NEW.scope AND seq = NEW.seq)) "
        f"BEGIN SELECT RAISE(ABORT, '{CHANGED}'); END",
        f"CREATE TRIGGER ledger_head_grows BEFORE UPDATE ON {HEADS} WHEN NEW.scope <> OLD.scope "
        f"OR NEW.count <> OLD.count + 1 OR NOT EXISTS ("
        f"SELECT 1 FROM {EVENTS} WHERE scope = NEW.scope AND seq = NEW.count "
        f"AND hash = NEW.last_hash AND previous_hash = OLD.last_hash) "
        f"BEGIN SELECT RAISE(ABORT, '{HEAD_MOVED}'); END",
        f"CREATE TRIGGER ledger_head_starts BEFORE INSERT ON {HEADS} WHEN NEW.count <> 0 "
        f"OR NEW.last_hash <> '{GENESIS}' "
        f"OR EXISTS (SELECT 1 FROM {HEADS} WHERE scope = NEW.scope) "
        f"BEGIN SELECT RAISE(ABORT, '{HEAD_STARTED}'); END",
        f"CREATE TRIGGER ledger_head_stays BEFORE DELETE ON {HEADS} "
        f"BEGIN SELECT RAISE(ABORT, '{HEAD_DELETED}'); END",
    ],
    "postgresql": [
        "CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], "
        "ERRCODE = 'integrity_constraint_violation'; END $$",
        "CREATE FUNCTION ledger_head_check() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF TG_OP = 'INSERT' THEN "
        f"IF NEW.count = 0 AND NEW.last_hash = '{GENESIS}' THEN RETURN NEW; END IF; "
        "ELSIF NEW.scope = OLD.scope AND NEW.count = OLD.count + 1 AND EXISTS ("
        f"SELECT 1 FROM {EVENTS} WHERE scope = NEW.scope AND seq = NEW.count "
        "AND hash = NEW.last_hash AND previous_hash = OLD.last_hash) THEN RETURN NEW; END IF; "
        "RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], "
        "ERRCODE = 'integrity_constraint_violation'; END $$",
        f"CREATE TRIGGER ledger_no_update BEFORE UPDATE ON {EVENTS} "
        f"FOR EACH ROW EXECUTE FUNCTION ledger_refuse('{CHANGED}')",
        f"CREATE TRIGGER ledger_no_delete BEFORE DELETE ON {EVENTS} "
        f"FOR EACH ROW EXECUTE FUNCTION ledger_refuse('{DELETED}')",
        f"CREATE TRIGGER ledger_no_truncate BEFORE TRUNCATE ON {EVENTS} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse('{DELETED}')",
        f"CREATE TRIGGER ledger_head_grows BEFORE UPDATE ON {HEADS} "
        f"FOR EACH ROW EXECUTE FUNCTION ledger_head_check('{HEAD_MOVED}')",
        f"CREATE TRIGGER ledger_head_starts BEFORE INSERT ON {HEADS} "
        f"FOR EACH ROW EXECUTE FUNCTION ledger_head_check('{HEAD_STARTED}')",
        f"CREATE TRIGGER ledger_head_stays BEFORE DELETE ON {HEADS} "
        f"FOR EACH ROW EXECUTE FUNCTION ledger_refuse('{HEAD_DELETED}')",
        f"CREATE TRIGGER ledger_head_no_truncate BEFORE TRUNCATE ON {HEADS} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse('{HEAD_DELETED}')",
    ],
}
DROP: dict[str, list[str]] = {
    "sqlite": [
        "DROP TRIGGER ledger_no_update",
        "DROP TRIGGER ledger_no_delete",
        "DROP TRIGGER ledger_no_replace",
        "DROP TRIGGER ledger_head_grows",
        "DROP TRIGGER ledger_head_starts",
        "DROP TRIGGER ledger_head_stays",
    ],
    "postgresql": [
        f"DROP TRIGGER ledger_no_update ON {EVENTS}",
        f"DROP TRIGGER ledger_no_delete ON {EVENTS}",
        f"DROP TRIGGER ledger_no_truncate ON {EVENTS}",
        f"DROP TRIGGER ledger_head_grows ON {HEADS}",
        f"DROP TRIGGER ledger_head_starts ON {HEADS}",
        f"DROP TRIGGER ledger_head_stays ON {HEADS}",
        f"DROP TRIGGER ledger_head_no_truncate ON {HEADS}",
        "DROP FUNCTION ledger_refuse()",
        "DROP FUNCTION ledger_head_check()",
    ],
}


def create_triggers(apps: Any, schema_editor: Any) -> None:
    """Put the triggers of this database in place."""
    for statement in CREATE[schema_editor.connection.vendor]:
        schema_editor.execute(statement, params=None)


def drop_triggers(apps: Any, schema_editor: Any) -> None:
    """Take them away again."""
    for statement in DROP[schema_editor.connection.vendor]:
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):
    """Triggers for SQLite and PostgreSQL; any other database is refused with a KeyError."""

    dependencies = [("contextpolicy", "0001_start")]

    operations = [migrations.RunPython(create_triggers, drop_triggers)]
