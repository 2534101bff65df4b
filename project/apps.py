"""The project as a Django app, with its commands and checks."""

from importlib import import_module

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    """The app config, through which Django finds the commands, checks and Celery app."""

    name = "project"

    def ready(self) -> None:
        """Register the checks, and make the Celery app current, because tasks are sent by name."""
        import_module("project.checks")
        import_module("project.celery")
