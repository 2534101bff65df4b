"""The benefit of cache warm-ups: time to the first token with and without them, on a small server.

`python -m benchmarks.warm_ups [--turns 30] [--rest 2.5] [--read-ms 1]` starts a whole instance with
the project's fake server. The server needs time for each prompt token that is not cached, and
caches one prompt, as a small local model does. For each compaction method a chat gets the same
messages, with warm-ups and then without. The user waits between a reply and the next message. It
prints p50 and p95 of the first token, without pass or fail limits.
"""

import argparse
import statistics
import time

from benchmarks.instance import Client, instance
from benchmarks.latency import TEXT
from tests.fakes.fake_server import FakeServer

PREPARE = """
import django; django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from chats.actions import lifecycle
from chats.people.keys import create_key
from chats.models import ProviderAccount
from contextpolicy.models import ModelSpec
from contextpolicy.presets import replace_demo_policy
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
now = timezone.now()
replace_demo_policy(actor="system", now=now)
ProviderAccount.objects.create(slug="bench", name="bench", base_url="{base}")
model = ModelSpec.objects.create(
    slug="bench", provider="bench", name="fake-chat+tokens=20+read_ms={ms}")
owner = User.objects.create_user("bench")
_, secret = create_key(
    owner=owner, name="bench", scopes=["chats:read", "chats:write"], lifetime_days=1, now=now)
small = {{"token_budget": 3000, "reserve_tokens": 1000, "keep_last_messages": 2,
         "summary_max_tokens": 300}}
ids = []
for strategy in ("sliding_window", "dynamic_summary"):
    for warm_up in (False, True):
        name = f"{{strategy}}-{{warm_up}}".replace("_", "-").lower()
        chat = lifecycle.create_chat(owner=owner, now=now, model=model)
        values = {{**small, "strategy": strategy, "warm_up": warm_up}}
        policy = create_policy(slug=name, name=name, values=values, actor="system", now=now)
        assign_policy(policy=policy, level="chat", chat_id=chat.pk, actor="system", now=now)
        ids.append(str(chat.pk))
print(secret, *ids)
"""
COUNT = """
import django; django.setup()
from chats.models import Compaction, Receipt
rows = Receipt.objects.filter(turn__branch__chat="{chat}", step=0)
print(Compaction.objects.filter(branch__chat="{chat}", published_at__isnull=False).count(),
      rows.filter(outcome="ok").count(), rows.exclude(outcome="ok").count())
"""
WAYS = ("window, without", "window, with", "summary, without", "summary, with")


def measured(client: Client, chat: str, *, turns: int, rest: float) -> list[float]:
    """Milliseconds to the first token, for each turn after the first two."""
    times = []
    for number in range(turns + 2):
        times.append(1000 * client.first_token(chat, TEXT.format(number=number)))
        time.sleep(rest)
    return times[2:]


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--rest", type=float, default=2.5)
    parser.add_argument("--read-ms", type=float, default=1.0)
    arguments = parser.parse_args()
    with FakeServer() as fake, instance(model_host=fake.host) as ours:
        prepared = PREPARE.format(base=fake.base_url, ms=arguments.read_ms)
        key, *chats = ours.run(prepared).split()
        client = Client(ours.port, key)
        for way, chat in zip(WAYS, chats, strict=True):
            times = measured(client, chat, turns=arguments.turns, rest=arguments.rest)
            p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[18]
            published, warm, others = ours.run(COUNT.format(chat=chat)).split()
            print(  # noqa: T201  # its output
                f"{way:18} {arguments.turns} turns, {published} swaps, {warm} warm-ups"
                f" (+{others} not finished): p50 {p50:5.0f} ms, p95 {p95:5.0f} ms,"
                f" ratio {p95 / p50:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
