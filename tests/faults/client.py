"""A REST API client over a tree's socket; it parses event streams by hand."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx2

from tests.faults.harness import Tree


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    name: str
    id: str
    data: dict[str, Any]
    # Milliseconds until a disconnected client reconnects.
    retry: str = ""


class Client:
    """Requests with one person's API key."""

    def __init__(self, tree: Tree, *, person: str = "alice") -> None:
        self.tree = tree
        self.http = httpx2.Client(
            transport=httpx2.HTTPTransport(uds=tree.socket),
            base_url="http://localhost/api/v1",
            headers={"Authorization": f"Bearer {tree.keys[person]}"},
            timeout=40,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.http.close()

    def new_chat(self) -> str:
        """Create a chat and return its id."""
        answer = self.http.post("/chats", json={})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def post(self, chat: str, text: str, *, key: str = "") -> httpx2.Response:
        """Send a message; accepted messages are recorded for the promises."""
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.http.post(f"/chats/{chat}/messages", json={"text": text}, headers=headers)
        if answer.status_code == 202:
            self.tree.accepted.append(answer.json()["message"]["id"])
        return answer

    def send(self, chat: str, text: str, *, key: str = "") -> str:
        """Send a message that must be accepted; return its turn's id."""
        answer = self.post(chat, text, key=key)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["turn"]["id"])

    def messages(self, chat: str) -> list[dict[str, Any]]:
        """The first hundred messages of a chat."""
        answer = self.http.get(f"/chats/{chat}/messages", params={"limit": 100})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    def stop(self, chat: str, turn: str) -> httpx2.Response:
        """Stop a turn, as the Stop button does."""
        return self.http.post(f"/chats/{chat}/turns/{turn}/stop")

    @contextmanager
    def events(self, chat: str, turn: str, *, after: str = "") -> Iterator[Iterator[Event]]:
        """A turn's event stream after position `after`. Leaving the block drops the connection."""
        headers = {"Last-Event-ID": after} if after else {}
        path = f"/chats/{chat}/turns/{turn}/events"
        with self.http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            yield parsed(answer.iter_lines())


def parsed(lines: Iterator[str]) -> Iterator[Event]:
    """The events in the lines of a stream, without comments."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if not line:
            if "event" in fields:
                data = json.loads(fields.get("data", "{}"))
                yield Event(
                    name=fields["event"],
                    id=fields.get("id", ""),
                    data=data,
                    retry=fields.get("retry", ""),
                )
            fields = {}
            continue
        name, _, value = line.partition(": ")
        fields[name] = value


class Screen:
    """The text that a client shows. It accepts snapshots, and deltas at the expected position."""

    def __init__(self) -> None:
        self.text = ""
        self.place = ""
        self.status = ""
        self.restarted = 0

    def show(self, event: Event) -> None:
        """Apply one event.

        Fails on a gap, on a repetition, and on text that is removed silently.
        """
        if event.id:
            self.place = event.id
        match event.name:
            case "snapshot":
                assert len(event.data["text"]) >= len(self.text), "taken back without a word"
                self.text = event.data["text"]
            case "delta":
                assert event.data["offset"] == len(self.text), "a hole or a repetition"
                self.text += event.data["text"]
            case "reshaped":
                self.text = ""
                self.restarted += 1
            case "done":
                self.status = event.data["status"]

    def show_all(self, events: Iterator[Event]) -> None:
        """Apply all events until the stream ends."""
        for event in events:
            self.show(event)
