"""Checks that embedding messages and reading chats for preferences survive killed processes.

`python -m benchmarks.learning [--messages 600] [--chats 16] [--kills 4]` uses a separate database:
SQLite, or PostgreSQL under `scripts/with_postgres.sh`. A local server acts as both models. The
processes run the background jobs with leases of two seconds and are killed after random times. Then
one process finishes the work. The program fails unless each message was embedded once, each chat
was read by at most two calls, the ledger contains all calls, and no suggestion has the same message
as evidence twice. A chat may be given up after two killed processes.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from benchmarks.prepared import create_tables
from tests.fakes.fake_server import FakeServer

SAID = "I work as a gardener. What grows in shade?"
PROPOSED = '[{"message": 1, "slot": "job", "quote": "I work as a gardener."}]'
LEASE = timedelta(seconds=2)
# Chats per person: more would exceed the daily limit of calls.
CHATS_OF_A_PERSON = 8
END_SECONDS = 400


def main(arguments: Sequence[str]) -> int:
    """Set up, kill, continue, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=600)
    parser.add_argument("--chats", type=int, default=16)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--work", choices=["vectors", "preferences"], help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as data:
        os.environ.setdefault("PALIMPSEST_DATA", data)
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        os.environ["REDIS_URL"] = f"unix://{data}/no-broker.sock"
        os.environ["LOG_LEVEL"] = "ERROR"
        if url := os.environ.get("PALIMPSEST_TEST_DATABASE_URL"):
            os.environ["DATABASE_URL"] = url
        if given.work:
            return work(given.work)
        with FakeServer() as fake:
            os.environ["ALLOWED_PRIVATE_PROVIDERS"] = fake.host
            return kill_both(fake, given)


def kill_both(fake: FakeServer, given: argparse.Namespace) -> int:
    """Run and kill both kinds of processes; return True if all checks pass."""
    begin()
    create_tables()
    prepare(fake, messages=given.messages, chats=given.chats)
    faults = []
    for kind, compare in (("vectors", missing_vectors), ("preferences", misread_chats)):
        kills = killed(kind, given.kills)
        subprocess.run(command(kind), env=os.environ, check=True, timeout=END_SECONDS)
        found, said = compare()
        faults += found
        sys.stdout.write(f"{kind}: {kills} kills; {said}\n")
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    return 1 if faults else 0


def begin() -> None:
    """Set Django up."""
    import django

    django.setup()


def command(kind: str) -> list[str]:
    """The command of a process that runs the jobs of a kind."""
    return [sys.executable, "-m", "benchmarks.learning", "--work", kind]


def killed(kind: str, kills: int) -> int:
    """Work in processes that are killed after random times; return the number of kills."""
    chance = random.Random(7)  # noqa: S311  # to be repeated
    for done in range(kills):
        process = subprocess.Popen(command(kind), env=os.environ, stdout=subprocess.PIPE)
        assert process.stdout is not None  # it was asked for
        # Counted from when it works, because the time to start varies.
        process.stdout.readline()
        try:
            process.wait(timeout=0.2 + chance.random())
            return done
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        finally:
            process.wait()
            process.stdout.close()
    return kills


