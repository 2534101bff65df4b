"""The product broken in the ways that seem natural, so that `crashes` can be seen to notice.

Each way replaces one function by what somebody in a hurry would write; see the docstrings for
what each does wrong, and `test_naive_ways.py` for how it is noticed.
"""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from django.db import transaction

from chats.actions import marks
from chats.compaction import claims, coverage, maintain, perform, publish
from chats.compaction.people import undo
from chats.ground import queue
from chats.models import Compaction, Message, Turn
from chats.record import messages
from chats.turns import lease as leases
from chats.turns import recover, steps


def put(room: ModuleType, name: str, found: Any) -> Any:
    """Let a module use this under a name, its own or an imported one; what it used before."""
    before = getattr(room, name)
    setattr(room, name, found)
    return before


def publish_in_pieces() -> None:
    """The row is published in one transaction and put in force in the next."""

    def publish_row(row: Compaction, *, branch: Any, actor: str, now: Any) -> bool:
        Compaction.objects.filter(pk=row.pk).update(
            status="published", published_at=now, displaced=branch.active_compaction
        )

        def swap() -> None:
            with transaction.atomic():
                coverage.swap(branch, to=row)
                coverage.record("compaction.published", row=row, now=now, actor=actor)

        transaction.on_commit(swap)
        return True

    put(publish, "publish", publish_row)


def publish_without_comparison() -> None:
    """What is prepared goes in force, whatever happened since it was planned."""

    def publish_row(row: Compaction, *, branch: Any, actor: str, now: Any) -> bool:
        Compaction.objects.filter(pk=row.pk).update(
            status="published", published_at=now, displaced=branch.active_compaction
        )
        coverage.swap(branch, to=row)
        coverage.record("compaction.published", row=row, now=now, actor=actor)
        return True

    put(publish, "publish", publish_row)
    # The second thing that keeps such a summary away.
    put(marks, "withdraw", lambda *_, **__: ([], []))


def keep_the_event_apart() -> None:
    """A summary is stored in one transaction and told to the ledger in the next."""

    def later(*given: Any, **named: Any) -> None:
        def tell() -> None:
            with transaction.atomic():
                told(*given, **named)

        transaction.on_commit(tell)

    told = put(publish, "record", later)


def never_release_a_claim() -> None:
    """Who died in the middle of a summary keeps its place for ever."""
    put(claims, "release_dead", lambda **_: None)


def forget_the_claim_token() -> None:
    """Who was taken for dead stores its summary all the same."""
    put(publish, "check_claim", lambda _claimed: None)


def hold_a_transaction() -> None:
    """The model writes its summary inside a transaction."""
    put(maintain, "compact", transaction.atomic(maintain.compact))


def send_before_the_commit() -> None:
    """A task is sent when it is asked for, not after the commit."""

    def enqueue(task: str, *, countdown: float = 0.0, **ids: Any) -> None:
        arguments = {name: str(value) for name, value in ids.items()}
        queue.publish(task, arguments, countdown=countdown)

    put(queue, "enqueue", enqueue)


def blank_what_was_folded() -> None:
    """A message loses its words when a summary stands for them."""

    def publish_row(row: Compaction, *, branch: Any, actor: str, now: Any) -> bool:
        done: bool = publishing(row, branch=branch, actor=actor, now=now)
        told = Message.objects.filter(branch=branch, seq__range=(row.from_seq, row.to_seq))
        told.update(parts=[])
        return done

    publishing = put(publish, "publish", publish_row)


def believe_every_summary() -> None:
    """What the model wrote is taken for a summary."""

    def verdict(text: str, **named: Any) -> Any:
        judged = judge(text, **named)
        return replace(judged, reasons=()) if text.strip() else judged

    judge = put(perform, "verdict", verdict)


def leave_summaries_of_hidden_messages() -> None:
    """A message is excluded and the summary that tells it goes on."""
    put(marks, "withdraw", lambda *_, **__: ([], []))


def undo_to_the_originals() -> None:
    """An undo brings back the originals, whatever the summary stood on."""
    put(undo, "restorable", lambda *_, **__: None)


def undo_without_a_revision() -> None:
    """What is in force changes and nobody can tell."""

    def swap(branch: Any, *, to: Compaction | None) -> None:
        before = branch.active_compaction
        branch.active_compaction = to
        branch.save(update_fields=["active_compaction"])
        coverage.settle(before, to)

    put(coverage, "swap", swap)


def answer_before_the_end() -> None:
    """The reply is stored in one transaction and its turn ended in the next."""
    storing = steps.store_step

    def close_step(*, lease: Any, ending: Any, counter: Any, now: Any) -> bool:
        with transaction.atomic():
            chat, turn = steps.locked(lease)
            counted = messages.tokens_of(ending.parts, role="assistant", counter=counter)
            reply = storing(turn=turn, chat=chat, ending=ending, counted=counted, now=now)
            chat.save()
        with transaction.atomic():
            chat, turn = steps.locked(lease)
            steps.end(
                lease=lease,
                turn=turn,
                chat=chat,
                status="completed",
                reply=reply,
                ending=ending,
                now=now,
            )
        return False

    put(steps, "close_step", close_step)


def forget_the_lease_token() -> None:
    """A worker that was taken for dead writes its reply all the same."""

    def locked_turn(mine: Any) -> Turn:
        return Turn.objects.select_related("branch").get(pk=mine.turn_id)

    def write(mine: Any, **values: Any) -> None:
        Turn.objects.filter(pk=mine.turn_id).update(**values)

    put(steps, "locked_turn", locked_turn)
    put(steps, "write", write)
    put(leases, "held", lambda mine: Turn.objects.filter(pk=mine.turn_id))


def never_take_a_turn_back() -> None:
    """Who died in the middle of a reply keeps its turn for ever."""
    put(recover, "release_expired", lambda **_: 0)


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
    )
}
