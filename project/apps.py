"""The wiring as a Django app: its commands and its checks."""

from importlib import import_module

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    """Only there so that `manage.py serve` and the deployment checks are found."""

    name = "project"

    def ready(self) -> None:
        """Register the checks; models are loaded by now."""
        import_module("project.checks")
