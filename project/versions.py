"""Refuses a database that a newer version has migrated: this version would misread new columns."""

from importlib import import_module
from pkgutil import iter_modules

from django.core.management import CommandError
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

OURS = ("contextpolicy", "chats")
NEWER = (
    "A newer version of Palimpsest has migrated this database ({names}). Start that version, or"
    " restore a backup from before the upgrade."
)


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
