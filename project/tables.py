"""Creates the tables of an empty database in one step.

The result is the same as that of the migrations. When migrations run one by one, Django
renders all related models again for each change. This took most of the time until the
first page of a new instance. Here the tables come from the models, so nothing is
defined twice. The migrations are recorded as applied, so later upgrades and rollbacks
use them as usual.
"""

from collections.abc import Iterator
from importlib import import_module

from django.apps import apps
from django.db import connection, models
from django.db.migrations.executor import MigrationExecutor

OURS = ("contextpolicy", "chats")
# Results of migrations that are not in the models: triggers of the ledger, full-text search.
BESIDES = (
    ("contextpolicy.migrations.0002_ledger_triggers", "create_triggers"),
    ("chats.migrations.0026_search_of_a_person", "create"),
)


def create_in_empty_database() -> None:
    """Create all tables if the database has none; otherwise leave it to `migrate`.

    The tables of the product are created in one transaction. After a crash none of them
    exists, and `migrate` creates them.
    """
    if connection.introspection.table_names():
        return
    executor = MigrationExecutor(connection)
    leaves = executor.loader.graph.leaf_nodes()
    executor.migrate([key for key in leaves if key[0] not in OURS])
    with connection.schema_editor() as editor:
        for model in list_app_models():
            editor.create_model(model)
        for module, function in BESIDES:
            getattr(import_module(module), function)(apps, editor)
        for app, name in executor.loader.graph.nodes:
            if app in OURS:
                executor.recorder.record_applied(app, name)


def list_app_models() -> Iterator[type[models.Model]]:
    """Yield the models of our apps, each of which has its own table."""
    for app in OURS:
        yield from apps.get_app_config(app).get_models()
