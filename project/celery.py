"""The Celery application, configured by the settings that begin with CELERY_."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

app = Celery("palimpsest")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
