"""Plays conversations under every strategy and layout, and rebuilds each of their requests.

The SHA-256 of each body that the fake server received must equal that of a request rebuilt from
rows alone, and each stored call must have reached the server. Some requests are refused or
truncated, so the worker and the user retry them. Recorded tools are offered and called. Summaries
are written in one call and in chunks.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from typing import Any

import httpx2
from django.utils import timezone

from chats.compaction import reconstruction as summaries
from chats.compaction.maintain import maintain_chat_context
from chats.models import Chat, Compaction, Receipt, Turn
from chats.prompt.reconstruction import rebuild_request
from chats.prompt.sent_request import build_request_bodies
from chats.turns.follow_up_turns import retry_turn
from chats.turns.start import start_turn
from contextpolicy import resolution
from contextpolicy.engine.messages.segments import compute_text_ref
from contextpolicy.models import ContextPolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.presets import SYSTEM
from contextpolicy.publish import create_policy, create_policy_version
from replay.matrix import LAYOUTS
from replay.pipeline import (
    CHAT_MODEL,
    SUMMARISER,
    TURN_SECONDS,
    RecordedTools,
    build_local_runtime,
    configure_fake_server,
    create_replay_chat,
    format_fake_replies,
    process_replayed_turn,
)
from replay.recordings import RecordedTurn

# The smaller summariser has 1/PART of the chat model's context, so it works in chunks.
PART = 2
READER = "reader"
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "simple": {"strategy": "simple", "window_size": 8, "max_chars_per_message": 600},
    "sliding_window": {"strategy": "sliding_window"},
    "dynamic_summary": {"strategy": "dynamic_summary", "summarization_model": SUMMARISER},
    "in parts": {
        "strategy": "dynamic_summary",
        "summarization_model": f"{SUMMARISER}-small",
    },
    "told again": {
        "strategy": "dynamic_summary",
        "summarization_model": SUMMARISER,
        "pinned_kinds": ["number", "date"],
    },
    "entity_state": {
        "strategy": "entity_state",
        "summarization_model": READER,
        "state_schema": {"type": "object", "properties": {"seen": {"type": "string"}}},
        "keep_last_messages": 6,
    },
}
# Faults of the first request of some turns: the worker or the user retries.
FAULTS: Sequence[Mapping[str, Any]] = (
    {},
    {"fault": "503"},
    {"fault": "cut", "after": 1},
    {},
    {"fault": "filter400"},
)


@dataclass(slots=True)
class Rebuilding:
    """Counts the requests that the server received, and those that were rebuilt from rows."""

    received: int = 0
    same: int = 0
    replies: int = 0
    retries: int = 0
    tools: int = 0
    summaries: int = 0
    parts: int = 0
    faults: list[str] = field(default_factory=list)


def generate_value_combinations(
    *, limit: int, only: Collection[str] = ()
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the policy values of each strategy with each layout, for a model's window.

    Only the given strategies are used, if any are given.
    """
    room = {
        "token_budget": limit,
        "reserve_tokens": limit // 4,
        "summary_max_tokens": limit // 10,
        "system_text": "You help with orders.",
    }
    for name, layout in product(only or STRATEGIES, LAYOUTS):
        yield name, layout, {**room, **STRATEGIES[name], "layout": layout}


