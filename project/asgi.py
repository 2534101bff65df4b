"""The ASGI entry point of the web process.

Views and middleware here are synchronous, and each switch between a thread and the event loop
costs more than most of them do: Django switches some fifteen times for one request. Here a request
is answered in one go in one thread, and only what an event stream sends comes from the loop.

Django also gives each request a thread of its own, made for it and ended with it, and with the
thread goes its database connection: opening one costs more than most requests do. Here the threads
last, one request in one thread, so that connections last too.
"""

import asyncio
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import django
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http.response import FileResponse, HttpResponseBase
from django.urls import set_script_prefix

from project.middleware import Bounded

THREADS = 16


class LastingThreads(ASGIHandler):
    """Django's handler, with the whole of a request in the next of the threads."""

    def __init__(self) -> None:
        super().__init__()
        # Replaces the asynchronous chain that Django's handler has just made.
        self.load_middleware(is_async=False)
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

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Read, answer, send; a stream ends when its client leaves."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        try:
            response = await sync_to_async(self.answer)(scope, body)
            if not response.streaming:
                await self.send_response(response, send)
                return
            try:
                await self.stream(response, receive, send)
            finally:
                await sync_to_async(response.close)()
        finally:
            body.close()

    def answer(self, scope: Any, body: Any) -> HttpResponseBase:
        """The answer to one request. One that is complete is closed here: nothing of it is open."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, unread = self.create_request(scope, body)
        # Exactly one of the two is None.
        response = self.get_response(request) if request else cast(HttpResponseBase, unread)
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if not response.streaming:
            response.close()
        return response

    async def stream(self, response: HttpResponseBase, receive: Any, send: Any) -> None:
        """Send until the stream or its client ends; the stream learns of that by cancellation."""
        sending = asyncio.create_task(self.send_response(response, send))
        leaving = asyncio.create_task(receive())
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_over = sending.done()
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        if is_over:
            sending.result()


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)
application = Bounded(LastingThreads())
