"""A mixed load: chats that grow, both interfaces, search, pages, files, stops and deletions."""

import asyncio
import itertools
import json
import random
import re
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from benchmarks.load.client import HttpConnection, TokenMeter

WORDS = """
    context window policy summary message budget history model answer question stream database
    worker queue cache request reply prompt detail number result example because before between
""".split()  # noqa: SIM905 - words separated by spaces are easier to read
ACCEPTED = re.compile(rb"event: accepted\r?\ndata: (\{.*\})")
EDGE = "a-line-between-parts"
TOKENS = 40
# How often each action is chosen, out of their sum.
WEIGHTS = {
    "reply": 30,
    "gateway reply": 10,
    "stop": 5,
    "page": 20,
    "search": 12,
    "find": 5,
    "upload": 6,
    "export": 2,
    "delete": 3,
    "erase": 1,
}


@dataclass
class Account:
    """A person of the instance: an API key, a session cookie and chats."""

    key: str
    cookie: str
    chats: list[str]
    free: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = list(self.chats)


@dataclass
class Tally:
    """The results of the load: finished actions, and replies or requests that went wrong."""

    work: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    lost_replies: int = 0

    def take_work(self) -> dict[str, int]:
        """Return the actions since the last call."""
        done, self.work = dict(self.work), Counter()
        return done


