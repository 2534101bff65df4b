"""The ASGI entry point of the web process.

Views and middleware here are synchronous, and each switch between a thread and the event loop
costs more than most of them do: Django switches some fifteen times for one request. Here a request
is answered in one go in one thread, and only what an event stream sends comes from the loop.

Django also gives each request a thread of its own, made for it and ended with it, and with the
thread goes its database connection: opening one costs more than most requests do. Here the threads
last, one request in one thread, so that connections last too.
"""

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar, cast

import django
from asgiref.sync import ThreadSensitiveContext
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http.response import FileResponse, HttpResponseBase
from django.urls import set_script_prefix

from project.celery import app
from project.middleware import Bounded

THREADS = 16
# How long a request waits for each answer of the broker.
BROKER_SECONDS = 2
LOOKED_UP = (
    "broker_pool_acquire_timeout",
    "task_always_eager",
    "task_default_queue",
    "task_send_sent_event",
)
Result = TypeVar("Result")


class Thread:
    """One of the threads, and how much it has to do."""

    def __init__(self, number: int) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix=f"request-{number}")
        self.waiting = 0


class Place:
    """Where one request is worked on: its thread, and what is known of it there and in the loop."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.context = copy_context()

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call the function in the thread."""
        loop = asyncio.get_running_loop()
        self.thread.waiting += 1
        try:
            return await loop.run_in_executor(
                self.thread.executor, self.context.run, function, *arguments
            )
        finally:
            self.thread.waiting -= 1

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task of the loop, whose ways into a thread lead into this one."""

        async def in_thread() -> None:
            async with ThreadSensitiveContext(executor=self.thread.executor):
                await work

        return asyncio.create_task(in_thread(), context=self.context)


class LastingThreads(ASGIHandler):
    """Django's handler, with the whole of a request in the first of the threads that is free."""

    def __init__(self) -> None:
        super().__init__()
        # Replaces the asynchronous chain that Django's handler has just made.
        self.load_middleware(is_async=False)
        self.threads = [Thread(number) for number in range(THREADS)]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One HTTP request; anything else is refused as Django refuses it."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        place = Place(min(self.threads, key=lambda thread: thread.waiting))
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

    async def stream(
        self, response: HttpResponseBase, place: "Place", receive: Any, send: Any
    ) -> None:
        """Send until the stream or its client ends; the stream learns of that by cancellation."""
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


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)
# Somebody waits while a task is handed over; what a broker that hangs does not take, the sweep
# finds. A worker waits longer: for it, to lose the connection costs more.
app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    "socket_timeout": BROKER_SECONDS,
}
# What Celery looks up for each task it sends, and for it searches settings and defaults, each by
# several spellings: half of the time that the sending takes. What is set here it finds at once.
app.conf.update({name: app.conf[name] for name in LOOKED_UP})
application = Bounded(LastingThreads())
# What is loaded by now stays: the collector would walk through all of it again and again, each
# time with every request standing still.
gc.collect()
gc.freeze()
