"""The Celery application, configured by the CELERY_ settings."""

import logging
import os
import sys
import warnings
from importlib import import_module
from typing import Any

from celery import Celery, bootsteps
from celery.concurrency.thread import TaskPool
from celery.exceptions import SecurityWarning
from celery.signals import beat_init, worker_init

from project.arenas import limit_arenas
from project.env import Misconfigured

logger = logging.getLogger(__name__)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

# Celery warns if root runs a worker, in six lines below the sign-in link of `make run`. The
# container image runs as another user.
warnings.filterwarnings("ignore", category=SecurityWarning)

try:
    import_module(os.environ["DJANGO_SETTINGS_MODULE"])
except Misconfigured as error:
    sys.exit(str(error))


class FreeThreadWakeup(bootsteps.Step):
    """Wakes a worker's event loop when a thread is free again, so that it takes the next task.

    With `worker_disable_prefetch`, a worker whose threads are all in use stops reading from the
    broker. Without this step, its loop would notice the end of a task up to a second later.
    """

    def create(self, parent: Any) -> None:
        """Wrap the function of the pool that starts a task; `parent` is Celery's consumer."""
        pool, hub = parent.pool, parent.hub
        if hub is None or not isinstance(pool, TaskPool):
            return
        start_task = pool.on_apply

        def start_task_and_wake(*args: Any, **options: Any) -> Any:
            result = start_task(*args, **options)
            result.f.add_done_callback(lambda _future: hub.call_soon(int))
            return result

        parent.pool.on_apply = start_task_and_wake


app = Celery("palimpsest")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.steps["consumer"].add(FreeThreadWakeup)


@worker_init.connect
def limit_worker_arenas(**_signal: object) -> None:
    """Limit the memory of the worker's many threads."""
    limit_arenas()


@worker_init.connect
def begin_telemetry(**_signal: object) -> None:
    """Set up traces and error reports, if the settings configure them."""
    # Django is not set up while this module is imported.
    try:
        import_module("project.telemetry").set_up_telemetry()
    except Misconfigured as error:
        sys.exit(str(error))


@worker_init.connect
@beat_init.connect
def stop_on_newer_database(**_signal: object) -> None:
    """Stop a worker or a schedule with an error if a newer version has migrated the database.

    If the database is unavailable, the process starts, because it waits for the database
    anyway.
    """
    # Django is not set up while this module is imported.
    versions = import_module("project.versions")
    management = import_module("django.core.management")
    database = import_module("django.db")
    try:
        versions.refuse_newer_database()
    except management.CommandError as error:
        sys.exit(str(error))
    except database.OperationalError:
        logger.warning("the database does not answer; its version was not checked")
    finally:
        database.close_old_connections()
