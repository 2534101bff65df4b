"""Plausible mistakes in the product, to check that `crashes` detects them.

Each replaces one function with a naive version. The docstrings describe the mistakes, and
`test_naive_ways.py` lists how each is detected.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import transaction

from chats.actions import marks
from chats.background import due_jobs
from chats.compaction import claims, coverage, maintain, perform, publish
from chats.compaction.people import undo
from chats.files import reading, uploads, working_folders
from chats.ground import queue
from chats.models import Compaction, FileChunk, FileRemoval, Message, StoredFile, Turn
from chats.record import messages
from chats.turns import call_receipts, reply_steps, tool_steps, writes
from chats.turns import lease as leases
from contextpolicy.models import ToolDefinition


def put(room: Any, name: str, found: Any) -> Any:
    """Replace a name in a module or a class; return the former value."""
    before = getattr(room, name)
    setattr(room, name, found)
    return before


def publish_in_pieces() -> None:
    """Publish the row in one transaction and activate it in the next."""

    def publish_row(row: Compaction, *, branch: Any, actor: str, now: Any) -> bool:
        Compaction.objects.filter(pk=row.pk).update(
            status="published", published_at=now, displaced=branch.active_compaction
        )

        def swap() -> None:
            with transaction.atomic():
                coverage.activate_compaction(branch, to=row)
                coverage.record_compaction_event(
                    "compaction.published", row=row, now=now, actor=actor
                )

        transaction.on_commit(swap)
        return True

    put(publish, "publish_summary", publish_row)


def publish_without_comparison() -> None:
    """Activate a prepared summary, even if the chat changed since it was planned."""

    def publish_row(row: Compaction, *, branch: Any, actor: str, now: Any) -> bool:
        Compaction.objects.filter(pk=row.pk).update(
            status="published", published_at=now, displaced=branch.active_compaction
        )
        coverage.activate_compaction(branch, to=row)
        coverage.record_compaction_event("compaction.published", row=row, now=now, actor=actor)
        return True

    put(publish, "publish_summary", publish_row)
    # The second check that would reject such a summary.
    put(marks, "retire_covering_summaries", lambda *_, **__: ([], []))


def keep_the_event_apart() -> None:
    """Store a summary in one transaction and its ledger event in the next."""

    def later(*given: Any, **named: Any) -> None:
        def tell() -> None:
            with transaction.atomic():
                told(*given, **named)

        transaction.on_commit(tell)

    told = put(publish, "record_compaction_event", later)


def never_release_a_claim() -> None:
    """Never release the claim of a worker that died while it wrote a summary."""
    put(claims, "release_dead", lambda **_: None)


def forget_the_claim_token() -> None:
    """Let a worker that was declared dead store its summary."""
    put(publish, "check_claim", lambda _claimed: None)


def hold_a_transaction() -> None:
    """Keep a transaction open while the model writes its summary."""
    put(maintain, "run_compaction", transaction.atomic(maintain.run_compaction))


def send_before_the_commit() -> None:
    """Send a task immediately instead of after the commit."""

    def enqueue(task: str, *, countdown: float = 0.0, **ids: Any) -> None:
        arguments = {name: str(value) for name, value in ids.items()}
        queue.publish_task(task, arguments, countdown=countdown)

    put(queue, "enqueue", enqueue)


def blank_what_was_folded() -> None:
    """Blank a message when a summary covers it."""

    def publish_row(row: Compaction, *, branch: Any, actor: str, now: Any) -> bool:
        done: bool = publishing(row, branch=branch, actor=actor, now=now)
        told = Message.objects.filter(branch=branch, seq__range=(row.from_seq, row.to_seq))
        told.update(parts=[])
        return done

    publishing = put(publish, "publish_summary", publish_row)


def believe_every_summary() -> None:
    """Accept every output of the model as a summary."""

    def verdict(text: str, **named: Any) -> Any:
        judged = judge(text, **named)
        return replace(judged, reasons=()) if text.strip() else judged

    judge = put(perform, "check_generated_summary", verdict)


def leave_summaries_of_hidden_messages() -> None:
    """Keep a summary active after one of its messages is excluded."""
    put(marks, "retire_covering_summaries", lambda *_, **__: ([], []))


def undo_to_the_originals() -> None:
    """Restore the originals on undo, instead of the previous summary."""
    put(undo, "find_restorable_compaction", lambda *_, **__: None)


def undo_without_a_revision() -> None:
    """Change the active summary without a new revision."""

    def swap(branch: Any, *, to: Compaction | None) -> None:
        before = branch.active_compaction
        branch.active_compaction = to
        branch.save(update_fields=["active_compaction"])
        coverage.update_compaction_statuses(before, to)

    put(coverage, "activate_compaction", swap)


def answer_before_the_end() -> None:
    """Store the reply in one transaction and end its turn in the next."""
    storing = reply_steps.store_step

    def close_step(*, lease: Any, ending: Any, counter: Any, now: Any) -> bool:
        with transaction.atomic():
            chat, turn = writes.lock_chat_and_turn(lease)
            counted = messages.count_parts_tokens(ending.parts, role="assistant", counter=counter)
            reply = storing(turn=turn, chat=chat, ending=ending, counted=counted, now=now)
            chat.save()
        with transaction.atomic():
            chat, turn = writes.lock_chat_and_turn(lease)
            writes.finish_turn(
                lease=lease,
                turn=turn,
                chat=chat,
                status="completed",
                reply=reply,
                ending=ending,
                now=now,
            )
        return False

    put(writes, "close_step", close_step)


def forget_the_lease_token() -> None:
    """Let a worker that was declared dead write its reply."""

    def locked_turn(mine: Any) -> Turn:
        return Turn.objects.select_related("branch").get(pk=mine.turn_id)

    def write(mine: Any, **values: Any) -> None:
        Turn.objects.filter(pk=mine.turn_id).update(**values)

    put(writes, "lock_held_turn", locked_turn)
    put(writes, "update_held_turn", write)
    put(call_receipts, "update_held_turn", write)
    put(leases, "select_held_turn", lambda mine: Turn.objects.filter(pk=mine.turn_id))


def never_take_a_turn_back() -> None:
    """Never release the turn of a worker that died during a reply."""
    put(due_jobs, "release_expired", lambda **_: 0)


def forget_the_removal() -> None:
    """Store the bytes of an upload without a scheduled removal."""

    def save(file: Any, *, path: str, **named: Any) -> None:
        saving(file, path=path, **named)
        FileRemoval.objects.filter(path=path).delete()

    saving = put(uploads, "save_file_bytes", save)


def keep_the_bytes_later() -> None:
    """Cancel the removal of an upload's bytes after the transaction that stores its row."""

    def keep(path: str) -> None:
        transaction.on_commit(partial(keeping, path))

    keeping = put(uploads, "keep_file_bytes", keep)


