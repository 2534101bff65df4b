"""Measures whether compaction delays replies: first-token times with and without it, in pairs.

`python -m benchmarks.latency [--pairs 60]` starts a whole instance with the project's fake server.
Two chats get the same messages alternately. One is compacted every few rounds by a summariser that
takes seconds, the other is not. The model sends its first token after 200 ms. It prints both
medians and their ratio, without pass or fail limits.
"""

import argparse
import statistics

from benchmarks.instance import Client, instance
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
    assign_policy(policy=policy, level="chat", chat_id=chat.pk, actor="system", now=now)
    ids.append(str(chat.pk))
print(secret, *ids)
"""
COUNT = """
import django; django.setup()
from chats.models import Compaction
print(Compaction.objects.filter(published_at__isnull=False).count())
"""
TEXT = "The order {number} of 3 May 2026 goes to Anna Berg in Oslo, as we said before. " * 3


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--summary-ms", type=int, default=3000)
    arguments = parser.parse_args()
    with FakeServer() as fake, instance(model_host=fake.host) as ours:
        prepared = PREPARE.format(base=fake.base_url, ms=arguments.summary_ms)
        key, *chats = ours.run(prepared).split()
        client = Client(ours.port, key)
        times: dict[str, list[float]] = {chat: [] for chat in chats}
        for number in range(arguments.pairs + 5):
            for chat in chats if number % 2 else reversed(chats):
                times[chat].append(client.first_token(chat, TEXT.format(number=number)))
        # The first pairs warm up caches.
        folded, whole = (1000 * statistics.median(times[chat][5:]) for chat in chats)
        print(  # noqa: T201  # its output
            f"{arguments.pairs} pairs, {ours.run(COUNT).strip()} compactions:"
            f" first token after {folded:.0f} ms with compaction, {whole:.0f} ms without,"
            f" ratio {folded / whole:.2f}"
        )


if __name__ == "__main__":
    main()
