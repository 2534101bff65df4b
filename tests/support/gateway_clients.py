"""Clients of the gateway: their messages, requests and responses."""

import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asgiref.sync import async_to_sync
from django.test import Client
from django.utils import timezone

from chats.ground import queue
from chats.models import ApiKey, Chat, Message, Turn
from chats.people import keys
from chats.providers.base import Finished, TextDelta, ToolCallDelta, UsageReport
from tests.support.scripted_worker import InlineWorker, ScriptedProvider
from tests.support.streamed_responses import read_stream

Messages = list[dict[str, Any]]
USAGE = UsageReport(20, 9, 5, 0)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            "strict": True,
        },
    }
]


class SilentBus:
    """A bus without frames, so that clients get their data from the database."""

    lagged = False
    frames: ClassVar[list[Any]] = []

    @asynccontextmanager
    async def follow(self, key: str) -> AsyncIterator["SilentBus"]:
        """Open a subscription, as the hub does."""
        yield self

    async def next(self, *, seconds: float) -> None:
        """Return no frame, as a subscription does."""


@dataclass
class Answer:
    """A response: HTTP status, headers and body."""

    status: int
    headers: Any
    body: str

    @property
    def json(self) -> Any:
        """Parse the body as JSON."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """Return the text of the reply, whole or joined from its chunks."""
        if self.headers["Content-Type"].startswith("application/json"):
            return str(self.json["choices"][0]["message"]["content"])
        deltas = [c["choices"][0]["delta"] for c in self.chunks if c.get("choices")]
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """Return the JSON events of a stream."""
        lines = [line.removeprefix("data: ") for line in self.body.split("\n") if line]
        return [json.loads(line) for line in lines if line.startswith("{")]

    @property
    def chat(self) -> Chat:
        """Return the chat that received the request."""
        return Chat.objects.get(pk=self.headers["X-Context-Chat"])

    @property
    def turn(self) -> Turn:
        """Return the turn that replied."""
        return Turn.objects.get(pk=self.headers["X-Context-Report-Id"])


@dataclass
class GatewayClient:
    """A client with an API key. Its model replies immediately with the next script."""

    secret: str
    sent: list[tuple[str, dict[str, str]]]
    requests: list[Any] = field(default_factory=list)
    count: int = 0

    def open(self, body: Any, *, path: str = "chat/completions", **headers: str) -> Any:
        """Send a request and return the response, before its reply is written."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        client = Client(headers={"Authorization": f"Bearer {self.secret}", **headers})
        return client.post(f"/v1/{path}", data, content_type="application/json")

    def close(self, response: Any) -> Answer:
        """Read a response to its end."""
        if not response.streaming:
            return Answer(response.status_code, response.headers, response.content.decode())

        body = read_stream(response).decode()
        return Answer(response.held.status, {**response.headers, **response.held.headers}, body)

    def work(self, turn_id: str, *script: Any) -> None:
        """Process a turn as a worker does. Without a script, each reply is different."""
        self.count += 1
        said = script or (TextDelta(f"reply {self.count}"), Finished("stop"))
        provider = ScriptedProvider([list(said)])
        worker: Any = InlineWorker(provider)
        async_to_sync(worker.turn)(uuid.UUID(turn_id))
        self.requests += provider.requests

    def ask(
        self, messages: Messages, *script: Any, headers: dict[str, str] | None = None, **more: Any
    ) -> Answer:
        """Send a conversation, let the model reply, and return the response."""
        response = self.open({"model": "demo", "messages": messages, **more}, **(headers or {}))
        if response.streaming:
            self.work(response["X-Context-Report-Id"], *script)
        return self.close(response)

    def talk(self, texts: list[str], messages: Messages | None = None, **more: Any) -> Messages:
        """Send a growing conversation and return it with its replies."""
        messages = list(messages or [])
        for text in texts:
            messages.append(user(text))
            messages.append(assistant(self.ask(messages, **more).text))
        return messages

    @property
    def prompt(self) -> list[tuple[str, str]]:
        """Return role and text of each message in the newest prompt."""
        return [(wire.role, wire.content) for wire in self.requests[-1].messages]


def user(text: Any) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": text}


def assistant(text: str | None, *calls: dict[str, Any]) -> dict[str, Any]:
    """Return a reply."""
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}


def system(text: str, role: str = "system") -> dict[str, Any]:
    """Return a system message."""
    return {"role": role, "content": text}


def call(call_id: str, arguments: str = '{"city": "Oslo"}', name: str = "weather") -> Any:
    """Return a tool call."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(call_id: str, text: str) -> dict[str, Any]:
    """Return a tool result."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def calling(*ids: str, text: str = "") -> tuple[Any, ...]:
    """Return a script in which the model calls the weather tool."""
    calls = [
        ToolCallDelta(n, call_id, "weather", '{"city": "Oslo"}') for n, call_id in enumerate(ids)
    ]
    return (*([TextDelta(text)] if text else []), *calls, Finished("tool_calls"))


def list_chat_messages(chat: Chat) -> list[tuple[int | None, str, str]]:
    """Return all messages of a chat with their sequence numbers."""
    rows = Message.objects.filter(branch__chat=chat).order_by("accepted")
    return [(row.seq, row.role, row.text) for row in rows]


MakeClient = Callable[..., GatewayClient]


def get_client_key(program: GatewayClient) -> ApiKey:
    """Return the row of a client's key."""
    key = keys.authenticate_api_key(secret=program.secret, now=timezone.now())
    assert key is not None
    return key


def list_queued_tasks(sent: list[tuple[str, dict[str, str]]]) -> list[str]:
    """The enqueued tasks, without those for replies."""
    return [task for task, _ in sent if task != queue.RUN_TURN]
