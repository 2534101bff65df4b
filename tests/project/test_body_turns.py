"""Large request bodies take turns, and only a few complete uploads are stored at the same time."""

import asyncio
from typing import Any

import pytest

from project import body_turns
from project.request_limits import RequestSizeLimits, check_request_size

PIECE = b"x" * body_turns.LARGE


def make_scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }


class Server:
    """Requests with bodies in memory, and an application that stores them until `go_on` is set."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.storing: set[str] = set()
        self.most = 0
        self.go_on = asyncio.Event()
        self.limits = RequestSizeLimits(self.application)

    async def application(self, scope: Any, receive: Any, _send: Any) -> None:
        name = scope["name"]
        while (await receive()).get("more_body"):
            self.order.append(name)
        self.storing.add(name)
        self.most = max(self.most, len(self.storing))
        try:
            await self.go_on.wait()
            if name == "broken":
                raise ValueError(name)
        finally:
            self.storing.discard(name)

    async def request(self, name: str, *pieces: bytes, path: str = "/api/v1/files") -> None:
        left = list(pieces)

        async def receive() -> dict[str, Any]:
            body = left.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(left)}

        async def send(_message: Any) -> None:
            """Nothing is answered."""

        await self.limits({**make_scope(path), "name": name}, receive, send)


async def pass_time() -> None:
    """Let all tasks run as far as they can."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_pieces_of_large_bodies_alternate() -> None:
    async def check() -> None:
        server = Server()
        server.go_on.set()
        async with asyncio.TaskGroup() as group:
            for name in ("one", "two"):
                group.create_task(server.request(name, *[PIECE] * 6))
        first = server.order[2:8]
        assert first in (["one", "two"] * 3, ["two", "one"] * 3), server.order

    asyncio.run(check())


def test_other_requests_come_between_two_pieces() -> None:
    async def check() -> None:
        server = Server()
        server.go_on.set()
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(server.request(f"large {number}", *[PIECE] * 20))
            # Each turn of the event loop moves at most one piece of all bodies.
            for turn in range(60):
                await asyncio.sleep(0)
                assert len(server.order) <= 20 + turn + 1
            assert server.order

    asyncio.run(check())


@pytest.mark.parametrize("path", ["/api/v1/files", "/files/attach", "/api/v1/imports"])
def test_few_uploads_are_stored_at_the_same_time(path: str) -> None:
    async def check() -> None:
        server = Server()
        tasks = [
            asyncio.create_task(server.request(name, PIECE, PIECE, path=path))
            for name in ("broken", "two", "three", "four")
        ]
        await pass_time()
        assert len(server.storing) == body_turns.STORED_AT_ONCE
        # Neither small uploads nor other requests wait for them.
        small = asyncio.create_task(server.request("small", b"x", path=path))
        other = asyncio.create_task(server.request("other", PIECE, PIECE, path="/v1/responses"))
        await pass_time()
        assert {"small", "other"} <= server.storing
        # One that fails makes room, too.
        server.go_on.set()
        results = await asyncio.gather(*tasks, small, other, return_exceptions=True)
        assert [type(result) for result in results].count(ValueError) == 1
        assert not server.storing

    asyncio.run(check())


def test_a_client_that_leaves_makes_room() -> None:
    async def check() -> None:
        server = Server()
        tasks = [
            asyncio.create_task(server.request(name, PIECE, PIECE))
            for name in ("one", "two", "three", "four", "five")
        ]
        await pass_time()
        tasks[2].cancel()
        await asyncio.gather(tasks[2], return_exceptions=True)
        tasks[0].cancel()
        await pass_time()
        assert server.storing == {"two", "four"}
        server.go_on.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(check())


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("/api/v1/ui-chats", True),
        ("/api/v1/chats/0198c0de-0000-7000-8000-000000000000/team/snapshot", True),
        ("/api/v1/ui-chats/0198c0de-0000-7000-8000-000000000000/messages", False),
        ("/api/v1/chats", False),
    ],
)
def test_a_body_with_all_messages_of_a_chat_may_have_sixteen_megabytes(
    path: str, is_allowed: bool
) -> None:
    for megabytes, allowed in ((2, True), (16, is_allowed), (17, False)):
        length = (b"content-length", b"%d" % (megabytes * 2**20))
        refusal = check_request_size({**make_scope(path), "headers": [length]})
        assert (refusal is None) == allowed, megabytes


@pytest.mark.parametrize(
    ("path", "names_uploads"),
    [
        ("/api/v1/chats", True),
        (f"/api/v1/chats/{'0' * 36}/messages", True),
        ("/api/v1/ui-chats", True),
        ("/v1/chat/completions", True),
        ("/v1/responses", True),
        ("/api/v1/policies", False),
    ],
)
def test_the_refusal_of_a_large_message_names_uploads(path: str, names_uploads: bool) -> None:
    length = (b"content-length", b"%d" % (41 * 2**20))
    refusal = check_request_size({**make_scope(path), "headers": [length]})
    assert refusal is not None
    assert (refusal.status, refusal.code) == (413, "request_too_large")
    assert ("/api/v1/files" in str(refusal.full)) == names_uploads
