"""The time to open a chat's page on an idle server and while replies stream.

`python -m benchmarks.pages [--streams 100] [--pages 60]` starts a whole instance with the project's
fake server, which sends twenty tokens a second per reply. One person opens a chat of sixty messages
repeatedly: on the idle server, while clients of another person follow all replies, and after the
replies ended. It prints p50 and p95 of each, without pass or fail limits.
"""

import argparse
import http.client
import json
import statistics
import sys
import threading
import time

from benchmarks.instance import Client, instance
from tests.fakes.fake_server import FakeServer

PREPARE = """
import django; django.setup()
from importlib import import_module
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.utils import timezone
from chats.actions import lifecycle
from chats.people.keys import create_key
from chats.models import ProviderAccount
from contextpolicy.models import ModelSpec
from contextpolicy.presets import replace_demo_policy
from benchmarks.bulk import fill, texts, vocabulary
now = timezone.now()
replace_demo_policy(actor="system", now=now)
ProviderAccount.objects.create(slug="bench", name="bench", base_url="{base}")
ModelSpec.objects.update(is_default=False)
model = ModelSpec.objects.create(
    slug="bench", provider="bench", name="fake-chat+tokens={tokens}+ms=50", is_default=True)
reader, writer = (User.objects.create_user(name) for name in ("reader", "writer"))
_, secret = create_key(
    owner=writer, name="bench", scopes=["chats:read", "chats:write"], lifetime_days=1, now=now)
chat = lifecycle.create_chat(owner=reader, now=now, model=model)
fill(chat, texts(60, words=vocabulary()), now=now)
session = import_module(settings.SESSION_ENGINE).SessionStore()
session[SESSION_KEY] = str(reader.pk)
session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
session[HASH_SESSION_KEY] = reader.get_session_auth_hash()
session.save()
ids = [str(lifecycle.create_chat(owner=writer, now=now, model=model).pk) for _ in range({streams})]
print(settings.SESSION_COOKIE_NAME, session.session_key, secret, chat.pk, *ids)
"""
# Seconds between two page loads.
REST = 0.25


class Follower(threading.Thread):
    """A client that sends one message and follows its reply to the end."""

    def __init__(self, client: Client, chat: str) -> None:
        super().__init__(daemon=True)
        self.client, self.chat = client, chat
        self.begun_at = self.ended_at = 0.0
        self.chunks = 0

    def run(self) -> None:
        """Count the received events."""
        with self.client.open(f"/chats/{self.chat}/messages", {"text": "Tell me"}) as answer:
            turn = json.load(answer)["turn"]["id"]
        with self.client.open(f"/chats/{self.chat}/turns/{turn}/events") as events:
            for line in events:
                if line.startswith((b"event: text", b"event: delta")):
                    self.begun_at = self.begun_at or time.monotonic()
                    self.chunks += 1
                if line.startswith(b"event: done"):
                    self.ended_at = time.monotonic()


class Reader:
    """Loads pages like a person's browser, on one connection that stays open."""

    def __init__(self, port: int, *, cookie: str, chat: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Cookie": cookie}
        self.path = f"/chats/{chat}/"

    def open_pages(self, number: int) -> list[float]:
        """Load the page repeatedly; return the milliseconds from each request to its last byte."""
        times = []
        for _ in range(number):
            begun = time.perf_counter()
            self.connection.request("GET", self.path, headers=self.headers)
            answer = self.connection.getresponse()
            body = answer.read()
            times.append(1000 * (time.perf_counter() - begun))
            if answer.status != 200 or body.count(b"<article") < 20:
                sys.exit(f"the page is none: {answer.status}, {len(body)} bytes")
            time.sleep(REST)
        return times


def told(name: str, times: list[float]) -> float:
    """Print one row and return its median."""
    p50 = statistics.median(times)
    p95 = statistics.quantiles(times, n=20)[18]
    print(f"{name:28} {len(times)} pages: p50 {p50:4.0f} ms, p95 {p95:4.0f} ms", flush=True)  # noqa: T201
    return p50


def measure(reader: Reader, followers: list[Follower], *, pages: int) -> None:
    """Open pages before, during and after the replies, and print the time of each."""
    reader.open_pages(10)
    idle = told("idle", reader.open_pages(pages))
    for follower in followers:
        follower.start()
    give_up = time.monotonic() + 60
    while not all(follower.begun_at for follower in followers):
        if time.monotonic() > give_up:
            sys.exit(f"{sum(not f.begun_at for f in followers)} replies never began")
        time.sleep(0.1)
    begun, before = time.monotonic(), sum(follower.chunks for follower in followers)
    told(f"{len(followers)} replies stream", reader.open_pages(pages))
    over = sum(bool(follower.ended_at) for follower in followers)
    rate = (sum(f.chunks for f in followers) - before) / (time.monotonic() - begun)
    goal = 2 * idle + 50
    print(f"{over} replies ended meanwhile; {rate:.0f} events a second; goal {goal:.0f} ms")  # noqa: T201
    for follower in followers:
        follower.join(120)
    told("idle again", reader.open_pages(pages))


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--pages", type=int, default=60)
    arguments = parser.parse_args()
    # The replies last longer than the page loads that are measured with them.
    tokens = int(20 * (arguments.pages * (REST + 0.5) + 20))
    with FakeServer() as fake, instance(model_host=fake.host) as ours:
        prepared = PREPARE.format(base=fake.base_url, tokens=tokens, streams=arguments.streams)
        cookie, session, key, chat, *chats = ours.run(prepared).split()
        reader = Reader(ours.port, cookie=f"{cookie}={session}", chat=chat)
        followers = [Follower(Client(ours.port, key), each) for each in chats]
        measure(reader, followers, pages=arguments.pages)


if __name__ == "__main__":
    main()
