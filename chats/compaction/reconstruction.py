"""Rebuilds the requests for a summary from rows, and compares each with its commitment.

Older summaries did not store intermediate texts. If such a summary took several calls or attempts,
only its commitments remain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from django.db.models import Q
from django.utils.translation import gettext, gettext_noop

from chats.compaction.calls import CallRecord, SummaryCall, SummarySources
from chats.compaction.plan import load_cited_messages
from chats.ground.commitments import is_commitment_valid
from chats.ground.refusals import Refusal
from chats.models import Compaction
from chats.prompt.reconstruction import Prefix
from chats.prompt.sent_request import (
    BODIES,
    BodyCheck,
    RequestFile,
    RequestNotWhole,
    SentLine,
    align_messages,
    compare_body_forms,
    format_request_file,
    format_request_message,
    is_anthropic_model,
    select_sent_body,
    serialise_request_forms,
)
from chats.providers.base import ProviderRequest
from chats.record import history
from contextpolicy.engine.messages.messages import Summary, WireMessage
from contextpolicy.engine.messages.segments import Segment, format_prompt_json
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from contextpolicy.resolution import load_policy_values

SUMMARY_FAULTS = {
    "none": gettext_noop(
        "No model was called, because this summary consists of extracted sentences."
    ),
    "erased": gettext_noop("This request cannot be rebuilt, because part of its text was erased."),
    "parts": gettext_noop(
        "This summary was written in several calls. Their intermediate results are not "
        "stored, so the requests cannot be rebuilt. Their commitments in the audit log "
        "remain valid."
    ),
    "differs": gettext_noop(
        "The request rebuilt from stored data differs from the request as sent. Data was "
        "changed outside the product. Verify the audit log."
    ),
}
COUNTER = ApproximateCounter()
# Maximum digits of a call's number.
DIGITS = 4


class NoSuchCall(Refusal):
    """The summary has no call with this number. Numbers start at 1."""

    code = "no_such_call"
    status = 404
    sentence = gettext_noop("This summary has no call with this number. Calls are numbered from 1.")


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A rebuilt request for a summary, call `number` of `calls`, with its commitment.

    `fault`: `none` (no model was called), `erased`, `parts`, `differs`, or empty if it equals the
    request as sent. `body_sha256`: hash of the body as sent; empty if not stored. `file`: the
    body as sent if known; empty if incomplete. `pieces`: the parts of each message. `lines` and
    `prefix`: comparison with the previous call, if requested.
    """

    messages: tuple[WireMessage, ...] = ()
    fault: str = ""
    number: int = 1
    calls: int = 0
    commitment: str = ""
    body_sha256: str = ""
    body: BodyCheck = "unknown"
    file: str = ""
    is_anthropic: bool = False
    # The output limit of the call in tokens; 0 with a fault.
    max_output_tokens: int = 0
    pieces: Sequence[Sequence[Segment]] = ()
    lines: Sequence[SentLine] = ()
    prefix: Prefix | None = None

    @property
    def body_words(self) -> str:
        """Return a sentence that says whether the rebuilt body equals the one that was sent."""
        return gettext(BODIES[self.body])

    @property
    def reason(self) -> str:
        """Return the reason why the request differs from the one sent; empty if it does not."""
        return gettext(SUMMARY_FAULTS.get(self.fault, ""))

    @property
    def before(self) -> int:
        """Number of the previous call; 0 if there is none."""
        return self.number - 1

    @property
    def after(self) -> int:
        """Number of the next call; 0 if there is none."""
        return self.number + 1 if self.number < self.calls else 0


def rebuild_summary_request(
    row: Compaction, *, number: int = 1, sees_hidden: bool = False
) -> SummaryRequest:
    """Rebuild the request of a summary's call and check it against the ledger's commitment.

    Calls are counted from 1. If the policy hides its texts, the length of the instruction
    is shown instead of the instruction, unless the reader `sees_hidden`. Raises
    `NoSuchCall`.
    """
    if not 1 <= number <= max(len(row.calls), 1):
        raise NoSuchCall
    found = SummaryRequest(number=number, calls=len(row.calls))
    if not row.calls:
        return replace(found, fault="none")
    found = replace(found, commitment=row.calls[number - 1])
    previous = Compaction.objects.filter(pk=row.previous_id).first() if row.previous_id else None
    if not row.salt or (previous is not None and previous.erased_at is not None):
        return replace(found, fault="erased")
    record = record_of(row)
    sources = rebuild_summary_sources(row, previous, zone=record.zone)
    call = record.calls[number - 1] if number <= len(record.calls) else None
    messages = sources.request(call, record) if call else ()
    if call is None or not is_commitment_valid(
        found.commitment, format_prompt_json(messages, ()), salt=row.salt
    ):
        return replace(found, fault="differs" if has_all_request_parts(row) else "parts")
    # A call without a response has no hash; it was the last one.
    known = row.bodies[number - 1] if row.bodies and number <= len(row.bodies) else ""
    values = sources.values
    model = find_summary_model(row)
    most = values.summary_max_tokens + call.room
    made = build_summary_bodies(row, messages, max_output_tokens=most, model=model)
    file = select_sent_body(made, known)
    body = compare_body_forms(iter([file]), known) if known else "unknown"
    own = values.summary_instruction.strip()
    if own and values.hide_system_text and not sees_hidden:
        notice = f"(The policy hides its instruction of {len(own):,} characters.)"
        hiding = replace(sources, values=replace(values, summary_instruction=notice))
        messages, file = hiding.request(call, record), ""
    instruction = messages[0].content
    system = Segment("system", "instruction", 0, "system", COUNTER.count(instruction))
    return replace(
        found,
        messages=messages,
        body_sha256=known,
        body=body,
        file=file,
        pieces=[[system], sources.pieces(call, record, counter=COUNTER)],
        is_anthropic=is_anthropic_model(model),
        max_output_tokens=most,
    )


