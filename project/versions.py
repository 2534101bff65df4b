"""Refuses databases that this version cannot use.

Either a newer version has migrated the database, and this version would misread new
columns. Or the database has an encoding that cannot store every text.
"""

from importlib import import_module
from pkgutil import iter_modules

from django.core.management import CommandError
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

OURS = ("contextpolicy", "chats")
# Commands that write to the database and are started on their own.
WRITING = frozenset(
    {
        "changepassword",
        "createsuperuser",
        "ledger_checkpoint",
        "login_link",
        "move_files",
        "rotate_keys",
    }
)
NEWER = (
    "A newer version of Palimpsest has migrated this database ({names}). Start that version, or"
    " restore a backup from before the upgrade."
)

ENCODING = (
    "The database has the encoding {encoding} and cannot store every text. Create it again with"
    " the encoding UTF8, for example: createdb --encoding=UTF8 --template=template0 NAME"
)


def find_wrong_encoding(connection: BaseDatabaseWrapper) -> str:
    """Return the encoding of a PostgreSQL database that is not UTF-8; empty for other databases."""
    if connection.vendor != "postgresql":
        return ""
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_encoding")
        (encoding,) = cursor.fetchone()
    return "" if encoding == "UTF8" else str(encoding)


def refuse_wrong_encoding() -> None:
    """Raise CommandError if the encoding of the database is not UTF-8."""
    if encoding := find_wrong_encoding(connections["default"]):
        raise CommandError(ENCODING.format(encoding=encoding))


def find_newer_migrations(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the applied migrations that this version does not have, such as `chats.0099_new`."""
    applied = MigrationRecorder(connection).applied_migrations()
    known = {(app, name) for app in OURS for name in list_migration_names(app)}
    return sorted(
        f"{app}.{name}" for app, name in applied if app in OURS and (app, name) not in known
    )


def list_migration_names(app: str) -> list[str]:
    """Return the names of an app's migrations without loading them."""
    return [found.name for found in iter_modules(import_module(f"{app}.migrations").__path__)]


def refuse_newer_database() -> None:
    """Raise CommandError if a newer version has migrated the database."""
    if names := find_newer_migrations(connections["default"]):
        raise CommandError(NEWER.format(names=", ".join(names)))
