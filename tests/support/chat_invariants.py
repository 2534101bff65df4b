"""Invariants of the compactions and receipts of a chat."""

from typing import Any

from chats.compaction import coverage
from chats.models import Branch, Chat, Compaction, Receipt
from chats.prompt import prompt_facts
from contextpolicy.engine.compose.partition import LeftOut, check_partition
from contextpolicy.engine.messages.tokens import ApproximateCounter

COUNTER = ApproximateCounter()


def check_compactions(chat: Chat) -> None:
    """Check the invariants that hold after every step."""
    in_force = set()
    for branch in Branch.objects.select_related("active_compaction__base", "chat").filter(
        chat=chat
    ):
        active = branch.active_compaction
        assert branch.compactions.filter(status__in=coverage.IN_THE_MAKING).count() <= 1
        if active is None:
            continue
        in_force |= {pk for pk in (active.pk, active.base_id) if pk}
        summary = coverage.get_active_summary(active)
        assert summary is None or coverage.is_true(summary, branch)
        assert summary is None or summary.status == "published", summary.status
        value, _ = prompt_facts.summary_and_window(active, counter=COUNTER)
        assert value is None or value.text
    published = Compaction.objects.filter(branch__chat=chat, status="published")
    assert {row.pk for row in published} == in_force
    assert not Compaction.objects.filter(status__in=["published", "prepared"], reason="x").exists()


def check_receipts(chat: Chat, *, known: set[Any]) -> None:
    """Check that each new prompt accounts for every message of its branch, once."""
    for receipt in Receipt.objects.filter(turn__branch__chat=chat).exclude(pk__in=known):
        known.add(receipt.pk)
        check_partition(
            last_seq=receipt.last_seq,
            sent=sorted(segment[2] for segment in receipt.segments if segment[2]),
            left_out=[LeftOut(*part) for part in receipt.left_out],
        )
