"""Memory of an instance under a steady mixed load: growth per hour, peaks, and what ran at them.

`python -m benchmarks.soak [--minutes 120] [--rate 2] [--folder DIR]` starts a whole instance (web,
worker, background worker, broker) and uses it: chats that grow and are summarised, the API and the
gateway, search, pages, uploads, stopped replies and deletions. It reads the memory of each process
every fifteen seconds, and writes `soak.jsonl` and `soak.svg` to the folder. It fails if a reply is
lost, or if memory grows faster than the limit after the warm-up in a run of an hour or more.
"""

import argparse
import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from benchmarks.instance import Instance, instance
from benchmarks.load.growth import (
    Sample,
    compute_growth,
    describe_run,
    find_excess,
)
from benchmarks.load.meter import read_cpu_seconds, read_memory
from benchmarks.load.people import TOKENS, Account, Load
from benchmarks.load.plots import draw_lines
from tests.fakes.fake_server import FakeServer

# Seconds after which caches and pools have their final size.
WARM_UP = 1800.0
# Shorter runs have too few samples for a rate per hour.
JUDGED_MINUTES = 60.0
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
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
now = timezone.now()
replace_demo_policy(actor="system", now=now)
ProviderAccount.objects.create(slug="bench", name="bench", base_url="{base}")
ModelSpec.objects.update(is_default=False)
model = ModelSpec.objects.create(slug="bench", provider="bench", is_default=True,
    name="fake-chat+tokens={tokens}+ttft=100+ms=20")
ModelSpec.objects.create(
    slug="summaries", provider="bench", name="fake-sum+reply=summary+ttft=1000")
owner = User.objects.create_user("soak")
values = {{"strategy": "dynamic_summary", "turn_threshold": 12, "fold_turns": 6,
          "summarization_model": "summaries"}}
