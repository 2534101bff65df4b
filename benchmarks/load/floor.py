"""The floor: a minimal Django, Celery, Redis and SSE chat, to measure the architecture's cost.

This is not the product. A turn: look up the key, store the message and an empty reply in one
transaction, send one Celery task, read the messages that fit 8,000 tokens, stream the model's
reply through Redis to the client, store the reply. Environment: FLOOR_FOLDER, FLOOR_BROKER,
FLOOR_MODEL, FLOOR_KEY. `python -m benchmarks.load.floor` creates the tables.
"""

import asyncio
import http.client
import json
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import django
from django.conf import settings

FOLDER = Path(os.environ.get("FLOOR_FOLDER", "."))
# The path of the broker's socket.
SOCKET = os.environ.get("FLOOR_BROKER", "")
MODEL = os.environ.get("FLOOR_MODEL", "")
KEY = os.environ.get("FLOOR_KEY", "")
TOKEN_BUDGET, PAGE = 8_000, 64
PRAGMAS = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"

settings.configure(
    SECRET_KEY="floor",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["django.contrib.contenttypes"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(FOLDER / "floor.sqlite3"),
            "CONN_MAX_AGE": None,
            "OPTIONS": {
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",
                "init_command": PRAGMAS,
            },
        }
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
    LOGGING_CONFIG=None,
)
django.setup()

import redis  # noqa: E402  # after setup
import redis.asyncio  # noqa: E402  # after setup
from asgiref.sync import sync_to_async  # noqa: E402  # after setup
from celery import Celery  # noqa: E402  # after setup
from django.core.asgi import get_asgi_application  # noqa: E402  # after setup
from django.db import connection, models, transaction  # noqa: E402  # after setup
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse  # noqa: E402  # after setup
from django.urls import path  # noqa: E402  # after setup

