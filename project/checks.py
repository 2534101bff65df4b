"""Deployment checks of an instance, for `manage.py check --deploy`."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.contrib.auth.hashers import check_password
from django.contrib.auth.models import User
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from redis.exceptions import RedisError

from chats.models import ProviderAccount
from chats.providers.address import AddressRefused, check_base_url
from contextpolicy import history_providers, plugins
from project.probes import KEEPS_ALL, get_broker_eviction
from project.versions import ENCODING, NEWER, find_newer_migrations, find_wrong_encoding

TRIGGERS = {
    "sqlite": "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s",
    "postgresql": "SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
    " WHERE NOT t.tgisinternal AND c.relname = %s",
}
TRIGGERS_MADE = ("contextpolicy", "0002_ledger_triggers")
LEDGER_TABLES = ("contextpolicy_auditevent", "contextpolicy_ledgerhead")
SHORTEST_KEY = 50
TIME_OUTS = ["lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout"]
ON_THIS_HOST = {"127.0.0.1", "::1", "localhost", None}
# Commonly guessed passwords. Each is tried on each active superuser; one hash takes about 50 ms.
WELL_KNOWN_PASSWORDS = ("admin", "administrator", "password", "palimpsest", "changeme", "123456")
MOST_SUPERUSERS = 20


@register()
def check_installed_packages(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """Check that the strategies and history providers of installed packages can be loaded.

    Runs at each start. A failing package is only a warning, because its policies have a fallback.
    """
    del app_configs
    # A strategy and a history provider can have the same name.
    faults = [
        *plugins.load_strategy_plugins().faults.values(),
        *history_providers.load_history_providers().faults.values(),
    ]
    hint = "Repair or remove the package. Until then, policies that name it use the built-in one."
    return [CheckWarning(sentence, hint=hint, id="palimpsest.W009") for sentence in faults]


@register(Tags.security, deploy=True)
def check_secrets(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Check that debugging is off, keys are long and distinct, and not every host is allowed."""
    del app_configs
    found: list[CheckMessage] = []
    if settings.DEBUG:
        found.append(Error("DEBUG is on.", id="palimpsest.E001"))
    if len(settings.SECRET_KEY) < SHORTEST_KEY:
        hint = "Set SECRET_KEY to 50 random characters or more."
        found.append(Error("SECRET_KEY is too short.", hint=hint, id="palimpsest.E002"))
    if settings.SECRET_KEY in settings.ENCRYPTION_KEYS:
        hint = "Set ENCRYPTION_KEYS to a separate key (urlsafe base64 of 32 random bytes)."
        found.append(
            Error("SECRET_KEY is also an encryption key.", hint=hint, id="palimpsest.E002")
        )
    if "*" in settings.ALLOWED_HOSTS:
        hint = "Name the hosts that this instance answers for."
        found.append(Error("ALLOWED_HOSTS allows any host.", hint=hint, id="palimpsest.E003"))
    return found


