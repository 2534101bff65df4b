"""Plays a recorded conversation through the real pipeline, against the project's fake server.

Every recorded user message becomes a turn that a worker processes. The fake server returns the
recorded steps and refuses prompts over its limit. Summaries are prepared after each turn. The
result is counted, and every receipt is checked message by message.
"""

import json
import logging
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import lifecycle
from chats.compaction.maintain import maintain_chat_context
from chats.ground import queue
from chats.models import Chat, Compaction, Message, ProviderAccount, Receipt, Turn
from chats.prompt import prompt_facts
from chats.prompt.tools import registry
from chats.record import history
from chats.turns.start import start_turn
from chats.turns.worker.runtime import Runtime
from contextpolicy import resolution
from contextpolicy.engine.messages.messages import ToolCallPart, ToolSpec
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.summaries.acceptance import check_generated_summary
from contextpolicy.engine.summaries.prompts import SUMMARY_VERSIONS
from contextpolicy.models import ContextPolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.presets import SYSTEM
from contextpolicy.publish import create_policy
from replay.recordings import RecordedTurn

MODEL = "replay"
CHAT_MODEL = "fake-chat"
SUMMARISER = "summariser"
TURN_SECONDS = 120.0


@dataclass(slots=True)
class ReplayReport:
    turns: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    largest_prompt: int = 0
    summaries: int = 0
    windows: int = 0
    cut: int = 0
    left_out: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    unaccounted: int = 0
    over_limit: int = 0
    rejected: int = 0
    # Published summaries that do not pass their check when it is repeated.
    unsound: int = 0
    seconds: float = 0.0


