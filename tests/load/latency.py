"""Whether compaction makes anybody wait: time to the first token with it and without, in pairs.

`python -m tests.load.latency [--pairs 60]`: starts a whole instance whose model is the project's
fake server. Two chats grow by the same messages, one after the other in turn: one is folded every
few rounds by a summariser that takes seconds, the other never is. The model itself says its first
word after 200 ms. Prints both medians and their ratio; nothing is judged here.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from typing import Any

from tests.fakes.fake_server import FakeServer
from tests.load.streams import ROOT, environment, free_port, wait_for

PREPARE = """
import django; django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from chats.actions import lifecycle
from chats.people.keys import create_key
from chats.models import ProviderAccount
from contextpolicy.models import ModelSpec
from contextpolicy.presets import leave_demo
from contextpolicy.publish import assign, create_policy
now = timezone.now()
leave_demo(actor="system", now=now)
for slug in ("bench", "slow"):
    ProviderAccount.objects.create(slug=slug, name=slug, base_url="{base}")
model = ModelSpec.objects.create(slug="bench", provider="bench", name="fake-chat+tokens=5+ttft=200")
ModelSpec.objects.create(slug="slow", provider="slow", name="fake-sum+reply=summary+ttft={ms}")
owner = User.objects.create_user("bench")
_, secret = create_key(
    owner=owner, name="bench", scopes=["chats:read", "chats:write"], lifetime_days=1, now=now)
folded = {{"strategy": "dynamic_summary", "turn_threshold": 3, "fold_turns": 2,
          "summarization_model": "slow"}}
ids = []
for name, values in (("folded", folded), ("whole", {{"strategy": "sliding_window"}})):
    chat = lifecycle.create_chat(owner=owner, now=now, model=model)
    policy = create_policy(slug=name, name=name, values=values, actor="system", now=now)
    assign(policy=policy, level="chat", chat_id=chat.pk, actor="system", now=now)
    ids.append(str(chat.pk))
print(secret, *ids)
"""
COUNT = """
import django; django.setup()
from chats.models import Compaction
print(Compaction.objects.filter(published_at__isnull=False).count())
"""
TEXT = "The order {number} of 3 May 2026 goes to Anna Berg in Oslo, as we said before. " * 3


class Client:
    """The API of the instance, with one key."""

    def __init__(self, port: int, key: str) -> None:
        self.base = f"http://127.0.0.1:{port}/api/v1"
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def open(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """An open answer; a POST where there is a body."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {**self.headers, "Idempotency-Key": uuid.uuid4().hex} if data else self.headers
        request = urllib.request.Request(f"{self.base}{path}", data=data, headers=headers)  # noqa: S310  # loopback
        return urllib.request.urlopen(request, timeout=60)  # noqa: S310  # loopback

    def first_token(self, chat: str, text: str) -> float:
        """Seconds from sending a message to its reply's first words; waits for the reply's end."""
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


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--summary-ms", type=int, default=3000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, FakeServer() as fake:
        port = free_port()
        env = {**environment(folder, port), "ALLOWED_PRIVATE_PROVIDERS": fake.host}
        serve = [sys.executable, "manage.py", "serve", "--port", str(port)]
        instance = subprocess.Popen(serve, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz")
            prepared = PREPARE.format(base=fake.base_url, ms=arguments.summary_ms)
            key, *chats = run(prepared, env=env).split()
            client = Client(port, key)
            times: dict[str, list[float]] = {chat: [] for chat in chats}
            for number in range(arguments.pairs + 5):
                for chat in chats if number % 2 else reversed(chats):
                    times[chat].append(client.first_token(chat, TEXT.format(number=number)))
            # The first few warm up what is loaded once.
            folded, whole = (1000 * statistics.median(times[chat][5:]) for chat in chats)
            print(  # noqa: T201
                f"{arguments.pairs} pairs, {run(COUNT, env=env).strip()} compactions:"
                f" first token after {folded:.0f} ms with compaction, {whole:.0f} ms without,"
                f" ratio {folded / whole:.2f}"
            )
        finally:
            instance.send_signal(signal.SIGTERM)
            instance.wait(60)


def run(program: str, *, env: dict[str, str]) -> str:
    """What a program prints in the instance's own settings."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