@register(Tags.security, deploy=True)
def check_sqlite_host(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Check that SQLite is used on one host only.

    A broker on another host implies several hosts, which cannot share a SQLite file.
    """
    del app_configs
    engine = str(settings.DATABASES["default"]["ENGINE"])
    if "sqlite" not in engine or urlsplit(settings.REDIS_URL).hostname in ON_THIS_HOST:
        return []
    hint = "Set DATABASE_URL to a PostgreSQL database, or run the broker on this host."
    message = "SQLite holds the data, but the broker is on another host."
    return [Error(message, hint=hint, id="palimpsest.E004")]


@register(Tags.security, deploy=True)
def check_broker_eviction(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Check that a full broker refuses tasks instead of dropping them.

    A broker that does not answer is reported by `/readyz`.
    """
    del app_configs
    try:
        policy = get_broker_eviction()
    except (RedisError, OSError):
        return []
    if policy in {KEEPS_ALL, ""}:
        return []
    hint = f"Set maxmemory-policy to {KEEPS_ALL} on the broker."
    return [Error(f"The broker may evict tasks ({policy}).", hint=hint, id="palimpsest.E005")]


@register(Tags.database)
def check_superuser_passwords(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Check that no active superuser has a commonly guessed password.

    Runs with `--database` only.
    """
    del app_configs
    found: list[CheckMessage] = []
    for alias in databases or ():
        if not has_table(alias, "auth_user"):
            continue
        rows = User.objects.using(alias).filter(is_superuser=True, is_active=True)
        for user in rows.order_by("pk")[:MOST_SUPERUSERS]:
            tried = {*WELL_KNOWN_PASSWORDS, user.username}
            if user.has_usable_password() and any(check_password(t, user.password) for t in tried):
                hint = "Change it on the page Account, or with manage.py changepassword."
                message = f"The superuser {user.username} has a well-known password."
                found.append(Error(message, hint=hint, id="palimpsest.E007"))
    return found


@register(Tags.database)
def check_provider_https(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Check that providers are called over https, except those that an operator allowed.

    Only enabled providers count.
    """
    del app_configs
    found: list[CheckMessage] = []
    for alias in databases or ():
        if not has_table(alias, "chats_provideraccount"):
            continue
        rows = ProviderAccount.objects.using(alias).filter(enabled=True)
        # `migrate` runs this on older tables, so only columns of every version are used.
        plain = rows.filter(base_url__startswith="http://").values_list("slug", "base_url")
        for slug, base_url in plain:
            try:
                check_base_url(base_url, allowed_private=settings.ALLOWED_PRIVATE_PROVIDERS)
            except AddressRefused as refusal:
                message = f"The provider {slug} is called by plain http."
                found.append(Error(message, hint=refusal.sentence, id="palimpsest.E008"))
    return found


@register(Tags.database)
def check_database_version(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Check that no newer version has migrated the database; `migrate` runs this check."""
    del app_configs
    found: list[CheckMessage] = []
    for alias in databases or ():
        if names := find_newer_migrations(connections[alias]):
            message = NEWER.format(names=", ".join(names))
            found.append(Error(message, id="palimpsest.E010"))
    return found


@register(Tags.database)
def check_database_encoding(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Check that the database can store every text; `migrate` runs this check."""
    del app_configs
    return [
        Error(ENCODING.format(encoding=encoding), id="palimpsest.E012")
        for alias in databases or ()
        if (encoding := find_wrong_encoding(connections[alias]))
    ]


@register(Tags.database)
def check_ledger_triggers(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Check that triggers protect the ledger's tables; runs with `check --database default`."""
    del app_configs
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        if TRIGGERS_MADE not in MigrationRecorder(connection).applied_migrations():
            # An older database, in which `migrate` is about to create the triggers.
            continue
        tables = set(connection.introspection.table_names())
        for table in LEDGER_TABLES:
            if table in tables and not count_table_triggers(alias, table):
                hint = "Migrate again as the owner of the tables, then run ledger_verify."
                message = f"The table {table} has no triggers: the ledger could be changed."
                found.append(Error(message, hint=hint, id="palimpsest.E006"))
    return found


@register(Tags.database)
def check_database_timeouts(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Check that the database role sets the timeouts that PgBouncer connections cannot set."""
    del app_configs
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        if connection.vendor != "postgresql" or not settings.DATABASE_PGBOUNCER:
            continue
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT name FROM pg_settings WHERE setting = '0' AND name = ANY(%s)", [TIME_OUTS]
            )
            if missing := sorted(name for (name,) in cursor.fetchall()):
                hint = "See docs/deployment.md, PgBouncer: ALTER ROLE … SET."
                message = f"Behind PgBouncer these time-outs are off: {', '.join(missing)}."
                found.append(CheckWarning(message, hint=hint, id="palimpsest.W011"))
    return found


def has_table(alias: str, table: str) -> bool:
    """Return True if the table exists; before the first migration it does not."""
    return table in connections[alias].introspection.table_names()


def count_table_triggers(alias: str, table: str) -> int:
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute(TRIGGERS[connection.vendor], [table])
        row = cursor.fetchone()
    return int(row[0])