def set_up_models(*, limit: int) -> None:
    """Set up a summariser, a smaller one, and a model for the state."""
    for slug, name, window in (
        (SUMMARISER, f"{SUMMARISER}+reply=summary", None),
        (f"{SUMMARISER}-small", f"{SUMMARISER}+reply=summary+part=1", limit // PART),
        (READER, READER + '+reply={"seen":"yes"}', None),
    ):
        ModelSpec.objects.update_or_create(
            slug=slug, defaults={"provider": SUMMARISER, "name": name, "context_window": window}
        )


def assign_rebuilding_policy(values: Mapping[str, Any], *, now: datetime) -> None:
    """Apply these values to everyone from now on."""
    told: dict[str, Any] = {"values": values, "actor": SYSTEM, "now": now}
    policy = ContextPolicy.objects.filter(slug="rebuilding").first()
    if policy is not None:
        create_policy_version(policy=policy, locks=[], note="", **told)
        return
    policy = create_policy(slug="rebuilding", name="Rebuilding", **told)
    assign_policy(policy=policy, level="instance", actor=SYSTEM, now=now)


def rebuild_conversation(turns: Sequence[RecordedTurn], *, base: str, limit: int) -> Rebuilding:
    """Play a conversation in a separate chat, and rebuild each of its requests."""
    chat = create_replay_chat(base=base, limit=limit, now=timezone.now())
    names = {call.name for turn in turns for step in turn.steps for call in step.calls}
    tools = RecordedTools(names)
    runtime = build_local_runtime(tools)
    received: list[str] = []
    for number, turn in enumerate(turns):
        tools.prepare(turn)
        fault = FAULTS[number % len(FAULTS)]
        configure_fake_server(
            base,
            replies=format_fake_replies(turn),
            faults=[{**fault, "model": CHAT_MODEL}] if fault else [],
        )
        accepted = start_turn(user=chat.owner, chat=chat, text=turn.text, now=timezone.now())
        ended = process_replayed_turn(accepted.turn.pk, runtime=runtime)
        if ended.status == Turn.Status.FAILED and fault:
            tools.prepare(turn)
            configure_fake_server(base, replies=format_fake_replies(turn), faults=[])
            again = retry_turn(user=chat.owner, turn=ended, now=timezone.now())
            process_replayed_turn(again.pk, runtime=runtime)
        maintain_chat_context(chat_id=chat.pk, counter=runtime.counter, now=timezone.now())
        received += take_received_hashes(base)
    runtime.drain(1)
    received += take_received_hashes(base)
    return compare_rebuilt_requests(chat, received)


def take_received_hashes(base: str) -> list[str]:
    """Delete the requests that the server has recorded, and return the hashes of their bodies."""
    rows = httpx2.get(f"{base}/_requests", timeout=TURN_SECONDS).raise_for_status().json()
    httpx2.delete(f"{base}/_requests").raise_for_status()
    return [row["body_sha256"] for row in rows]


def compare_rebuilt_requests(chat: Chat, received: Sequence[str]) -> Rebuilding:
    """Rebuild every request of a chat, and compare the results with the received ones."""
    found = Rebuilding(received=len(received))
    built: set[str] = set()
    for name, hashes, fault in (
        *rebuild_reply_calls(chat, found),
        *rebuild_summary_calls(chat, found),
    ):
        if fault:
            found.faults.append(f"{name}: {fault}")
        elif not hashes & set(received):
            found.faults.append(f"{name}: no such body reached the server")
        built |= hashes
    found.same = sum(body in built for body in received)
    found.faults += [f"the body {body} is of no call" for body in received if body not in built]
    return found


def rebuild_reply_calls(chat: Chat, found: Rebuilding) -> Iterator[tuple[str, set[str], str]]:
    """Count the calls for replies and states in `found`, and yield each.

    A call is yielded as its name, the hashes of its possible bodies, and its problem.
    """
    rows = Receipt.objects.filter(turn__branch__chat=chat).select_related(
        "effective_policy", "turn__branch__chat__owner", "turn__model"
    )
    for row in rows.order_by("created_at"):
        found.replies += row.purpose == "reply"
        found.retries += row.call > 1 and row.step > 0
        made = rebuild_request(row)
        found.tools += bool(made.tools)
        hashes = map(compute_text_ref, build_request_bodies(made, with_images=True))
        known = row.body_sha256
        differs = "its body is not the one that left" if known and known not in hashes else ""
        yield f"{row.purpose} {row}", {known} if known else set(hashes), made.fault or differs


def rebuild_summary_calls(chat: Chat, found: Rebuilding) -> Iterator[tuple[str, set[str], str]]:
    """Count the calls for summaries in `found`, and yield each as `rebuild_reply_calls` does."""
    rows = Compaction.objects.filter(branch__chat=chat).select_related("effective_policy", "branch")
    for row in rows.exclude(calls=[]):
        found.summaries += 1
        found.parts += len(row.calls) > 1
        values, model = (
            resolution.load_policy_values(row.effective_policy),
            summaries.find_summary_model(row),
        )
        for number in range(1, len(row.calls) + 1):
            made = summaries.rebuild_summary_request(row, number=number)
            most = made.max_output_tokens or values.summary_max_tokens
            built = summaries.build_summary_bodies(
                row, made.messages, max_output_tokens=most, model=model
            )
            known = made.body_sha256
            hashes = {known} if known else {compute_text_ref(text) for text in built}
            differs = made.reason or ("" if not known or made.body == "same" else made.body_words)
            yield f"call {number} of {row}", hashes, differs