def prepare(fake: FakeServer, *, messages: int, chats: int) -> None:
    """Store messages to embed, chats to read, and both models."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from benchmarks.search import fill, index
    from chats.compaction import embedding
    from chats.memory.preferences import memory_settings
    from chats.models import PreferenceReading, ProviderAccount
    from contextpolicy.models import ModelSpec
    from contextpolicy.policy_assignments import assign_policy
    from contextpolicy.publish import create_policy

    now = timezone.now()
    fake.configure(replies=[{"text": PROPOSED, "model": "fake-chat"}] * 200)
    ProviderAccount.objects.create(slug="near", name="Near", base_url=fake.base_url)
    ModelSpec.objects.create(slug="small", provider="near", name="fake-embed", embeds=True)
    ModelSpec.objects.create(
        slug="light",
        provider="near",
        name="fake-chat+ttft=250",
        context_window=32_000,
        is_default=True,
    )
    values = {"strategy": "dynamic_summary", "token_budget": 30_000, "summarization_model": "light"}
    policy = create_policy(slug="reads", name="Reads", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now, is_agreed=True)
    fill(1, messages, chats=6)
    index()
    embedding.choose_embedding_model("small", anew=False, actor="system", now=now)
    for number in range(chats // CHATS_OF_A_PERSON):
        user = User.objects.create_user(f"gardener-{number}")
        memory_settings.set_consent(owner_id=user.pk, agrees=True, now=now)
        memory_settings.set_inferring(owner_id=user.pk, agrees=True, now=now)
        for _ in range(CHATS_OF_A_PERSON):
            talk(user)
    PreferenceReading.objects.update(due_at=now)


def talk(user: Any) -> None:
    """Create a chat that a model reads later."""
    from asgiref.sync import async_to_sync
    from django.utils import timezone

    from chats.actions import lifecycle
    from chats.providers.base import Finished, TextDelta
    from chats.turns.start import start_turn
    from tests.support.scripted_worker import InlineWorker, ScriptedProvider

    chat = lifecycle.create_chat(owner=user, now=timezone.now())
    turn = start_turn(user=user, chat=chat, text=SAID, now=timezone.now()).turn
    worker = InlineWorker(ScriptedProvider([[TextDelta("Ferns do."), Finished("stop")]]))
    async_to_sync(worker.turn)(turn.pk)


def work(kind: str) -> int:
    """Run the jobs of a kind until none is left; report the start."""
    begin()
    from chats.ground import queue

    # No worker listens: the tasks are found again below.
    queue.enqueue = lambda *_given, **_named: None
    sys.stdout.write("working\n")
    sys.stdout.flush()
    (embed if kind == "vectors" else read)()
    return 0


def embed() -> None:
    """Embed messages until the index is complete."""
    from django.utils import timezone

    from chats.compaction import embedding
    from chats.models import VectorSpace

    embedding.PASSES = replace(embedding.PASSES, length=LEASE)
    embedding.TASK_SECONDS = 0.5
    while VectorSpace.objects.filter(state="building").exists():
        embedding.continue_embedding_pass(now=timezone.now())
        time.sleep(0.05)


def read() -> None:
    """Read chats until none is due."""
    from django.utils import timezone

    from chats.background import preference_inference
    from chats.memory.preferences import inference_queue
    from chats.models import PreferenceReading
    from contextpolicy.engine.messages.tokens import ApproximateCounter

    inference_queue.READINGS = replace(inference_queue.READINGS, length=LEASE)
    inference_queue.LOST_AFTER = timedelta(seconds=1)
    while due := list(PreferenceReading.objects.exclude(due_at=None).values_list("pk", flat=True)):
        preference_inference.sweep_inference_calls(now=timezone.now())
        for chat_id in due:
            preference_inference.read_chat(
                chat_id=chat_id,
                counter=ApproximateCounter(),
                clock=timezone.now,
                is_closing=lambda: False,
            )
        time.sleep(0.1)


def missing_vectors() -> tuple[list[str], str]:
    """Compare the vectors with the messages."""
    from chats.memory.search import vectors
    from chats.models import SearchText, TextVector

    texts = list(SearchText.objects.filter(message__isnull=False).select_related("message"))
    there = Counter(TextVector.objects.exclude(vector=b"").values_list("text", "passage"))
    wanted = {
        (text.pk, number)
        for text in texts
        for number in range(
            len(vectors.split_into_chunks(text.message.text if text.message else ""))
        )
    }
    faults = [f"no vector of {key}" for key in wanted - there.keys()]
    faults += [f"{count} vectors of {key}" for key, count in there.items() if count > 1]
    faults += [f"a vector of nothing: {key}" for key in there.keys() - wanted]
    return faults, f"{len(wanted)} passages of {len(texts)} messages"


def misread_chats() -> tuple[list[str], str]:
    """Compare the read messages and suggestions with the calls and the messages."""
    from chats.models import (
        Chat,
        Message,
        Preference,
        PreferenceEvidence,
        PreferenceReading,
        Receipt,
    )
    from contextpolicy import ledger
    from contextpolicy.models import AuditEvent

    faults, calls, passed_over = [], 0, 0
    for row in PreferenceReading.objects.all():
        receipts = Receipt.objects.filter(
            turn__branch__chat=row.chat_id, call__gte=Receipt.INFERRING, step=Receipt.AFTERWARDS
        )
        calls += len(receipts)
        said = Message.objects.get(branch__chat=row.chat_id, role="user")
        asked = AuditEvent.objects.filter(chat_id=row.chat_id, type="chat.preferences_asked")
        evidence = PreferenceEvidence.objects.filter(message=said).count()
        read = AuditEvent.objects.filter(chat_id=row.chat_id, type="chat.preferences_read")
        is_over = row.read_to >= said.accepted and not row.lease_token and row.due_at is None
        passed_over += evidence == 0
        for is_right, fault in (
            (is_over, f"chat {row.chat_id} was not read to its end"),
            (1 <= len(receipts) <= 2, f"{len(receipts)} calls about chat {row.chat_id}"),
            (len(asked) == len(receipts), f"the ledger knows {len(asked)} of {len(receipts)}"),
            (not receipts.filter(outcome="open").exists(), "a call is open for good"),
            (evidence == len(read) <= 1, f"{evidence} evidence, {len(read)} answers"),
        ):
            if not is_right:
                faults.append(fault)
        faults += [each.reason for each in ledger.find_ledger_breaks(scope=f"chat:{row.chat_id}")]
    people = Chat.objects.filter(preference_reading__isnull=False).values("owner").distinct()
    kept = list(Preference.objects.values_list("owner", "text"))
    if len(kept) != len(set(kept)) or len(kept) != people.count():
        faults.append(f"{len(kept)} preferences of {people.count()} people")
    said_so = f"{calls} calls about {PreferenceReading.objects.count()} chats,"
    return faults, f"{said_so} {passed_over} given up after two deaths"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
