"""Builds the request for a summary again, from rows, and compares it with its commitment.

A summary that was written in one call. One that was read in parts, or written a second time with
what the first attempt lost, had requests whose own texts are not kept: their commitments stand.
"""

from dataclasses import dataclass, replace
from functools import partial

from chats.ground.seals import holds
from chats.models import Compaction
from chats.prompt.as_sent import BODIES, BodyCheck, compared, forms_of, speaks_anthropic
from chats.providers.base import ProviderRequest
from chats.record import history
from contextpolicy.engine.messages import Summary, WireMessage
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.prompts import summary_request
from contextpolicy.engine.segments import prompt_json
from contextpolicy.engine.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
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

    `none`: no model was asked. `body_sha256`: of the bytes that left; empty where none is kept.
    """

    messages: tuple[WireMessage, ...] = ()
    fault: str = ""
    body_sha256: str = ""
    body: BodyCheck = "unknown"

    @property
    def body_words(self) -> str:
        """Say whether the body is the one that left."""
        return BODIES[self.body]


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
        known = row.bodies[0] if row.bodies else ""
        body = body_check(row, messages, values=values, known=known) if known else "unknown"
        own = values.summary_instruction.strip()
        if own and values.hide_system_text and not sees_hidden:
            told = f"(The policy keeps its instruction of {len(own):,} characters to itself.)"
            messages = asked(values=replace(values, summary_instruction=told))
        return SummaryRequest(messages, body_sha256=known, body=body)
    is_whole = len(row.calls) == 1 and row.rung == "model"
    return SummaryRequest(fault="differs" if is_whole else "parts")


def body_check(
    row: Compaction, messages: tuple[WireMessage, ...], *, values: PolicyValues, known: str
) -> BodyCheck:
    """Compare the body of a request as it is built now with the bytes that left."""
    model = ModelSpec.objects.filter(name=row.model_name).order_by("-enabled", "slug").first()
    request = ProviderRequest(
        model=row.model_name,
        messages=messages,
        max_output_tokens=values.summary_max_tokens,
        stream=not (model and model.cannot_stream),
    )
    made = forms_of(request, is_anthropic=speaks_anthropic(model))
    return compared(made, known)


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
