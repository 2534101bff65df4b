"""Celery tasks. Each only calls one domain function."""

import uuid
from typing import Any

from celery import shared_task
from django.utils import timezone

from chats.actions import erasure, pending_erasures, retention
from chats.background import (
    cache_warming,
    due_jobs,
    ledger_export_lines,
    preference_inference,
    strategy_hooks,
    titles,
)
from chats.background.worker_signals import get_runtime
from chats.checkpoints import upkeep
from chats.compaction import embedding, indexing, maintain, running_summaries
from chats.counts import keeping
from chats.exchange import apart
from chats.files import reading
from chats.ground import heartbeats, queue, schedule
from chats.prompt.tokenizer import O200kCounter
from chats.simulation import radius
from chats.simulation import upkeep as evaluations
from chats.tool_servers import servers
from chats.webhooks import delivering, stamping
from contextpolicy import verification


def is_closing() -> bool:
    """Return True while this process shuts down."""
    return running_summaries.here.closing


@shared_task(name=queue.RUN_TURN)
def run_turn(*, turn_id: str, **_later: Any) -> None:
    """Process a turn until it has ended. Duplicate deliveries do nothing, because it is claimed."""
    get_runtime().run(uuid.UUID(turn_id))


@shared_task(name=queue.MAINTAIN_CHAT)
def maintain_chat(*, chat_id: str, **_later: Any) -> None:
    """Prepare a compaction if the chat's policy requires one."""
    maintain.maintain_chat_context(
        chat_id=uuid.UUID(chat_id),
        counter=O200kCounter(),
        now=timezone.now(),
        clock=timezone.now,
    )


@shared_task(name=queue.TELL_STRATEGY)
def tell_strategy(*, turn_id: str, **_later: Any) -> None:
    """Notify a package's strategy that a turn is complete."""
    strategy_hooks.tell_strategy(turn_id=uuid.UUID(turn_id), counter=O200kCounter())


@shared_task(name=queue.VERIFY_LEDGER)
def verify_ledger(*, verification_id: str, **_later: Any) -> None:
    """Run a requested verification of the ledger."""
    verification.run_verification(pk=int(verification_id), clock=timezone.now)


@shared_task(name=queue.KEEP_LEDGER)
def keep_ledger(**_later: Any) -> None:
    """Sign a checkpoint of the ledger and request a verification, if they are due."""
    upkeep.maintain_ledger(now=timezone.now())


@shared_task(name=queue.STAMP_LEDGER)
def stamp_ledger(**_later: Any) -> None:
    """Request a timestamp of the newest checkpoint from the external authority."""
    stamping.request_due_timestamp(clock=timezone.now)


@shared_task(name=queue.COUNT)
def count(**_later: Any) -> None:
    """Update the daily counts and the balances of compactions from the ledger."""
    keeping.count_ledger_events(clock=timezone.now, is_closing=is_closing)


@shared_task(name=queue.SHIP_LEDGER)
def ship_ledger(**_later: Any) -> None:
    """Write new ledger events to the standard output."""
    ledger_export_lines.ship_events(clock=timezone.now, is_closing=is_closing)


@shared_task(name=queue.INDEX_CHAT)
def index_chat(*, chat_id: str, **_later: Any) -> None:
    """Index the messages of a chat for search."""
    indexing.update_chat_index(chat_id=uuid.UUID(chat_id))


@shared_task(name=queue.INDEX_CHATS)
def index_chats(*, chat_ids: str, **_later: Any) -> None:
    """Index the new messages of several chats for search."""
    indexing.index_chats(chat_ids=[uuid.UUID(chat_id) for chat_id in chat_ids.split(",")])


@shared_task(name=queue.WARM_UP)
def warm_up(*, branch_id: str, cause: cache_warming.Cause, tries: str = "1", **_later: Any) -> None:
    """Warm up a model server's cache with the prefix of a branch's next prompt."""
    cache_warming.warm_up_branch(
        branch_id=uuid.UUID(branch_id),
        cause=cause,
        tries=int(tries),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=is_closing,
    )


@shared_task(name=queue.WRITE_TITLE)
def write_title(*, turn_id: str, **_later: Any) -> None:
    """Let the summary model write a chat's title after its first reply."""
    titles.write_title(
        turn_id=uuid.UUID(turn_id),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=is_closing,
    )


