"""Cost of retrieved context under load: time to the first token with it and without it.

`python -m benchmarks.excerpts DATA [--streams 20] [--rounds 5] [--busy 0]` starts a whole instance
with the project's fake model server and imports the conversation in DATA twice for each person,
once under *Long chats* with a prompt limit of 8,000 tokens and once under the same policy without
retrieved context. Then all people ask questions at once, alternately with and without it. `--busy`
starts processes that only use the processor. It prints p50 and p95 of the first token, and the
share of searches that finished in time.
"""

import argparse
import multiprocessing
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.instance import Client, instance
from tests.fakes.fake_server import FakeServer

PREPARE = """
import django; django.setup()
from pathlib import Path
from django.utils import timezone
from chats.ground import queue
from chats.models import Chat, ProviderAccount
from chats.people.keys import create_key
from chats.prompt.tokenizer import O200kCounter
from contextpolicy.models import ModelSpec
from contextpolicy.presets import LONG_CHATS, replace_demo_policy
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from replay.evidence.chats import import_chat
from replay.evidence.conversations import read_all
queue.publish_task = queue.keep_here
now = timezone.now()
replace_demo_policy(actor="system", now=now)
ProviderAccount.objects.create(slug="bench", name="bench", base_url="{base}")
ModelSpec.objects.update(is_default=False)
ModelSpec.objects.create(
    slug="bench", provider="bench", name="fake-chat+tokens=100", is_default=True)
conversation = read_all([Path("{data}")])[0]
counter = O200kCounter()
values = {{**LONG_CHATS.values, "token_budget": 9_000, "reserve_tokens": 1_000}}
policies = [
    create_policy(slug=slug, name=slug, values=each, actor="system", now=now)
    for slug, each in (("with", values), ("without", {{**values, "references": False}}))
]
for _ in range({streams}):
    ids = []
    for policy in policies:
        chat = import_chat(conversation, counter=counter).chat
        assign_policy(policy=policy, level="chat", chat_id=chat.pk, actor="system", now=now)
        _, secret = create_key(
            owner=chat.owner, name="bench", scopes=["chats:read", "chats:write"],
            lifetime_days=1, now=now)
        ids += [str(chat.pk), secret]
    print(*ids)
print("?")
for question in conversation.questions[:{questions}]:
    print(" ".join(question.text.split()))
"""
QUIET = """
import django; django.setup()
from chats.models import Compaction
print(Compaction.objects.filter(status="preparing").count())
"""
SEARCHES = """
import django; django.setup()
from django.utils import timezone
from chats.counts.searches import count_searches
found = count_searches(now=timezone.now())
print(found.total, found.late)
"""
MOST_ROUNDS = 20
Seat = tuple[Client, str]


def ask(seats: list[Seat], questions: list[str], *, number: int) -> list[float]:
    """Ask a question in each chat at once; return milliseconds to each first token."""
    with ThreadPoolExecutor(len(seats)) as pool:
        asked = [
            pool.submit(client.first_token, chat, questions[(number + place) % len(questions)])
            for place, (client, chat) in enumerate(seats)
        ]
        return [1000 * each.result() for each in asked]


def use_processor() -> None:
    """Use one processor until the process is ended."""
    while True:
        sum(range(10_000))


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0)
    arguments = parser.parse_args()
    with FakeServer() as fake, instance(model_host=fake.host) as ours, ExitStack() as kept:
        program = PREPARE.format(
            base=fake.base_url,
            data=arguments.data.resolve(),
            streams=arguments.streams,
            questions=MOST_ROUNDS,
        )
        seats, _, asked = ours.run(program).partition("?\n")
        rows = [line.split() for line in seats.splitlines()]
        with_it = [(Client(ours.port, key), chat) for chat, key, _, _ in rows]
        without = [(Client(ours.port, key), chat) for _, _, chat, key in rows]
        questions = asked.splitlines()
        # The first question starts the summaries of both chats.
        for chats in (with_it, without):
            ask(chats, questions, number=0)
        while int(ours.run(QUIET)):
            time.sleep(1)
        for _ in range(arguments.busy):
            process = multiprocessing.Process(target=use_processor, daemon=True)
            process.start()
            kept.callback(process.terminate)
        times: dict[str, list[float]] = {"without": [], "with": []}
        for number in range(1, arguments.rounds + 1):
            times["without"] += ask(without, questions, number=number)
            times["with"] += ask(with_it, questions, number=number)
        total, late = map(int, ours.run(SEARCHES).split())
    for name, each in times.items():
        p50, p95 = statistics.median(each), statistics.quantiles(each, n=20)[18]
        print(f"{name:8} {len(each)} turns: p50 {p50:5.0f} ms, p95 {p95:5.0f} ms")  # noqa: T201  # its output
    share = 100 * (1 - late / total) if total else 0.0
    print(f"searches in time: {total - late} of {total} ({share:.1f} %)")  # noqa: T201  # its output


if __name__ == "__main__":
    main()