def store_the_text_apart() -> None:
    """Store the text of a file in one transaction, and its state in the next."""

    def store(row: StoredFile, *, values: dict[str, Any], chunks: list[FileChunk]) -> None:
        with transaction.atomic():
            FileChunk.objects.bulk_create(chunks)
        storing(row, values=values, chunks=[])

    storing = put(reading, "store_content", store)


def leave_copies_of_files() -> None:
    """Never delete the temporary folders of killed readers."""
    put(working_folders, "remove_abandoned_folders", lambda: 0)


def call_every_tool_again() -> None:
    """Repeat a call whose outcome is unknown, whatever its tool does."""
    put(ToolDefinition, "is_idempotent", True)


def leave_calls_open() -> None:
    """End a turn without an outcome of its calls."""
    put(tool_steps, "end_open_call", lambda *_, **__: None)


WAYS: dict[str, Callable[[], None]] = {
    way.__name__.replace("_", "-"): way
    for way in (
        publish_in_pieces,
        publish_without_comparison,
        keep_the_event_apart,
        never_release_a_claim,
        forget_the_claim_token,
        hold_a_transaction,
        send_before_the_commit,
        blank_what_was_folded,
        believe_every_summary,
        leave_summaries_of_hidden_messages,
        undo_to_the_originals,
        undo_without_a_revision,
        answer_before_the_end,
        forget_the_lease_token,
        never_take_a_turn_back,
        forget_the_removal,
        keep_the_bytes_later,
        store_the_text_apart,
        leave_copies_of_files,
        call_every_tool_again,
        leave_calls_open,
    )
}
