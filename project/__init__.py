"""The wiring: launcher, settings, entry points. Importing it loads neither Django nor Celery."""
