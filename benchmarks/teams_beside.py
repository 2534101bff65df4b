"""Measures the cost of teams: first-token times in other chats, and tokens in a late round.

`python -m benchmarks.teams_beside [--teams 20] [--plain 20] [--blocks 6] [--messages 3]
[--rounds 50] [--only beside|tokens]` starts an instance, on SQLite or on the server at
PALIMPSEST_TEST_DATABASE_URL, with the project's fake server as its model. It makes two
measurements.

Load: plain chats send messages repeatedly. In alternate blocks, either chats of busy teams or as
many more busy plain chats run at the same time. It fails if teams raise the median time to the
first token by more than both 10 % and 15 ms.

Tokens: chats of a team of three (window of 12, default policy) run through their rounds, with short
and with long replies. For long ones the policy may create a summary. It fails if the prompts of the
last round have over 1.2 times as many tokens as those of the fifth.

It prints a line of JSON for each block and each result.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.instance import Client, Instance, instance
from tests.fakes.fake_server import FakeServer

PREPARE = """
import django; django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from chats.people.keys import create_key
from chats.models import ProviderAccount
from contextpolicy.models import ModelSpec
from contextpolicy.presets import replace_demo_policy
now = timezone.now()
replace_demo_policy(actor="system", now=now)
ProviderAccount.objects.create(slug="bench", name="bench", base_url="{base}", warm_up=False)
ModelSpec.objects.update(is_default=False)
ModelSpec.objects.create(
    slug="bench", provider="bench", name="fake-chat+tokens=100+ms=20+ttft=100", is_default=True)
ModelSpec.objects.create(slug="quick", provider="bench", name="fake-chat+tokens=60")
owner = User.objects.create_user("bench")
_, secret = create_key(
    owner=owner, name="bench", scopes=["chats:read", "chats:write"], lifetime_days=1, now=now)
print(secret)
"""
# Tokens of the prompts of each round of a chat: the server's count, and the product's.
TOKENS = """
import django, json; django.setup()
from chats.models import Receipt
rows = Receipt.objects.filter(turn__branch__chat="{chat}").order_by("turn__accepted")
rounds = {{}}
for made, usage, ours, parts in rows.values_list(
    "turn__round", "usage", "prompt_tokens", "segments"
):
    summary = sum(part[3] for part in parts if part[0] == "summary")
    rounds.setdefault(str(made), []).append([usage.get("input", 0), ours, summary])
print(json.dumps(list(rounds.values())))
"""
AGENTS = [
    {"name": name, "instruction": f"Reply as the {name.lower()} of this team."}
    for name in ("Planner", "Critic", "Writer")
]
WORDS = "The order {0} of 3 May 2026 goes to Anna Berg in Oslo, as we said before. " * 3
# The agents' replies where tokens are counted; no two are equal.
SENTENCES = (
    "For day {0} I would walk from the station to the harbour and have lunch there.",
    "The museum can wait until the weather turns; {0} people said the same last spring.",
    "Why not keep the evening free? My aunt did, and she was glad of it {0} times.",
    "A boat leaves when there is wind, and nobody minds sitting on deck for a while.",
)
# The polling interval for the end of a team's round; polling also costs the instance time.
LOOK_EVERY = 1.0


@dataclass(frozen=True)
class Desk:
    """The API calls that these programs make to an instance."""

    client: Client

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request; return the JSON of the response."""
        with self.client.open(path, body) as answer:
            return json.load(answer)

    def new_chat(self, **values: Any) -> str:
        """Create a chat; return its id."""
        return str(self.ask("/chats", values)["id"])

    def new_team(self, **values: Any) -> str:
        """Create a team of three agents; return its id."""
        return str(self.ask("/teams", {"name": "Bench", "agents": AGENTS, **values})["id"])

    def send(self, chat: str, text: str) -> str:
        """Send a message; return its turn's id."""
        return str(self.ask(f"/chats/{chat}/messages", {"text": text})["turn"]["id"])

    def say_in_team(self, chat: str, text: str, *, look_every: float = LOOK_EVERY) -> None:
        """Send a message to a team and wait for the end of its round."""
        self.send(chat, text)
        while (made := self.ask(f"/chats/{chat}/rounds?limit=1")["data"][0])["finished_at"] is None:
            time.sleep(look_every)
        if made["status"] != "settled":
            raise RuntimeError(f"a round ended as {made['status']}")

    def say_alone(self, chat: str, text: str) -> None:
        """Send a message to a plain chat and follow its reply, as in the measurement."""
        self.client.first_token(chat, text)


