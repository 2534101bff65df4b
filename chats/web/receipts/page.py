"""The page "What the model saw": the receipts of a turn for people."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.compaction.report.skip_reasons import why_not
from chats.memory import references
from chats.models import Receipt, Turn
from chats.prompt.agents import PROMPT_FORM, view_for
from chats.prompt.sent_texts import SegmentSources, sources_of
from chats.record import access
from chats.web.auth import PersonRequest, signed_in
from chats.web.reasons import CALL_OUTCOMES, LAYOUTS, ORIGINS, PARTS, left_out_words
from chats.web.receipts.texts import text_sent
from chats.web.receipts.wording import adjusted_words, note_words, places
from chats.web.words import counted, grouped
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.resolution import values_of

# The design's colours by origin; an origin that is missing has the colour of history.
COLOURS = {"system": "system", "tools": "system", "summary": "summary", "pin": "pins"}
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
class ReceiptFigure:
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
    figures: Sequence[ReceiptFigure]
    layout: str
    segments: Sequence[SegmentView]
    left_out: Sequence[tuple[str, str]]
    notes: Sequence[str]


@require_GET
@signed_in
def receipt(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Show every model call of a turn: what was sent, what was left out and why, and its budget."""
    turn = access.turn_for(user=request.user, chat_id=chat_id, turn_id=turn_id)
    context = {
        "chat": turn.branch.chat,
        "turn": turn,
        "calls": calls_of(turn),
        "outcome": why_not(turn) if turn.is_over else None,
        "references": references.of_turn(turn.pk, owner_id=turn.branch.chat.owner_id),
    }
    return render(request, "chats/receipt.html", context)


def calls_of(turn: Turn) -> list[ReceiptView]:
    """Return the turn's receipts for people, with two more queries for all their texts."""
    rows = list(
        turn.receipts.select_related("effective_policy", "compaction").order_by(
            "attempt", "step", "call"
        )
    )
    rows.sort(key=lambda row: row.step == Receipt.AFTERWARDS)
    sources = replace(sources_of(rows), view=view_for(turn))
    many = sum(row.step != Receipt.AFTERWARDS for row in rows) > 1
    return [view_of(row, sources=sources, many=many) for row in rows]


def view_of(row: Receipt, *, sources: SegmentSources, many: bool) -> ReceiptView:
    """Return one receipt for people."""
    what = f"Call {row.call}" if row.purpose == "reply" else "Call for the state"
    title = f"{what}, step {row.step}, attempt {row.attempt}" if many else "The call"
    if row.purpose == "title":
        title = "The chat's title"
    if row.purpose == "preferences":
        title = "What holds of the person beyond this chat"
    if row.purpose == "warm_up":
        title = f"Warm-up {row.call}: the next prompt without its question, read ahead"
    values = values_of(row.effective_policy)
    has_form = any(note.startswith(f"{PROMPT_FORM}:") for note in row.notes)
    # A text form is one block of text with the question, as in layout A.
    layout = "A" if has_form else values.layout
    placed = places([str(segment[0]) for segment in row.segments], layout=layout)
    return ReceiptView(
        receipt=row,
        title=title,
        outcome=CALL_OUTCOMES[Receipt.Outcome(row.outcome)],
        figures=figures_of(row),
        layout="" if has_form else LAYOUTS.get(values.layout, ""),
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
            (range_words(first, last), left_out_words(reason))
            for first, last, reason in row.left_out
        ],
        notes=[*adjusted_words(row.effective_policy.adjusted), *note_words(row.notes)],
    )


def figures_of(row: Receipt) -> list[ReceiptFigure]:
    """Return the numbers of the budget, each with where it comes from."""
    budget = row.budget
    left = sum(last - first + 1 for first, last, _ in row.left_out)
    note = f"{grouped(budget['token_budget'])} budget − {grouped(budget['reserve'])} reply"
    figures = [
        ReceiptFigure("Sent", f"≈ {grouped(row.prompt_tokens)}", "tokens, our count"),
        ReceiptFigure("Limit for the prompt", grouped(budget["prompt_limit"]), note),
        ReceiptFigure("Left out", grouped(left), "messages, reasons below" if left else "nothing"),
    ]
    factor = budget.get("calibration", 1.0)
    if factor != 1:
        note = f"our count × {factor:.3f}, learned from this model's replies"
        estimate = f"≈ {grouped(round(row.prompt_tokens * factor))}"
        figures.insert(1, ReceiptFigure("Estimated for the provider", estimate, note))
    if counted_there := row.usage.get("input"):
        note = cache_words(row.usage.get("cached", 0), row.usage.get("written", 0))
        figures.insert(-2, ReceiptFigure("Counted by the provider", grouped(counted_there), note))
    return figures


def cache_words(cached: int, written: int) -> str:
    """Say how many tokens of a prompt the provider read from its cache, and wrote to it."""
    said = [f"{grouped(cached)} of them from its cache"] if cached else []
    said += [f"{grouped(written)} of them written to its cache"] if written else []
    return ", ".join(said) or "the whole prompt"


def segment_view(
    number: int,
    segment: Sequence[object],
    *,
    place: str,
    sources: SegmentSources,
    values: PolicyValues,
    whole: int,
) -> SegmentView:
    """Return one segment: its text if it is still stored and may be shown, its size, its source."""
    origin, label, seq, tokens, _, digest, _ = segment
    size = int(str(tokens))
    message = sources.messages.get(str(label))
    if message is not None:
        text, cuts = text_sent(message, segment, values=values, view=sources.view)
    else:
        text, cuts = sources.texts.get(str(digest or label), ""), ()
    origin_words = ORIGINS.get(str(origin), str(origin))
    if sources.view is not None and origin == "question":
        # A mate's, or the person's.
        origin_words = "Newest message"
    # A text that a person wrote for their own chat is not hidden from them.
    if values.hide_system_text and origin == "system" and label != "chat":
        text = f"{HIDDEN} {counted(len(text), 'character')}, kept as {digest}"
    return SegmentView(
        number=number,
        origin=origin_words,
        colour=COLOURS.get(str(origin), "history"),
        where=f"Message {seq}" if seq else PARTS.get(str(label), ""),
        place=place,
        text=text or "This text is no longer stored.",
        cuts=cuts,
        tokens=counted(size, "token"),
        width=f"{min(100 * size / max(whole, 1), 100):.1f}%",
    )


def range_words(first: int, last: int) -> str:
    """Return a range of messages for people."""
    return f"Message {first}" if first == last else f"Messages {first} to {last}"
