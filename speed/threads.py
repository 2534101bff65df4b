"""Handles each request in one persistent thread.

Views and middleware here are synchronous, and each switch between a thread and the
event loop costs more than most of them do. Django switches about fifteen times per
request. This handler answers a request without a switch, in one thread; only the
content of an event stream comes from the loop.

Django also creates a thread for each request and ends it with the request. The thread's
database connection is closed with it, and opening a connection costs more than most
requests. Here both threads and their connections are persistent. A thread handles one
request at a time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar, cast

from asgiref.sync import ThreadSensitiveContext
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections
from django.http.response import FileResponse, HttpResponseBase
from django.urls import set_script_prefix

THREADS = 16
Result = TypeVar("Result")


class RequestThread:
    """One of the threads, and the number of its pending requests."""

    def __init__(self, number: int) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix=f"request-{number}")
        self.waiting = 0


class RequestScope:
    """The state of one request: its thread, and its context variables in thread and loop."""

    def __init__(self, thread: RequestThread) -> None:
        self.thread = thread
        self.context = copy_context()

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        self.thread.waiting += 1
        try:
            return await loop.run_in_executor(
                self.thread.executor, self.context.run, function, *arguments
            )
        finally:
            self.thread.waiting -= 1

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task in the loop whose calls into a thread use this thread."""

        async def in_thread() -> None:
            async with ThreadSensitiveContext(executor=self.thread.executor):
                await work

        return asyncio.create_task(in_thread(), context=self.context)


class LastingThreads(ASGIHandler):
    """A handler that runs a whole request in the least busy thread."""

    def __init__(self) -> None:
        super().__init__()
        # Replaces the asynchronous middleware chain that Django's handler has just built.
        self.load_middleware(is_async=False)
        self.threads = [RequestThread(number) for number in range(THREADS)]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one HTTP request; other protocols are refused as in Django."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        place = RequestScope(min(self.threads, key=lambda thread: thread.waiting))
        try:
            response = await place.run(self.answer, scope, body)
            if not response.streaming:
                await self.send_response(response, send)
                return
            try:
                await self.stream(response, place, receive, send)
            finally:
                await place.run(response.close)
        finally:
            body.close()

    def answer(self, scope: Any, body: Any) -> HttpResponseBase:
        """Return the response to one request.

        A complete response is closed here, because the loop does no further work for it.
        """
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, unread = self.create_request(scope, body)
        # Exactly one of the two is None.
        response = self.get_response(request) if request else cast(HttpResponseBase, unread)
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if response.streaming:
            # A stream lasts for minutes, its thread has other requests, and the pool has few
            # connections.
            close_old_connections()
        else:
            response.close()
        return response

    async def stream(
        self, response: HttpResponseBase, place: "RequestScope", receive: Any, send: Any
    ) -> None:
        """Send the content until the stream ends or the client disconnects.

        If the client disconnects, the stream is cancelled.
        """
        sending = place.begin(self.send_response(response, send))
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
