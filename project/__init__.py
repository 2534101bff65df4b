"""Launcher, settings and entry points. Importing it loads neither Django nor Celery."""
