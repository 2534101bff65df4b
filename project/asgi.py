"""The ASGI entry point of the web process."""

import gc
import os

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

from project.celery import app
from project.request_limits import RequestSizeLimits
from speed.threads import LastingThreads

# The maximum time that a request waits for each response of the broker.
BROKER_SECONDS = 2
LOOKED_UP = (
    "broker_pool_acquire_timeout",
    "task_always_eager",
    "task_default_queue",
    "task_send_sent_event",
)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)
# A request waits while a task is enqueued. A due job finds a task that a hanging broker did not
# accept. A worker waits longer, because losing its connection costs more.
app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    "socket_timeout": BROKER_SECONDS,
}
# Celery looks up these settings for each task that it sends, under several names. That takes half
# of the sending time. With explicit values they are found at once.
app.conf.update({name: app.conf[name] for name in LOOKED_UP})
application = RequestSizeLimits(LastingThreads() if settings.SPEED else ASGIHandler())
# Everything loaded so far stays loaded. Without `freeze` the garbage collector would scan it
# repeatedly, and all requests would wait.
gc.collect()
gc.freeze()
