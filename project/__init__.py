"""The wiring. Importing it makes the Celery app current, so that tasks can be sent by name."""

from project.celery import app as celery_app

__all__ = ["celery_app"]
