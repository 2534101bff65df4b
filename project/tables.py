"""Creates the tables of an empty database at once, as the migrations would leave them.

Migration by migration, Django renders every related model anew for each change, which was most of
the time until a new instance showed its first page. Here the tables come from the models, so
nothing is defined twice, and the migrations are recorded as applied: the next upgrade, and the way
back, go by them as everywhere.
"""

from collections.abc import Iterator
from importlib import import_module

from django.apps import apps
from django.db import connection, models
from django.db.migrations.executor import MigrationExecutor

OURS = ("contextpolicy", "chats")
# What the migrations leave behind that no model tells of: triggers of the ledger, the full text.
BESIDES = (
    ("contextpolicy.migrations.0002_ledger_triggers", "create_triggers"),
    ("chats.migrations.0026_search_of_a_person", "create"),
)


def create_in_empty_database() -> None:
    """Create all tables, unless there are some: those are left to `migrate`.

    In one transaction for our own: after a crash there is none of them, and `migrate` makes them.
    """
    if connection.introspection.table_names():
        return
    executor = MigrationExecutor(connection)
    leaves = executor.loader.graph.leaf_nodes()
    executor.migrate([key for key in leaves if key[0] not in OURS])
    with connection.schema_editor() as editor:
        for model in our_models():
            editor.create_model(model)
        for module, function in BESIDES:
            getattr(import_module(module), function)(apps, editor)
        for app, name in executor.loader.graph.nodes:
            if app in OURS:
                executor.recorder.record_applied(app, name)


def our_models() -> Iterator[type[models.Model]]:
    """Yield the models of our apps, each of which has a table of its own."""
    for app in OURS:
        yield from apps.get_app_config(app).get_models()