def compare_with_previous_call(
    row: Compaction, *, number: int = 1, sees_hidden: bool = False
) -> SummaryRequest:
    """Return the request of a call, with its messages compared with the previous call.

    If the previous request cannot be rebuilt, every message counts as new. Raises
    `NoSuchCall`.
    """
    found = rebuild_summary_request(row, number=number, sees_hidden=sees_hidden)
    if found.fault:
        return found
    before = call_before(row, number, sees_hidden=sees_hidden)
    old = before.messages if before else ()
    lines = [
        SentLine(
            kind,
            wire.role,
            format_request_message(wire, hides=False),
            () if place is None else found.pieces[place],
        )
        for kind, wire, place in align_messages(old, found.messages)
    ]
    return replace(found, lines=lines, prefix=compare_summary_prefix(found, old) if old else None)


def compare_summary_prefix(found: SummaryRequest, old: Sequence[WireMessage]) -> Prefix:
    pairs = zip(found.messages, old, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    tokens = sum(piece.tokens for pieces in found.pieces[:same] for piece in pieces)
    rest = found.pieces[same : same + 1]
    return Prefix(same, tokens, rest[0][0].origin if rest and rest[0] else "")


def call_before(row: Compaction, number: int, *, sees_hidden: bool) -> SummaryRequest | None:
    """Return the request of the previous summary call, or None.

    This is the previous call of the same summary, else the last call of the attempt before it on
    its branch, else the last call of the summary it continues.
    """
    if number > 1:
        return rebuild_summary_request(row, number=number - 1, sees_hidden=sees_hidden)
    asked = Compaction.objects.exclude(calls=[]).order_by("-created_at", "-attempt")
    # Two attempts can have the same time.
    sooner = Q(created_at__lt=row.created_at)
    sooner |= Q(created_at=row.created_at, attempt__lt=row.attempt)
    earlier = asked.filter(sooner, branch=row.branch).first() or row.previous
    if earlier is None or not earlier.calls:
        return None
    return rebuild_summary_request(earlier, number=len(earlier.calls), sees_hidden=sees_hidden)


def build_summary_request_file(found: SummaryRequest, *, form: str) -> RequestFile:
    """Return the request of a call as a file in one of the `FORMS`. Raises `RequestNotWhole`."""
    if not found.file:
        raise RequestNotWhole
    return format_request_file(found.file, form=form, is_anthropic=found.is_anthropic)


def number_in(text: str, row: Compaction) -> int:
    """Parse the call number from a URL; 1 if the summary has no call with this number."""
    named = int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS else 1
    return named if 1 <= named <= len(row.calls) else 1


def rebuild_summary_sources(
    row: Compaction, previous: Compaction | None, *, zone: str
) -> SummarySources:
    """Return the sources of a summary: the messages that it was the first to cover.

    Their dates use the time zone `zone`.
    """
    rows = history.select_path_messages(row.branch, after=row.from_seq - 1, before=row.to_seq + 1)
    if previous:
        # Messages that the previous summary excluded, such as one that was pinned then.
        new = Q(seq__gt=previous.to_seq) | Q(seq__in=previous.exceptions)
        rows = rows.filter(new)
    read = rows.exclude(seq__in=row.exceptions).order_by("seq")
    before = build_previous_summary(previous) if previous else None
    return SummarySources(
        messages=history.load_all(read, counter=COUNTER, zone=zone),
        previous=before,
        values=load_policy_values(row.effective_policy),
        focus=row.focus,
        cited=load_cited_messages(before, branch=row.branch, counter=COUNTER, zone=zone),
    )


def record_of(row: Compaction) -> CallRecord:
    """Return the stored record of a summary's calls.

    An older summary has no record; it counts as one call that read everything.
    """
    if row.made_of:
        return CallRecord.from_stored(row.made_of)
    return CallRecord(calls=[SummaryCall(row.from_seq, row.to_seq, is_last=True)])


def has_all_request_parts(row: Compaction) -> bool:
    """Return True if all parts of a summary's requests are stored."""
    return bool(row.made_of) or (len(row.calls) == 1 and row.rung == "model")


def find_summary_model(row: Compaction) -> ModelSpec | None:
    """Return the model that wrote a summary, found by name, or None. Prefers an enabled one."""
    return ModelSpec.objects.filter(name=row.model_name).order_by("-enabled", "slug").first()


def build_summary_bodies(
    row: Compaction,
    messages: tuple[WireMessage, ...],
    *,
    max_output_tokens: int,
    model: ModelSpec | None,
) -> Iterator[str]:
    """Yield the body of a summary request in each variant that its server may accept."""
    request = ProviderRequest(
        model=row.model_name,
        messages=messages,
        max_output_tokens=max_output_tokens,
        stream=not (model and model.cannot_stream),
    )
    yield from serialise_request_forms(request, is_anthropic=is_anthropic_model(model))


def build_previous_summary(row: Compaction) -> Summary:
    """Return the summary that a new summary continues, in the engine's type."""
    return Summary(
        id=str(row.pk),
        text=row.text,
        from_seq=row.from_seq,
        to_seq=row.to_seq,
        exceptions=tuple(row.exceptions),
        tokens=0,
    )
