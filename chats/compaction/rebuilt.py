"""Builds the request for a summary again, from rows, and compares it with its commitment.

A summary that was written in one call. One that was read in parts, or written a second time with
what the first attempt lost, had requests whose own texts are not kept: their commitments stand.
"""

from dataclasses import dataclass, replace
from functools import partial

from chats.ground.seals import holds
from chats.models import Compaction
from chats.record import history
from contextpolicy.engine.messages import Summary, WireMessage
from contextpolicy.engine.prompts import summary_request
from contextpolicy.engine.segments import prompt_json
from contextpolicy.engine.tokens import ApproximateCounter
from contextpolicy.resolution import values_of

SUMMARY_FAULTS = {
    "none": "No model was asked: this was written by rule.",
    "erased": "A part of this request was erased, so it cannot be built again.",
    "parts": (
        "This summary was read in parts, or written a second time. The texts in between are not "
        "kept, so its requests cannot be built again; the ledger's commitments to them stand."
    ),
    "differs": (
        "What is stored now gives another request than the one that was sent: something was "
        "changed behind the product's back. Verify the ledger."
    ),
}
COUNTER = ApproximateCounter()


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A request for a summary; `fault`: `none`, `erased`, `parts` or `differs`, empty when sound.

    `none`: no model was asked.
    """

    messages: tuple[WireMessage, ...] = ()
    fault: str = ""


def summary_request_of(row: Compaction, *, sees_hidden: bool = False) -> SummaryRequest:
    """Build the request of a summary again; the ledger's commitment tells whether it is the one.

    The policy's own instruction is named by its length where the policy hides its texts, unless the
    reader `sees_hidden`.
    """
    if not row.calls:
        return SummaryRequest(fault="none")
    previous = Compaction.objects.filter(pk=row.previous_id).first() if row.previous_id else None
    if not row.salt or (previous is not None and previous.erased_at is not None):
        return SummaryRequest(fault="erased")
    after = previous.to_seq if previous else row.from_seq - 1
    rows = history.on_path(row.branch, after=after, before=row.to_seq + 1)
    read = rows.exclude(seq__in=row.exceptions).order_by("seq")
    values = values_of(row.effective_policy)
    asked = partial(
        summary_request,
        messages=history.load_all(read, counter=COUNTER),
        previous=so_far(previous) if previous else None,
        focus=row.focus,
    )
    messages = asked(values=values)
    if holds(row.calls[0], prompt_json(messages, ()), salt=row.salt):
        own = values.summary_instruction.strip()
        if own and values.hide_system_text and not sees_hidden:
            told = f"(The policy keeps its instruction of {len(own):,} characters to itself.)"
            messages = asked(values=replace(values, summary_instruction=told))
        return SummaryRequest(messages)
    is_whole = len(row.calls) == 1 and row.rung == "model"
    return SummaryRequest(fault="differs" if is_whole else "parts")


def so_far(row: Compaction) -> Summary:
    """Return the summary that a new one replaces."""
    return Summary(
        id=str(row.pk),
        text=row.text,
        from_seq=row.from_seq,
        to_seq=row.to_seq,
        exceptions=tuple(row.exceptions),
        tokens=0,
    )