class Load:
    """Sends requests at a steady rate until it is stopped."""

    def __init__(self, port: int, account: Account, *, rate: float, seed: int = 1) -> None:
        self.tally = Tally()
        self._account = account
        self._rate = rate
        self._port = port
        self._idle: list[HttpConnection] = []
        self._chance = random.Random(seed)  # noqa: S311  # the same in every run
        self._numbers = itertools.count(1)
        self._actions: dict[str, Callable[[HttpConnection], Awaitable[None]]] = {
            "reply": self._get_reply,
            "gateway reply": self._get_gateway_reply,
            "stop": self._stop_reply,
            "page": self._open_page,
            "search": self._search,
            "find": self._find,
            "upload": self._upload,
            "export": self._export,
            "delete": self._delete,
            "erase": self._erase,
        }

    async def run(self, seconds: float) -> None:
        """Start actions at random times for some seconds, then wait until all have ended."""
        end, running = time.monotonic() + seconds, set()
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        while time.monotonic() < end:
            (name,) = self._chance.choices(names, weights)
            task = asyncio.create_task(self._act(name))
            running.add(task)
            task.add_done_callback(running.discard)
            await asyncio.sleep(min(self._chance.expovariate(self._rate), 5.0))
        await asyncio.gather(*running)
        for connection in self._idle:
            connection.close()

    async def _act(self, name: str) -> None:
        """Do one action and count it, or its failure."""
        connection = self._idle.pop() if self._idle else HttpConnection("127.0.0.1", self._port)
        try:
            await self._actions[name](connection)
            self.tally.work[name] += 1
        except (OSError, TimeoutError, Failed) as error:
            self.tally.failures[f"{name}: {error}"[:120]] += 1
        finally:
            self._idle.append(connection)

    async def _ask(
        self, connection: HttpConnection, method: str, path: str, body: object = None
    ) -> bytes:
        """Send an API request and return the response body. Raises Failed for an error status."""
        headers = {"authorization": f"Bearer {self._account.key}"}
        status, said = await connection.request(method, f"/api/v1{path}", body, headers)
        if status >= 300:
            raise Failed(f"{method} {re.sub('[0-9a-f-]{36}', 'ID', path)}: {status} {said[:80]!r}")
        return said

    def _write_text(self) -> str:
        """A message of 20 to 120 words, different from all others."""
        words = self._chance.choices(WORDS, k=self._chance.randint(20, 120))
        return f"Question {next(self._numbers)} of order {self._chance.random():.6f}: " + " ".join(
            words
        )

    async def _follow(self, connection: HttpConnection, chat: str, body: object) -> None:
        """Send a message and read its reply. Raises Failed if no complete reply arrives."""
        meter, said = TokenMeter(), bytearray()

        def receive(data: bytes) -> None:
            meter.feed(data)
            said.extend(data)

        headers = {"authorization": f"Bearer {self._account.key}"}
        path = f"/api/v1/chats/{chat}/messages"
        status, refusal = await connection.request("POST", path, body, headers, receive=receive)
        if status >= 300:
            raise Failed(f"message: {status} {refusal[:80]!r}")
        self._check(meter, ended=b"event: done" in said)

    def _check(self, meter: TokenMeter, *, ended: bool) -> None:
        """Raise Failed for a reply that is incomplete or out of order, and count it as lost."""
        if ended and len(meter.seen) == TOKENS and not meter.repeated and not meter.reordered:
            return
        self.tally.lost_replies += 1
        raise Failed(f"{len(meter.seen)} of {TOKENS} tokens, ended: {ended}")

    async def _get_reply(
        self, connection: HttpConnection, *, files: list[str] | None = None
    ) -> None:
        """Continue a chat that no other action uses, or a new one."""
        free = self._account.free
        chat = free.pop(self._chance.randrange(len(free))) if free else await self._new(connection)
        try:
            body = {
                "text": self._write_text(),
                "stream": True,
                **({"files": files} if files else {}),
            }
            await self._follow(connection, chat, body)
        finally:
            free.append(chat)

    async def _new(self, connection: HttpConnection) -> str:
        """Create a chat; return its id."""
        return str(json.loads(await self._ask(connection, "POST", "/chats", {}))["id"])

    async def _get_gateway_reply(self, connection: HttpConnection) -> None:
        """Ask through the gateway, as an OpenAI client does."""
        body = {
            "model": "bench",
            "stream": True,
            "messages": [{"role": "user", "content": self._write_text()}],
        }
        meter, said = TokenMeter(), bytearray()

        def receive(data: bytes) -> None:
            meter.feed(data)
            said.extend(data[-64:])

        headers = {"authorization": f"Bearer {self._account.key}"}
        status, refusal = await connection.request(
            "POST", "/v1/chat/completions", body, headers, receive=receive
        )
        if status >= 300:
            raise Failed(f"gateway: {status} {refusal[:80]!r}")
        self._check(meter, ended=b"[DONE]" in said)

    async def _stop_reply(self, connection: HttpConnection) -> None:
        """Stop a reply after its first tokens. Raises Failed if its stream does not end."""
        chat = await self._new(connection)
        body = {"text": self._write_text(), "stream": True}
        meter, said, began = TokenMeter(), bytearray(), asyncio.Event()

        def receive(data: bytes) -> None:
            meter.feed(data)
            said.extend(data)
            if len(meter.seen) > 3:
                began.set()

        headers = {"authorization": f"Bearer {self._account.key}"}
        path = f"/api/v1/chats/{chat}/messages"
        reading = asyncio.create_task(
            connection.request("POST", path, body, headers, receive=receive)
        )
        begun = asyncio.create_task(began.wait())
        await asyncio.wait({reading, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        accepted = ACCEPTED.search(said)
        if accepted and not reading.done():
            turn = json.loads(accepted[1])["turn"]["id"]
            other = HttpConnection("127.0.0.1", self._port)
            with_headers = headers | {"idempotency-key": uuid.uuid4().hex}
            await other.request("POST", f"/api/v1/chats/{chat}/turns/{turn}/stop", {}, with_headers)
            other.close()
        status, refusal = await reading
        if status >= 300 or b"event: done" not in said:
            raise Failed(f"stopped: {status} {refusal[:80]!r}")

    async def _open_page(self, connection: HttpConnection) -> None:
        """Open a list, a chat or a search as a browser. Raises Failed if no page is returned."""
        chat = self._chance.choice(self._account.chats)
        path = self._chance.choice(
            ["/chats/archive", f"/chats/{chat}/", f"/chats/{chat}/", "/search?q=order"]
        )
        headers = {"cookie": self._account.cookie}
        status, said = await connection.request("GET", path, None, headers)
        if status != 200 or b"<html" not in said[:400]:
            raise Failed(f"page {path[:14]}: {status}")

    async def _search(self, connection: HttpConnection) -> None:
        """Search all chats."""
        await self._ask(
            connection, "GET", f"/search?q={'+'.join(self._chance.choices(WORDS, k=3))}"
        )

    async def _find(self, connection: HttpConnection) -> None:
        """Search the originals of one chat."""
        chat = self._chance.choice(self._account.chats)
        words = "+".join(self._chance.choices(WORDS, k=2))
        await self._ask(connection, "GET", f"/chats/{chat}/archive?q={words}")

    async def _upload(self, connection: HttpConnection) -> None:
        """Upload a small text file. Raises Failed if it is refused."""
        text = "\n".join(self._write_text() for _ in range(self._chance.randint(5, 60)))
        name = f"notes-{next(self._numbers)}.txt"
        head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n'
        kind = "Content-Type: text/plain\r\n\r\n"
        body = f"--{EDGE}\r\n{head}{kind}{text}\r\n--{EDGE}--\r\n".encode()
        headers = {
            "authorization": f"Bearer {self._account.key}",
            "content-type": f"multipart/form-data; boundary={EDGE}",
        }
        status, said = await connection.request("POST", "/api/v1/files", body, headers)
        if status >= 300:
            raise Failed(f"upload: {status} {said[:80]!r}")

    async def _export(self, connection: HttpConnection) -> None:
        """Download a chat."""
        chat = self._chance.choice(self._account.chats)
        await self._ask(connection, "GET", f"/chats/{chat}/export")

    async def _make_chat(self, connection: HttpConnection) -> str:
        """Create a chat with one reply; return its id."""
        chat = await self._new(connection)
        await self._follow(connection, chat, {"text": self._write_text(), "stream": True})
        return chat

    async def _delete(self, connection: HttpConnection) -> None:
        """Delete a new chat."""
        await self._ask(connection, "DELETE", f"/chats/{await self._make_chat(connection)}")

    async def _erase(self, connection: HttpConnection) -> None:
        """Erase a new chat."""
        await self._ask(connection, "POST", f"/chats/{await self._make_chat(connection)}/erase", {})


class Failed(Exception):
    """A response that a working instance never returns."""