@shared_task(name=queue.READ_PREFERENCES)
def read_preferences(*, chat_id: str, **_later: Any) -> None:
    """Let the summary model suggest preferences of a chat's owner."""
    preference_inference.read_chat(
        chat_id=uuid.UUID(chat_id),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=is_closing,
    )


@shared_task(name=queue.EMBED)
def embed(**_later: Any) -> None:
    """Delete unused vectors, then spend a few seconds embedding texts that have none.

    Enqueues the next task if work remains.
    """
    embedding.continue_embedding_pass(now=timezone.now())


@shared_task(name=queue.EMBED_CHAT)
def embed_chat(*, chat_id: str, **_later: Any) -> None:
    """Embed the indexed messages of a chat that have no vector yet."""
    embedding.embed_chat(uuid.UUID(chat_id), now=timezone.now())


@shared_task(name=queue.ERASE_CHAT)
def erase_chat(*, chat_id: str, **_later: Any) -> None:
    """Erase an expired chat, unless a reply is being written in it."""
    erasure.erase_expired(chat_id=uuid.UUID(chat_id), now=timezone.now())


@shared_task(name=queue.RUN_PENDING_ERASURE)
def run_pending_erasure(*, erasure_id: str = "", wish_id: str = "", **_later: Any) -> None:
    """Run a pending erasure if no legal hold covers it any longer.

    Tasks of older versions pass its id as `wish_id`.
    """
    pending_erasures.run_pending_erasure(
        erasure_id=uuid.UUID(erasure_id or wish_id), now=timezone.now()
    )


@shared_task(name=queue.RETAIN)
def retain(**_later: Any) -> None:
    """Continue the current retention run for a few seconds."""
    retention.continue_retention_run(clock=timezone.now, is_closing=is_closing)


@shared_task(name=queue.COUNT_RADIUS)
def count_radius(*, radius_id: str, **_later: Any) -> None:
    """Continue a count of affected chats for a few seconds."""
    radius.continue_radius_count(
        radius_id=uuid.UUID(radius_id),
        clock=timezone.now,
        is_closing=is_closing,
    )


@shared_task(name=queue.EVALUATE)
def evaluate(*, evaluation_id: str, **_later: Any) -> None:
    """Compare recent turns with an evaluated draft for a few seconds."""
    evaluations.continue_evaluation(
        evaluation_id=uuid.UUID(evaluation_id),
        clock=timezone.now,
        is_closing=is_closing,
    )


@shared_task(name=queue.IMPORT_FILE)
def import_file(*, import_id: str, **_later: Any) -> None:
    """Continue a file import for a few seconds."""
    apart.import_file(
        import_id=uuid.UUID(import_id),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=is_closing,
    )


@shared_task(name=queue.READ_FILE)
def read_file(*, file_id: str, **_later: Any) -> None:
    """Read an uploaded file: its text, or a copy of an image."""
    reading.read_uploaded_file(file_id=uuid.UUID(file_id), counter=O200kCounter())


@shared_task(name=queue.READ_TOOLS)
def read_tools(*, server_id: str, **_later: Any) -> None:
    """Read the definitions of the tools of a tool server."""
    servers.read_definitions(server_id=int(server_id), counter=O200kCounter(), now=timezone.now())


@shared_task(name=queue.DELIVER)
def deliver(*, lane: str, **_later: Any) -> None:
    """Send the queued webhook deliveries."""
    delivering.send_due_deliveries(lane=lane, clock=timezone.now, is_closing=is_closing)


def register_due_job(entry: str) -> None:
    """Register the Celery task of a schedule entry."""

    @shared_task(name=schedule.name_task(entry))
    def run(**_later: Any) -> None:
        due_jobs.run_due_job(entry, now=timezone.now())
        heartbeats.note_run(entry)


for each in schedule.PERIODS:
    register_due_job(each)


@shared_task(name=queue.SWEEP)
def run_all_due_jobs(**_later: Any) -> None:
    """Run every due job. Serves tasks from the schedule of the previous version."""
    due_jobs.run_all_due_jobs(now=timezone.now())