def say(**told: Any) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def first_words(
    desk: Desk,
    plain: Sequence[str],
    *,
    others: Sequence[str],
    writes: Callable[[str, str], None],
    messages: int,
) -> tuple[list[float], int]:
    """Return first-token times of plain chats while others write, and the others' reply count."""
    over = threading.Event()
    begun = threading.Barrier(len(plain) + len(others))

    def keep_writing(chat: str) -> int:
        begun.wait()
        number = 0
        while not over.is_set():
            writes(chat, WORDS.format(number))
            number += 1
        return number

    def measure(chat: str) -> list[float]:
        begun.wait()
        return [desk.client.first_token(chat, WORDS.format(n)) for n in range(messages)]

    with ThreadPoolExecutor(len(plain) + len(others)) as pool:
        beside = [pool.submit(keep_writing, chat) for chat in others]
        try:
            measured = list(pool.map(measure, plain))
        finally:
            over.set()
        wrote = sum(each.result() for each in beside)
    return [seconds for times in measured for seconds in times], wrote


def beside_teams(desk: Desk, *, teams: int, plain: int, blocks: int, messages: int) -> bool:
    """Measure both sides in alternate blocks; return True if teams add almost no delay."""
    team = desk.new_team()
    chats = [desk.new_chat() for _ in range(plain)]
    sides: dict[str, tuple[list[str], Callable[[str, str], None]]] = {
        "plain": ([desk.new_chat() for _ in range(teams)], desk.say_alone),
        "teams": ([desk.new_chat(team=team) for _ in range(teams)], desk.say_in_team),
    }
    times: dict[str, list[float]] = {"plain": [], "teams": []}
    for block in range(-1, blocks):
        for side in ("plain", "teams") if block % 2 else ("teams", "plain"):
            others, writes = sides[side]
            found, wrote = first_words(
                desk, chats, others=others, writes=writes, messages=messages if block >= 0 else 1
            )
            # The first block of each warms up caches.
            if block >= 0:
                times[side] += found
                say(block=block, beside=side, wrote=wrote, **figures(found))
    alone, teamed = (statistics.median(times[side]) for side in ("plain", "teams"))
    limit = max(1.1 * alone, alone + 0.015)
    result = {f"beside_{side}": figures(times[side]) for side in times}
    say(result="beside", limit_ms=round(1000 * limit, 1), holds=teamed <= limit, **result)
    return bool(teamed <= limit)


def figures(times: list[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum, in milliseconds."""
    slow = statistics.quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]
    named = {"p50_ms": statistics.median(times), "p95_ms": slow, "most_ms": max(times)}
    return {"messages": len(times)} | {key: round(1000 * value, 1) for key, value in named.items()}


def tokens_of_rounds(
    desk: Desk, ours: Instance, fake: FakeServer, *, rounds: int, early: int, length: int
) -> bool:
    """Run a team's rounds; return True if the last costs about as much as the fifth."""
    hops = range(rounds * len(AGENTS))
    turned = (SENTENCES[hop % 4 :] + SENTENCES[: hop % 4] for hop in hops)
    texts = (" ".join(lines * length).format(hop) for hop, lines in zip(hops, turned, strict=True))
    fake.configure(replies=[{"text": text, "model": "fake-chat"} for text in texts])
    chat = desk.new_chat(team=desk.new_team(), model="quick")
    for number in range(rounds):
        desk.say_in_team(chat, f"Round {number}. {WORDS.format(number)}", look_every=0.05)
    made = json.loads(ours.run(TOKENS.format(chat=chat)))
    if len(made) != rounds or any(len(calls) != len(AGENTS) for calls in made):
        raise RuntimeError(f"{len(made)} rounds of {[len(calls) for calls in made]} replies")
    server, own = ([statistics.mean(call[n] for call in calls) for calls in made] for n in (0, 1))
    ratio = server[-1] / server[early - 1]
    say(
        result="tokens",
        rounds=rounds,
        sentences_a_reply=length * len(SENTENCES),
        tokens_of_the_summary=[made[n - 1][-1][2] for n in (early, rounds)],
        input_tokens_a_reply={
            str(number): round(server[number - 1]) for number in (1, early, rounds // 2, rounds)
        },
        counted_by_us={str(number): round(own[number - 1]) for number in (early, rounds)},
        ratio=round(ratio, 3),
        holds=ratio <= 1.2,
    )
    return bool(ratio <= 1.2)


def main() -> None:
    """Start, measure, stop; fail if one of the two checks fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teams", type=int, default=20)
    parser.add_argument("--plain", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--messages", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--early", type=int, default=5)
    parser.add_argument("--only", choices=("beside", "tokens"), default="")
    given = parser.parse_args()
    if url := os.environ.pop("PALIMPSEST_TEST_DATABASE_URL", ""):
        os.environ["DATABASE_URL"] = url
    with FakeServer() as fake, instance(model_host=fake.host) as ours:
        desk = Desk(Client(ours.port, ours.run(PREPARE.format(base=fake.base_url)).strip()))
        holds = []
        if given.only != "beside":
            numbers = {"rounds": given.rounds, "early": given.early}
            holds += [tokens_of_rounds(desk, ours, fake, length=n, **numbers) for n in (1, 4)]
        if given.only != "tokens":
            names = ("teams", "plain", "blocks", "messages")
            numbers = {name: getattr(given, name) for name in names}
            holds.append(beside_teams(desk, **numbers))
    sys.exit(0 if all(holds) else 1)


if __name__ == "__main__":
    main()
