"""A client that repeats unanswered requests while web processes are killed."""

import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from tests.faults.client import Client
from tests.faults.harness import Tree
from tests.faults.programs import Program, until
from tests.faults.shares import EVERY_ROW

POSTS = 500 if EVERY_ROW else 48
PROGRAMS = 6
# In seconds, from the moment that a web process listens.
KILL_EVERY = 3.0 if EVERY_ROW else 1.0
# The share of answered requests that are repeated, as by a client that lost the answer.
LOST = 0.3
GIVE_UP_SECONDS = 240


@dataclass
class Sender:
    """Sends each request until it is answered, and repeats some of them."""

    tree: Tree
    chat: str
    seed: int
    tries: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def request(self, number: int) -> tuple[str, dict[str, Any]]:
        """The address and body of one of the four operations."""
        say = [{"role": "user", "content": f"Gateway {number} [[fake tokens=2]]"}]
        return (
            ("/api/v1/chats", {"title": f"Chat {number}"}),
            ("/api/v1/folders", {"name": f"Folder {number}"}),
            (f"/api/v1/chats/{self.chat}/messages", {"text": f"Post {number} [[fake tokens=2]]"}),
            ("/v1/chat/completions", {"model": "fake", "messages": say}),
        )[number % 4]

    def send(self, numbers: range) -> None:
        """Send each request until it is answered.

        Raises `AssertionError` if a repeat gets another answer.
        """
        dice = random.Random(self.seed)  # noqa: S311  # the same each time
        for number in numbers:
            path, body = self.request(number)
            answer = self.until_answered(path, body, key=f"retried-{number}")
            if dice.random() < LOST:
                again = self.until_answered(path, body, key=f"retried-{number}")
                assert what_it_made(path, again) == what_it_made(path, answer)

    def until_answered(self, path: str, body: dict[str, Any], *, key: str) -> Any:
        """The answer, after any failures."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < give_up:
            self.tries += 1
            try:
                with Client(self.tree) as client:
                    answer = client.http.post(
                        f"http://localhost{path}", json=body, headers={"Idempotency-Key": key}
                    )
            except httpx2.TransportError as error:
                self.failures[type(error).__name__] += 1
                time.sleep(0.2)
                continue
            if answer.status_code < 300:
                return answer.json()
            # The server is full or the first attempt still runs: retry as the response says.
            self.failures[str(answer.status_code)] += 1
            assert answer.status_code in (409, 429, 502, 503), answer.text
            time.sleep(0.3)
        raise AssertionError(f"{path} was not answered for {GIVE_UP_SECONDS} seconds")


def what_it_made(path: str, answer: Any) -> Any:
    """The id of the object that an answer is about."""
    if path.endswith("/messages"):
        return answer["message"]["id"], answer["turn"]["id"]
    if path.endswith("/completions"):
        return answer["choices"][0]["message"]["content"]
    return answer["id"]


def killing(tree: Tree, ended: threading.Event) -> Callable[[], int]:
    """Kill and restart the web process every few seconds; return the number of kills."""

    def kill() -> int:
        kills = 0
        while not ended.wait(KILL_EVERY):
            tree.clear("web")
            tree.web()
            kills += 1
        return kills

    return kill


# The client forgets to close a socket whose connection was refused.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.requirement("S4.6")
def test_posts_that_are_sent_again_while_web_processes_die_are_done_once(
    tree: Tree, web: Program
) -> None:
    with Client(tree) as client:
        chats = [client.new_chat() for _ in range(PROGRAMS)]
    senders = [Sender(tree, chat, seed) for seed, chat in enumerate(chats)]
    shares = [range(first, POSTS, PROGRAMS) for first in range(PROGRAMS)]
    ended = threading.Event()
    with ThreadPoolExecutor(PROGRAMS + 1) as pool:
        killer = pool.submit(killing(tree, ended))
        try:
            done = [pool.submit(s.send, share) for s, share in zip(senders, shares, strict=True)]
            for each in done:
                each.result()
        finally:
            ended.set()
        kills = killer.result()
    tries = sum(sender.tries for sender in senders)
    sys.stderr.write(
        f"{POSTS} posts, {tries} tries, {kills} kills, {[dict(s.failures) for s in senders]}\n"
    )
    assert kills >= 1
    assert tries > POSTS
    waiting = "SELECT id FROM chats_turn WHERE status IN ('queued', 'running')"
    until(lambda: not tree.database.rows(waiting), seconds=60, what="the end of all turns")
    people = "SELECT CAST(parts AS TEXT) AS said FROM chats_message WHERE role = 'user'"
    made = {
        "Chat": "SELECT title AS said FROM chats_chat",
        "Folder": "SELECT name AS said FROM chats_folder",
        "Post": people,
        "Gateway": people,
    }
    for place, (kind, query) in enumerate(made.items()):
        said = [str(row["said"]) for row in tree.database.rows(query)]
        counted = Counter(int(n) for each in said for n in re.findall(rf"{kind} (\d+)", each))
        assert counted == Counter(range(place, POSTS, 4)), kind
