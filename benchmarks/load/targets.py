"""Servers under load: the product, its gateway, the floor and the peers, as clients see them."""

import asyncio
import json
import random
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load.client import HttpConnection, TokenMeter

WORDS = """
    context window policy summary message token budget history model answer question stream chunk
""".split()  # noqa: SIM905 - words separated by spaces are easier to read
HOST = "127.0.0.1"


def write_text(chance: random.Random, *, words: int = 30) -> str:
    """Return a message of `words` random words."""
    return " ".join(chance.choices(WORDS, k=words))


@dataclass
class Target(ABC):
    """One server under load. `pids` are the roots of its processes, whose CPU time is measured."""

    name: str
    port: int
    pids: Sequence[int] = ()

    @abstractmethod
    async def prepare(self, people: int) -> None:
        """Open the connections and chats of the simulated people; not measured."""

    @abstractmethod
    async def take_turn(self, person: int, text: str, meter: TokenMeter) -> str:
        """Send a message and read the complete reply; return an error, or an empty string."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections."""


@dataclass
class HttpTarget(Target):
    """A server with one HTTP connection for each person."""

    key: str = "sk-mock"
    connections: list[HttpConnection] = field(default_factory=list)

    async def prepare(self, people: int) -> None:
        """Create the connections; they open with the first request."""
        self.connections = [HttpConnection(HOST, self.port) for _ in range(people)]

    async def close(self) -> None:
        """Close the connections."""
        for connection in self.connections:
            connection.close()

    async def stream(
        self, person: int, path: str, body: object, meter: TokenMeter, *, end: bytes
    ) -> str:
        """Send a request and feed its stream to the meter; return an error or an empty string."""
        tail = b""

        def receive(data: bytes) -> None:
            nonlocal tail
            meter.feed(data)
            tail = (tail + data)[-512:]

        headers = {"authorization": f"Bearer {self.key}"}
        status, said = await self.connections[person].request(
            "POST", path, body, headers, receive=receive
        )
        if status >= 300:
            return f"status {status}: {said[:120]!r}"
        return "" if end in tail else f"the stream ended early: {tail[-80:]!r}"


@dataclass
class OpenAITarget(HttpTarget):
    """A server with OpenAI's interface: the fake model server, our gateway, LiteLLM."""

    model: str = "mock-chat"

    async def take_turn(self, person: int, text: str, meter: TokenMeter) -> str:
        """Send a conversation of one message."""
        messages = [{"role": "user", "content": text}]
        body = {"model": self.model, "stream": True, "messages": messages}
        return await self.stream(person, "/v1/chat/completions", body, meter, end=b"[DONE]")


@dataclass
class ChatTarget(HttpTarget):
    """The product's REST API, or the floor: a chat for each person, the reply as the response."""

    prefix: str = "/api/v1"
    given: Sequence[str] = ()
    chats: list[str] = field(default_factory=list)

    async def prepare(self, people: int) -> None:
        """Create a chat for each person, unless there are enough chats already."""
        await super().prepare(people)
        self.chats = list(self.given[:people])
        headers = {"authorization": f"Bearer {self.key}"}
        for connection in self.connections[len(self.chats) :]:
            path = f"{self.prefix}/chats"
            status, said = await connection.request("POST", path, {}, headers)
            if status >= 300:
                raise RuntimeError(f"{self.name} created no chat: {status} {said[:120]!r}")
            self.chats.append(str(json.loads(said)["id"]))

    async def take_turn(self, person: int, text: str, meter: TokenMeter) -> str:
        """Send a message to the person's chat."""
        path = f"{self.prefix}/chats/{self.chats[person]}/messages"
        body = {"text": text, "stream": True}
        return await self.stream(person, path, body, meter, end=b"event: done")


@dataclass
class ApartTarget(ChatTarget):
    """The product's REST API, used in two requests: send the message, then follow the reply."""

    async def take_turn(self, person: int, text: str, meter: TokenMeter) -> str:
        """Send a message, then read the turn's events."""
        chat, connection = self.chats[person], self.connections[person]
        headers = {"authorization": f"Bearer {self.key}"}
        path = f"{self.prefix}/chats/{chat}"
        status, said = await connection.request("POST", f"{path}/messages", {"text": text}, headers)
        if status >= 300:
            return f"status {status}: {said[:120]!r}"
        turn = json.loads(said)["turn"]["id"]
        events = bytearray()

        def receive(data: bytes) -> None:
            meter.feed(data)
            events.extend(data[-64:])

        await connection.request(
            "GET", f"{path}/turns/{turn}/events", None, headers, receive=receive
        )
        return "" if b"event: done" in events else "the stream ended early"


@dataclass
class ChainlitTarget(Target):
    """Chainlit over its WebSocket (socket.io 5), as its page uses it."""

    people: list[Any] = field(default_factory=list)
    session: Any = None

    async def prepare(self, people: int) -> None:
        """Connect each person."""
        import aiohttp

        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        url = f"http://{HOST}:{self.port}/ws/socket.io/?EIO=4&transport=websocket"
        for _ in range(people):
            socket = await self.session.ws_connect(url, max_msg_size=0)
            await socket.receive_str()
            names = {"clientType": "webapp", "sessionId": str(uuid.uuid4()), "threadId": ""}
            await socket.send_str("40" + json.dumps({**names, "userEnv": "{}", "chatProfile": ""}))
            while not (said := await socket.receive_str()).startswith("40"):
                if said.startswith("44"):
                    raise RuntimeError(f"Chainlit refused a connection: {said[:120]}")
            await socket.send_str('42["connection_successful"]')
            self.people.append(socket)
        await asyncio.sleep(1)

    async def take_turn(self, person: int, text: str, meter: TokenMeter) -> str:
        """Send a message and read events until the task ends."""
        socket = self.people[person]
        message = {
            "id": str(uuid.uuid4()),
            "name": "user",
            "type": "user_message",
            "output": text,
            "threadId": "",
            "createdAt": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
        }
        sent = ["client_message", {"message": message, "fileReferences": []}]
        await socket.send_str("42" + json.dumps(sent))
        while True:
            said = await socket.receive_str(timeout=60)
            if said == "2":
                await socket.send_str("3")
            elif said.startswith(('42["stream_token"', '42["stream_start"')):
                meter.feed(said.encode())
            # The end of an earlier task may arrive late.
            elif said.startswith('42["task_end"') and meter.seen:
                return ""
            elif '"isError":true' in said:
                return str(said[:120])

    async def close(self) -> None:
        """Close all sockets."""
        for socket in self.people:
            await socket.close()
        self.people = []
        await self.session.close()
