"""The ASGI entry point of the web process.

Django gives each request a thread of its own, made for it and ended with it, and with the thread
goes its database connection: opening one costs more than most requests do. Here the synchronous
parts of requests run in a few lasting threads instead, one request in one thread, so that
connections last too.
"""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django
from asgiref.sync import ThreadSensitiveContext
from django.core.handlers.asgi import ASGIHandler

from project.middleware import Bounded

THREADS = 16


class LastingThreads(ASGIHandler):
    """Django's handler, with the request's synchronous parts in the next of the threads."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = itertools.cycle(
            [ThreadPoolExecutor(1, thread_name_prefix=f"request-{n}") for n in range(THREADS)]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One HTTP request; anything else is refused as Django refuses it."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        async with ThreadSensitiveContext(executor=next(self.threads)):
            await self.handle(scope, receive, send)


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)
application = Bounded(LastingThreads())
