"""The ASGI entry point of the web process."""

import gc
import os

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

from project.celery import app
from project.middleware import RequestSizeLimits
from speed.threads import LastingThreads

# A request waits at most so long for each response of the broker.
BROKER_SECONDS = 2
LOOKED_UP = (
    "broker_pool_acquire_timeout",
    "task_always_eager",
    "task_default_queue",
    "task_send_sent_event",
)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)
# Somebody waits while a task is handed over, and the sweep finds a task that a hanging broker did
# not take. A worker waits longer: losing its connection costs more.
app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    "socket_timeout": BROKER_SECONDS,
}
# Celery looks these up for each task it sends, and searches settings and defaults, each by several
# spellings: half of the time that the sending takes. Set here, they are found at once.
app.conf.update({name: app.conf[name] for name in LOOKED_UP})
application = RequestSizeLimits(LastingThreads() if settings.SPEED else ASGIHandler())
# All that is loaded by now stays loaded: the collector would walk through it again and again, each
# time with every request standing still.
gc.collect()
gc.freeze()