celery = Celery("floor", broker=f"redis+socket://{SOCKET}", task_ignore_result=True)
celery.conf.update(
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


class Account(models.Model):  # noqa: DJ008  # never displayed
    """A person with a key."""

    key = models.CharField(max_length=40, unique=True)

    objects: ClassVar = models.Manager["Account"]()

    class Meta:
        app_label = "floor"


class Conversation(models.Model):  # noqa: DJ008  # never displayed
    """A chat."""

    owner = models.ForeignKey(Account, models.CASCADE)

    objects: ClassVar = models.Manager["Conversation"]()

    class Meta:
        app_label = "floor"


class Message(models.Model):  # noqa: DJ008  # never displayed
    """A message with its token count."""

    conversation = models.ForeignKey(Conversation, models.CASCADE, db_index=False)
    role = models.CharField(max_length=12)
    content = models.TextField()
    tokens = models.IntegerField()
    is_done = models.BooleanField(default=True)

    objects: ClassVar = models.Manager["Message"]()

    class Meta:
        app_label = "floor"
        indexes = (models.Index(fields=["conversation", "-id"], name="by_conversation"),)


def create_tables() -> None:
    """Create the tables, and the one account."""
    with connection.schema_editor() as editor:
        for model in (Account, Conversation, Message):
            editor.create_model(model)
    Account.objects.create(key=KEY)


def count_tokens(text: str) -> int:
    """Estimate the number of tokens in a text."""
    return (len(text) + 3) // 4 + 4


def compose(chat: int, *, before: int) -> list[dict[str, str]]:
    """The newest messages that fit the budget, oldest first."""
    chosen: list[dict[str, str]] = []
    left = TOKEN_BUDGET
    while True:
        rows = Message.objects.filter(conversation_id=chat, id__lt=before, is_done=True)
        page = list(rows.order_by("-id").values_list("id", "role", "content", "tokens")[:PAGE])
        for number, role, content, tokens in page:
            before, left = number, left - tokens
            if left < 0:
                return chosen[::-1]
            chosen.append({"role": role, "content": content})
        if len(page) < PAGE:
            return chosen[::-1]


# The worker.
local = threading.local()


def open_stream(body: str) -> http.client.HTTPResponse:
    """Send a request to the model on this thread's connection."""
    host, _, _ = MODEL.removeprefix("http://").partition("/")
    if getattr(local, "connection", None) is None:
        local.connection = http.client.HTTPConnection(host, timeout=120)
        local.redis = redis.Redis(unix_socket_path=SOCKET)
    local.connection.request(
        "POST", "/v1/chat/completions", body, {"content-type": "application/json"}
    )
    response: http.client.HTTPResponse = local.connection.getresponse()
    return response


def read_texts(buffer: bytes) -> tuple[str, bytes]:
    """Return the text of the complete events in a buffer, and the rest of the buffer."""
    *events, rest = buffer.split(b"\n\n")
    texts = []
    for event in events:
        if event.startswith(b"data: {"):
            choices = json.loads(event[6:])["choices"]
            texts += [choices[0]["delta"].get("content") or ""] if choices else []
    return "".join(texts), rest


@celery.task(name="generate")
def generate(chat: int, reply: int) -> None:
    """Stream a reply of the model to Redis, then store it."""
    request = {"model": "mock-chat", "stream": True, "messages": compose(chat, before=reply)}
    response = open_stream(json.dumps(request))
    number, parts, buffer = 0, [], b""
    while data := response.read1(65536):
        text, buffer = read_texts(buffer + data)
        if text:
            parts.append(text)
            number += 1
            publish(reply, number, "text", text)
    content = "".join(parts)
    Message.objects.filter(id=reply).update(
        content=content, tokens=count_tokens(content), is_done=True
    )
    publish(reply, number + 1, "done", "")
    local.redis.expire(f"reply:{reply}", 60)


def publish(reply: int, number: int, kind: str, text: str) -> None:
    """Append an event to the reply's stream, and notify the web process."""
    pipeline = local.redis.pipeline(transaction=False)
    pipeline.xadd(f"reply:{reply}", {"number": number, "kind": kind, "text": text})
    pipeline.publish("replies", f"{reply}\n{number}\n{kind}\n{text}")
    pipeline.execute()


# The web process.
waiting: dict[int, asyncio.Queue[tuple[int, str, str]]] = {}
hub: dict[str, asyncio.Task[None]] = {}


async def receive_events() -> None:
    """Pass the events of all replies to the requests that follow them."""
    subscription = redis.asyncio.Redis(unix_socket_path=SOCKET).pubsub()
    await subscription.subscribe("replies")
    async for message in subscription.listen():
        if message["type"] == "message":
            reply, number, kind, text = message["data"].decode().split("\n", 3)
            if queue := waiting.get(int(reply)):
                queue.put_nowait((int(number), kind, text))


def accept(key: str, chat: int, text: str) -> int:
    """Store a message and an empty reply; return the id of the reply."""
    with transaction.atomic():
        owner = Account.objects.values_list("id", flat=True).get(key=key)
        Conversation.objects.only("id").get(id=chat, owner_id=owner)
        Message.objects.create(
            conversation_id=chat, role="user", content=text, tokens=count_tokens(text)
        )
        reply = Message.objects.create(
            conversation_id=chat, role="assistant", content="", tokens=0, is_done=False
        )
    return int(reply.pk)


async def create_chat(request: HttpRequest) -> JsonResponse:
    """Create a chat."""
    owner = await Account.objects.aget(key=request.headers["authorization"][7:])
    return JsonResponse({"id": (await Conversation.objects.acreate(owner=owner)).pk})


async def send_message(request: HttpRequest, chat: int) -> StreamingHttpResponse:
    """Store a message and stream its reply."""
    if not hub:
        hub["task"] = asyncio.create_task(receive_events())
        await asyncio.sleep(0.1)
    key, text = request.headers["authorization"][7:], json.loads(request.body)["text"]
    reply = await sync_to_async(accept)(key, chat, text)
    waiting[reply] = asyncio.Queue()
    await sync_to_async(generate.apply_async)((chat, reply), ignore_result=True)
    return StreamingHttpResponse(stream(reply), content_type="text/event-stream")


async def stream(reply: int) -> AsyncIterator[bytes]:
    """Yield the events of a reply."""
    try:
        while True:
            _, kind, text = await asyncio.wait_for(waiting[reply].get(), 60)
            yield f"event: {kind}\ndata: {json.dumps({'text': text})}\n\n".encode()
            if kind == "done":
                return
    finally:
        waiting.pop(reply, None)


async def ping(_request: HttpRequest) -> JsonResponse:
    """Answer that the process is ready."""
    return JsonResponse({})


urlpatterns: list[Any] = [
    path("ping", ping),
    path("chats", create_chat),
    path("chats/<int:chat>/messages", send_message),
]
application = get_asgi_application()

if __name__ == "__main__":
    create_tables()
