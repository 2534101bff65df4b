"""The Celery application, configured by the settings that begin with CELERY_."""

import os
import warnings

from celery import Celery
from celery.exceptions import SecurityWarning

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

# Celery warns where root runs a worker, in six lines below the sign-in link of `make run`. The
# container image runs as another user.
warnings.filterwarnings("ignore", category=SecurityWarning)

app = Celery("palimpsest")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
