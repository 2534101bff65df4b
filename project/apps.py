"""The wiring as a Django app: its commands and its checks."""

from importlib import import_module

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    """The app config, through which the commands, the checks and the Celery app are found."""

    name = "project"

    def ready(self) -> None:
        """Register the checks, and make the Celery app current: tasks are sent by name."""
        import_module("project.checks")
        import_module("project.celery")