policy = create_policy(slug="soak", name="Soak", values=values, actor="system", now=now)
assign_policy(policy=policy, level="user", user=owner, actor="system", now=now, is_agreed=True)
scopes = ["chats:read", "chats:write", "chats:erase", "gateway"]
_, secret = create_key(owner=owner, name="soak", scopes=scopes, lifetime_days=7, now=now)
session = import_module(settings.SESSION_ENGINE).SessionStore()
session[SESSION_KEY] = str(owner.pk)
session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
session[HASH_SESSION_KEY] = owner.get_session_auth_hash()
session.save()
ids = [str(lifecycle.create_chat(owner=owner, now=now, model=model).pk) for _ in range(12)]
print(settings.SESSION_COOKIE_NAME + "=" + session.session_key, secret, *ids)
"""
# Unfinished jobs, to explain a peak.
JOBS = {
    "replies": "SELECT COUNT(*) FROM chats_turn WHERE status IN ('queued', 'running')",
    "summaries": "SELECT COUNT(*) FROM chats_compaction WHERE status = 'preparing'",
    "indexing": "SELECT COUNT(*) FROM chats_searchplace WHERE due_at IS NOT NULL",
    "files": "SELECT COUNT(*) FROM chats_storedfile WHERE state = 'pending'",
}


def count_jobs(folder: Path) -> dict[str, int]:
    """Count the unfinished jobs of an instance on SQLite; empty while its database is locked."""
    address = f"file:{folder / 'palimpsest.sqlite3'}?mode=ro"
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(address, uri=True, timeout=1)
        try:
            return {name: connection.execute(asked).fetchone()[0] for name, asked in JOBS.items()}
        finally:
            connection.close()
    return {}


async def take_samples(
    ours: Instance, fake: FakeServer, load: Load, *, every: float, output: Path
) -> list[Sample]:
    """Sample the instance until cancelled, and append each sample to a file of JSON lines."""
    samples: list[Sample] = []
    begun = time.monotonic()
    # Resets the peaks, which include the start.
    await asyncio.to_thread(read_memory, [ours.pid])
    with output.open("w", encoding="utf-8") as lines, suppress(asyncio.CancelledError):
        while True:
            memory = await asyncio.to_thread(read_memory, [ours.pid])
            jobs = await asyncio.to_thread(count_jobs, ours.folder)
            at = round(time.monotonic() - begun, 1)
            sample = Sample(
                at, memory.pss, memory.anonymous, memory.peak, load.tally.take_work(), jobs
            )
            samples.append(sample)
            lines.write(json.dumps(asdict(sample)) + "\n")
            lines.flush()
            await asyncio.to_thread(fake.forget_requests)
            await asyncio.sleep(every)
    return samples


async def measure(
    ours: Instance, fake: FakeServer, load: Load, *, seconds: float, every: float, output: Path
) -> list[Sample]:
    """Load the instance for some seconds; return its samples."""
    sampling = asyncio.create_task(take_samples(ours, fake, load, every=every, output=output))
    loading = asyncio.create_task(load.run(seconds))
    # The sampling only ends early by an error.
    await asyncio.wait({loading, sampling}, return_when=asyncio.FIRST_COMPLETED)
    sampling.cancel()
    samples = await sampling
    await loading
    return samples


def draw_memory(samples: Sequence[Sample]) -> str:
    """Draw the memory of each role as SVG."""
    roles = dict.fromkeys(role for sample in samples for role in sample.pss)
    lines = {
        role: [(each.at / 60, each.anonymous[role]) for each in samples if role in each.anonymous]
        for role in roles
    }
    return draw_lines(
        lines, title="Memory without mapped files (PSS) by process", x_label="minutes", y_label="MB"
    )


def report(samples: Sequence[Sample], load: Load, *, cpu: float, minutes: float) -> None:
    """Print growth, peaks, failures and the CPU share."""
    tally = load.tally
    sys.stdout.write("\n".join(describe_run(samples, warm_up=WARM_UP)) + "\n")
    for failure, number in tally.failures.most_common(20):
        sys.stdout.write(f"{number} × {failure}\n")
    totals: dict[str, int] = {}
    for work in [*(sample.work for sample in samples), tally.work]:
        for name, number in work.items():
            totals[name] = totals.get(name, 0) + number
    done = ", ".join(f"{name} {number}" for name, number in totals.items())
    sys.stdout.write(
        f"{minutes:.1f} minutes, {100 * cpu / (60 * minutes):.0f} % of a core; {done}; "
        f"{tally.lost_replies} lost replies\n"
    )


def soak(*, minutes: float, rate: float, every: float, limit: float, folder: Path) -> int:
    """Run the load, write the files, print the report; return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    with FakeServer() as fake, instance(model_host=fake.host) as ours:
        output = ours.run(PREPARE.format(base=fake.base_url, tokens=TOKENS))
        cookie, key, *chats = output.split()
        load = Load(ours.port, Account(key, cookie, chats), rate=rate)
        before = sum(read_cpu_seconds([ours.pid]).values())
        samples = asyncio.run(
            measure(
                ours, fake, load, seconds=60 * minutes, every=every, output=folder / "soak.jsonl"
            )
        )
        cpu = sum(read_cpu_seconds([ours.pid]).values()) - before
    (folder / "soak.svg").write_text(draw_memory(samples), encoding="utf-8")
    report(samples, load, cpu=cpu, minutes=samples[-1].at / 60)
    excess = find_excess(compute_growth(samples, warm_up=WARM_UP), limit=limit)
    if minutes >= JUDGED_MINUTES and excess:
        sys.stdout.write(f"Growth above {limit:g} MB per hour: {', '.join(excess)}\n")
        return 1
    return 1 if load.tally.lost_replies or load.tally.failures else 0


def main() -> None:
    """Run the soak with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=float, default=2.0, help="actions per second")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two samples")
    parser.add_argument("--limit", type=float, default=1.0, help="MB per hour and process")
    parser.add_argument("--folder", type=Path, default=Path("soak"))
    asked = parser.parse_args()
    sys.exit(
        soak(
            minutes=asked.minutes,
            rate=asked.rate,
            every=asked.every,
            limit=asked.limit,
            folder=asked.folder,
        )
    )


if __name__ == "__main__":
    main()
