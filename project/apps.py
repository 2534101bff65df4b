"""The wiring as a Django app: it carries the commands that start the product."""

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    """Only there so that `manage.py serve` is found."""

    name = "project"