class RecordedTools:
    """Answers each call with its recorded result, in the order of the recording.

    A recording does not contain the offered tools; `names` are those offered here.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self.results: dict[str, list[str | None]] = {}
        self.specs = tuple(
            ToolSpec(name, f"Looks up {name}.", {"type": "object", "properties": {}})
            for name in sorted(names)
        )

    def prepare(self, turn: RecordedTurn) -> None:
        self.results = {}
        for step in turn.steps:
            for call in step.calls:
                self.results.setdefault(call.call_id, []).append(call.result)

    def offered(self, **_: object) -> tuple[ToolSpec, ...]:
        return self.specs

    def answer(self, call: ToolCallPart, **_: object) -> registry.ToolAnswer:
        """Return the recorded result; its `content` is None if none is recorded."""
        waiting = self.results.get(call.call_id)
        return registry.ToolAnswer(waiting.pop(0) if waiting else None)


@contextmanager
def fake_server(*, limit: int) -> Iterator[str]:
    """Run the project's fake server on a free port, counting with the o200k vocabulary."""
    command = [sys.executable, "-m", "tests.fakes.openai_server", "--port", "0"]
    process = subprocess.Popen(  # noqa: S603  # our own module
        [*command, "--counter", "o200k"],
        cwd=settings.BASE_DIR,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        port = (process.stdout.readline() if process.stdout else "").strip()
        base = f"http://127.0.0.1:{port}"
        configure_fake_server(base, context_limit=limit)
        yield base
    finally:
        process.terminate()
        process.wait()


def set_up_summariser(script: str) -> None:
    """Set up a model for summaries at the fake server.

    `script` sets its behaviour (`fault=500`, …).
    """
    ModelSpec.objects.update_or_create(
        slug=SUMMARISER, defaults={"provider": SUMMARISER, "name": f"{SUMMARISER}+{script}"}
    )


def create_replay_chat(*, base: str, limit: int, now: datetime) -> Chat:
    """Create a person, a model at the fake server and a chat, and permit the server's address.

    Summaries use a separate account: its faults must not open the breaker of the chat's account.
    """
    settings.ALLOWED_PRIVATE_PROVIDERS.append(base.removeprefix("http://"))
    user, _ = User.objects.get_or_create(username="replay")
    for slug in (MODEL, SUMMARISER):
        ProviderAccount.objects.update_or_create(
            slug=slug, defaults={"name": slug.capitalize(), "base_url": f"{base}/v1"}
        )
    model, _ = ModelSpec.objects.update_or_create(
        slug=MODEL, defaults={"provider": MODEL, "name": CHAT_MODEL, "context_window": limit}
    )
    return lifecycle.create_chat(owner=user, now=now, model=model, title="Replay")


def assign_replay_policy(*, slug: str, values: Mapping[str, Any] | None, now: datetime) -> None:
    """Assign a policy to everyone: a stored one, the given values, or both combined.

    Does nothing if neither is given. The policy applies to everyone, because with a second
    policy the stricter limits would win. Raises `ContextPolicy.DoesNotExist`, and
    `PolicyRefused` for values that cannot work.
    """
    if not slug and values is None:
        return
    policy = ContextPolicy.objects.select_related("current").get(slug=slug) if slug else None
    if policy is None or values is not None:
        stored = policy.current.values if policy and policy.current else {}
        both = {**stored, **(values or {})}
        policy = create_policy(slug=MODEL, name="Replay", values=both, actor=SYSTEM, now=now)
    assign_policy(policy=policy, level="instance", actor=SYSTEM, now=now)


def replay_turns(turns: list[RecordedTurn], *, chat: Chat, base: str) -> ReplayReport:
    """Send the turns one after another, each after the previous reply, and return the counts.

    Raises TimeoutError if a turn does not end.
    """
    recorded = RecordedTools()
    runtime = build_local_runtime(recorded)
    report = ReplayReport()
    begun = time.monotonic()
    for turn in turns:
        recorded.prepare(turn)
        configure_fake_server(base, replies=format_fake_replies(turn))
        accepted = start_turn(user=chat.owner, chat=chat, text=turn.text, now=timezone.now())
        ended = process_replayed_turn(accepted.turn.pk, runtime=runtime)
        report.turns += 1
        if ended.error_code:
            report.errors[ended.error_code] += 1
        maintain_chat_context(chat_id=chat.pk, counter=runtime.counter, now=timezone.now())
    report.seconds = time.monotonic() - begun
    runtime.drain(1)
    fill_replay_report(report, chat=chat, counter=runtime.counter)
    return report


def build_local_runtime(tools: RecordedTools) -> Runtime:
    """Return a worker in this process with these tools and without live updates.

    From then on, the process also offers these tools, and sends no tasks to the broker.
    """
    queue.publish_task = queue.keep_here
    # Warnings about a missing bus would only clutter the table.
    for name in ("chats.ground.live", "chats.record.notices"):
        logging.getLogger(name).setLevel(logging.ERROR)
    registry.set_tool_source(tools)
    return Runtime()


def configure_fake_server(base: str, **settings: Any) -> None:
    httpx2.post(f"{base}/_config", json=settings).raise_for_status()


def process_replayed_turn(turn_id: uuid.UUID, *, runtime: Runtime) -> Turn:
    """Let the worker process a turn, and return the finished turn. Raises TimeoutError."""
    runtime.run(turn_id)
    return wait_for(turn_id)


def format_fake_replies(turn: RecordedTurn) -> list[dict[str, Any]]:
    """Return the recorded steps in the fake server's format, for the chat's model."""
    return [
        {
            "model": CHAT_MODEL,
            "text": step.text,
            "tool_calls": [
                {"id": call.call_id, "name": call.name, "arguments": call.arguments}
                for call in step.calls
            ],
        }
        for step in turn.steps
    ]


def write_request_log(*, base: str, path: Path) -> None:
    """Write each request to the fake server as two JSON lines: `request` and `end`."""
    # A long session's requests are hundreds of megabytes.
    rows = httpx2.get(f"{base}/_requests", timeout=TURN_SECONDS).raise_for_status().json()
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            told = {"seq": row["seq"], "path": "/chat/completions", "tag": path.stem}
            for line in (
                {"ev": "request", **told, "headers": row["headers"], "body": row["body"]},
                {"ev": "end", **told, "outcome": row["outcome"], "tokens_sent": row["tokens_sent"]},
            ):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def wait_for(turn_id: uuid.UUID) -> Turn:
    """Wait for a turn to finish, and return it. Raises TimeoutError."""
    give_up = time.monotonic() + TURN_SECONDS
    while time.monotonic() < give_up:
        turn = Turn.objects.get(pk=turn_id)
        if turn.is_over:
            return turn
        time.sleep(0.005)
    raise TimeoutError(f"turn {turn_id} did not end")


def fill_replay_report(report: ReplayReport, *, chat: Chat, counter: TokenCounter) -> None:
    for receipt in Receipt.objects.filter(turn__branch__chat=chat).iterator():
        report.calls += 1
        report.prompt_tokens += receipt.prompt_tokens
        report.largest_prompt = max(report.largest_prompt, receipt.prompt_tokens)
        report.cut += sum(
            segment[4] is not None or segment[6] is not None for segment in receipt.segments
        )
        report.left_out += sum(
            last - first + 1 for first, last, reason in receipt.left_out if reason != "covered"
        )
        report.over_limit += receipt.prompt_tokens > receipt.budget["limit"]
        report.unaccounted += count_unaccounted_messages(receipt)
    rows = Compaction.objects.filter(branch__chat=chat)
    report.summaries = rows.filter(kind=Compaction.Kind.SUMMARY, published_at__isnull=False).count()
    report.windows = rows.filter(kind=Compaction.Kind.WINDOW).count()
    refused = [Compaction.Status.REJECTED, Compaction.Status.FAILED]
    report.rejected = rows.filter(status__in=refused).count()
    published = rows.filter(kind=Compaction.Kind.SUMMARY, published_at__isnull=False)
    report.unsound = sum(not is_valid_summary(row, counter=counter) for row in published)


def is_valid_summary(row: Compaction, *, counter: TokenCounter) -> bool:
    """Return True if a published summary passes its check again, with its stored sources."""
    before = row.previous
    previous, _ = prompt_facts.summary_and_window(before, counter=counter)
    after = before.to_seq if before else 0
    sources = history.select_path_messages(row.branch, after=after, before=row.to_seq + 1)
    checked = check_generated_summary(
        row.text,
        sources=history.load_all(
            sources.exclude(seq__in=row.exceptions).order_by("seq"), counter=counter
        ),
        previous=previous,
        finish="stop",
        has_tool_calls=False,
        reasoning_only=False,
        values=resolution.load_policy_values(row.effective_policy),
        counter=counter,
        by_model=row.prompt_version in SUMMARY_VERSIONS,
    )
    return checked.accepted


def count_unaccounted_messages(receipt: Receipt) -> int:
    """Count the messages that the receipt does not list exactly once."""
    named: Counter[int] = Counter(segment[2] for segment in receipt.segments if segment[2])
    for first, last, _ in receipt.left_out:
        named.update(range(first, last + 1))
    every = range(1, receipt.last_seq + 1)
    return sum(named[seq] != 1 for seq in every) + sum(seq not in every for seq in named)


def count_stored_messages(chat: Chat) -> int:
    return Message.objects.filter(branch__chat=chat).count()
