"""The Celery application, configured by the CELERY_ settings."""

import logging
import os
import sys
import warnings
from importlib import import_module

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import beat_init, worker_init

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

app = Celery("palimpsest")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_init.connect
def begin_telemetry(**_signal: object) -> None:
    """Set up traces and error reports, if the settings name them."""
    # Django is not set up while this module is imported.
    try:
        import_module("project.telemetry").set_up_telemetry()
    except Misconfigured as error:
        sys.exit(str(error))


@worker_init.connect
@beat_init.connect
def stop_on_newer_database(**_signal: object) -> None:
    """Stop a worker or a schedule with an error if a newer version has migrated the database.

    If the database is unavailable they start, because they wait for it anyway.
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
