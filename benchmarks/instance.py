"""A whole instance of the product with its own data folder, for load measurements."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Limits raised so that only the machine is measured.
LIMITS = {
    "TURNS_PER_USER": "10000",
    "TURNS_PER_KEY": "10000",
    "REPLIES_PER_WORKER": "400",
    "STREAMS_PER_USER": "2000",
    "MESSAGES_PER_MINUTE": "1000000",
    "API_REQUESTS_PER_MINUTE": "1000000",
    "LOG_LEVEL": "WARNING",
    "CHATS_PER_USER": "1000000",
    "TITLES_BY_MODEL": "0",
}


@dataclass(frozen=True, slots=True)
class Instance:
    """A running instance: its launcher's process, its port and its settings."""

    pid: int
    port: int
    folder: Path
    env: dict[str, str]

    @property
    def url(self) -> str:
        """The base URL of its pages."""
        return f"http://127.0.0.1:{self.port}"

    def run(self, program: str) -> str:
        """Run a program with the instance's settings and return its output."""
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout


@contextmanager
def instance(*, model_host: str, database_url: str = "") -> Iterator[Instance]:
    """Run an instance that may call a model at this address until the block ends.

    Without a database URL it uses SQLite in its folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        env = {
            **os.environ,
            **LIMITS,
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "PALIMPSEST_DATA": folder,
            "PALIMPSEST_PORT": str(port),
            "ALLOWED_PRIVATE_PROVIDERS": model_host,
            "DATABASE_URL": database_url,
        }
        serve = [sys.executable, "manage.py", "serve", "--port", str(port)]
        launcher = subprocess.Popen(serve, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz")
            yield Instance(launcher.pid, port, Path(folder), env)
        finally:
            launcher.send_signal(signal.SIGTERM)
            launcher.wait(60)


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, *, seconds: float = 120) -> None:
    """Wait until the URL answers; exit if it does not within `seconds`."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310  # loopback
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing answers at {url}")


class Client:
    """The API of an instance, with one key."""

    def __init__(self, port: int, key: str) -> None:
        self.base = f"http://127.0.0.1:{port}/api/v1"
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def open(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request, a POST if there is a body, and return the open response."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {**self.headers, "Idempotency-Key": uuid.uuid4().hex} if data else self.headers
        request = urllib.request.Request(f"{self.base}{path}", data=data, headers=headers)  # noqa: S310  # loopback
        return urllib.request.urlopen(request, timeout=60)  # noqa: S310  # loopback

    def first_token(self, chat: str, text: str) -> float:
        """Seconds from sending a message to its first token; waits for the end of the reply."""
        begun = time.perf_counter()
        with self.open(f"/chats/{chat}/messages", {"text": text}) as answer:
            turn = json.load(answer)["turn"]["id"]
        first = 0.0
        with self.open(f"/chats/{chat}/turns/{turn}/events") as events:
            for line in events:
                if not first and line.startswith((b"event: text", b"event: delta")):
                    first = time.perf_counter() - begun
                if line.startswith(b"event: done"):
                    return first
        raise RuntimeError("the stream ended without an end")
