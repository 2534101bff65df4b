"""What `manage.py check --deploy` says about an instance before people rely on it."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

TRIGGERS = {
    "sqlite": "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s",
    "postgresql": "SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
    " WHERE NOT t.tgisinternal AND c.relname = %s",
}
LEDGER_TABLES = ("contextpolicy_auditevent", "contextpolicy_ledgerhead")
SHORTEST_KEY = 50


@register(Tags.security, deploy=True)
def secrets_are_sound(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Debugging is off, keys are long and separate, hosts are named."""
    del app_configs
    found: list[CheckMessage] = []
    if settings.DEBUG:
        found.append(Error("DEBUG is on.", id="palimpsest.E001"))
    if len(settings.SECRET_KEY) < SHORTEST_KEY:
        hint = "Set SECRET_KEY to 50 random characters or more."
        found.append(Error("SECRET_KEY is too short.", hint=hint, id="palimpsest.E002"))
    if settings.SECRET_KEY in settings.ENCRYPTION_KEYS:
        hint = "Set ENCRYPTION_KEYS to a key of its own (urlsafe base64 of 32 random bytes)."
        found.append(
            Error("SECRET_KEY is also an encryption key.", hint=hint, id="palimpsest.E002")
        )
    if "*" in settings.ALLOWED_HOSTS:
        hint = "Name the hosts that this instance answers for."
        found.append(Error("ALLOWED_HOSTS allows any host.", hint=hint, id="palimpsest.E003"))
    return found


@register(Tags.database)
def ledger_has_its_triggers(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """The ledger's tables refuse changes; asked for with `check --database default`."""
    del app_configs
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        tables = set(connection.introspection.table_names())
        for table in LEDGER_TABLES:
            if table in tables and not triggers_of(alias, table):
                hint = "Migrate again as the owner of the tables, then run ledger_verify."
                message = f"The table {table} has no triggers: the ledger could be changed."
                found.append(Error(message, hint=hint, id="palimpsest.E006"))
    return found


def triggers_of(alias: str, table: str) -> int:
    """How many triggers guard a table."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute(TRIGGERS[connection.vendor], [table])
        row = cursor.fetchone()
    return int(row[0])
