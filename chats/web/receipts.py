"""What the model saw: the receipts of a turn as a readable page."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats import access
from chats.compaction.outcomes import why_not
from chats.models import Message, PromptText, Receipt, Turn
from chats.web.doors import PersonRequest, signed_in
from chats.web.receipt_texts import text_sent
from chats.web.receipt_words import (
    LAYOUTS,
    ORIGINS,
    PARTS,
    adjusted_words,
    note_words,
    places,
    reason_words,
)
from chats.web.words import counted, grouped
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.resolution import values_of

# The kinds of the design's colours; a kind that is missing has the colour of history.
COLOURS = {"system": "system", "tools": "system", "summary": "summary", "pin": "pins"}
OUTCOMES = {
    Receipt.Outcome.OPEN: ("accent", "being answered"),
    Receipt.Outcome.OK: ("ok", "answered"),
    Receipt.Outcome.FAILED: ("danger", "failed"),
    Receipt.Outcome.STOPPED: ("warn", "stopped"),
    Receipt.Outcome.LOST: ("warn", "worker lost"),
}
HIDDEN = "The policy hides this text."


@dataclass(frozen=True, slots=True)
class SegmentView:
    """One piece of the prompt in sending order."""

    number: int
    origin: str
    colour: str
    where: str
    place: str
    text: str
    cuts: Sequence[str]
    tokens: str
    width: str


@dataclass(frozen=True, slots=True)
class Sources:
    """What segments were made of: texts by digest, messages by id."""

    texts: Mapping[str, str]
    messages: Mapping[str, Message]


@dataclass(frozen=True, slots=True)
class Figure:
    """A headline number with its reason."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """One model call."""

    receipt: Receipt
    title: str
    outcome: tuple[str, str]
    figures: Sequence[Figure]
    layout: str
    segments: Sequence[SegmentView]
    left_out: Sequence[tuple[str, str]]
    notes: Sequence[str]


@require_GET
@signed_in
def receipt(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Every model call of a turn: what was sent, what was left out and why, in what room."""
    turn = access.turn_for(user=request.user, chat_id=chat_id, turn_id=turn_id)
    context = {
        "chat": turn.branch.chat,
        "turn": turn,
        "calls": calls_of(turn),
        "outcome": why_not(turn) if turn.is_over else None,
    }
    return render(request, "chats/receipt.html", context)


def calls_of(turn: Turn) -> list[ReceiptView]:
    """The turn's receipts for people, in two more queries for all their texts."""
    rows = list(
        turn.receipts.select_related("effective_policy", "compaction").order_by(
            "attempt", "step", "call"
        )
    )
    sources = sources_of(rows)
    return [view_of(row, sources=sources, many=len(rows) > 1) for row in rows]


def sources_of(rows: Iterable[Receipt]) -> Sources:
    """The texts and the messages behind the segments, by digest and by message id."""
    segments = [segment for row in rows for segment in row.segments]
    digests = {segment[5] for segment in segments if segment[5]}
    ids = {segment[1] for segment in segments if segment[2] and is_uuid(segment[1])}
    return Sources(
        texts={row.digest: row.text for row in PromptText.objects.filter(digest__in=digests)},
        messages={str(row.pk): row for row in Message.objects.filter(pk__in=ids)},
    )


def is_uuid(value: object) -> bool:
    """Whether a label is a message's id; labels of other texts are words."""
    try:
        uuid.UUID(str(value))
    except ValueError:
        return False
    return True


def view_of(row: Receipt, *, sources: Sources, many: bool) -> ReceiptView:
    """One receipt for people."""
    what = f"Call {row.call}" if row.purpose == "reply" else "Call for the state"
    title = f"{what}, step {row.step}, attempt {row.attempt}" if many else "The call"
    values = values_of(row.effective_policy)
    placed = places([str(segment[0]) for segment in row.segments], layout=values.layout)
    return ReceiptView(
        receipt=row,
        title=title,
        outcome=OUTCOMES[Receipt.Outcome(row.outcome)],
        figures=figures_of(row),
        layout=LAYOUTS.get(values.layout, ""),
        segments=[
            segment_view(
                number,
                segment,
                place=place,
                sources=sources,
                values=values,
                whole=row.prompt_tokens,
            )
            for number, (segment, place) in enumerate(zip(row.segments, placed, strict=True), 1)
        ],
        left_out=[
            (range_words(first, last), reason_words(reason)) for first, last, reason in row.left_out
        ],
        notes=[*adjusted_words(row.effective_policy.adjusted), *note_words(row.notes)],
    )


def figures_of(row: Receipt) -> list[Figure]:
    """The numbers of the budget, each with where it comes from."""
    budget = row.budget
    left = sum(last - first + 1 for first, last, _ in row.left_out)
    note = f"{grouped(budget['token_budget'])} budget − {grouped(budget['reserve'])} reply"
    figures = [
        Figure("Sent", f"≈ {grouped(row.prompt_tokens)}", "tokens, our count"),
        Figure("Limit for the prompt", grouped(budget["prompt_limit"]), note),
        Figure("Left out", grouped(left), "messages, reasons below" if left else "nothing"),
    ]
    factor = budget.get("calibration", 1.0)
    if factor != 1:
        note = f"our count × {factor:.3f}, learned from this model's replies"
        estimate = f"≈ {grouped(round(row.prompt_tokens * factor))}"
        figures.insert(1, Figure("Estimated for the provider", estimate, note))
    if counted_there := row.usage.get("input"):
        cached = row.usage.get("cached", 0)
        note = f"{grouped(cached)} of them from its cache" if cached else "the whole prompt"
        figures.insert(-2, Figure("Counted by the provider", grouped(counted_there), note))
    return figures


def segment_view(
    number: int,
    segment: Sequence[object],
    *,
    place: str,
    sources: Sources,
    values: PolicyValues,
    whole: int,
) -> SegmentView:
    """One segment: its text if it is still stored and may be shown, its size, its source."""
    origin, label, seq, tokens, _, digest, _ = segment
    size = int(str(tokens))
    message = sources.messages.get(str(label))
    if message is not None:
        text, cuts = text_sent(message, segment, values=values)
    else:
        text, cuts = sources.texts.get(str(digest or label), ""), ()
    # What a person wrote for their own chat is nothing to hide from them.
    if values.hide_system_text and origin == "system" and label != "chat":
        text = f"{HIDDEN} {counted(len(text), 'character')}, SHA-256 {digest}"
    return SegmentView(
        number=number,
        origin=ORIGINS.get(str(origin), str(origin)),
        colour=COLOURS.get(str(origin), "history"),
        where=f"Message {seq}" if seq else PARTS.get(str(label), ""),
        place=place,
        text=text or "This text is no longer stored.",
        cuts=cuts,
        tokens=counted(size, "token"),
        width=f"{min(100 * size / max(whole, 1), 100):.1f}%",
    )


def range_words(first: int, last: int) -> str:
    """A range of messages for people."""
    return f"Message {first}" if first == last else f"Messages {first} to {last}"
