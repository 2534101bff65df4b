"""The "Prompt receipt" page: every model call of a turn."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext, ngettext
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
from chats.web.words import grouped, token_count
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.resolution import values_of

# CSS colour by origin. Other origins have the colour of history.
COLOURS = {"system": "system", "tools": "system", "summary": "summary", "pin": "pins"}


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A prompt segment, in sending order."""

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
    """A headline number with a label and a note."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """A model call."""

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
    """Show every model call of a turn: segments, omissions with reasons, and budget."""
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
    """Return the turn's receipts for display. Two more queries load all texts."""
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
    """Return one receipt for display."""
    values = values_of(row.effective_policy)
    has_form = any(note.startswith(f"{PROMPT_FORM}:") for note in row.notes)
    # A text form is one block of text including the question, like layout A.
    layout = "A" if has_form else values.layout
    kind, outcome = CALL_OUTCOMES[Receipt.Outcome(row.outcome)]
    placed = places([str(segment[0]) for segment in row.segments], layout=layout)
    return ReceiptView(
        receipt=row,
        title=title_of(row, many=many),
        outcome=(kind, str(outcome)),
        figures=figures_of(row),
        layout="" if has_form else str(LAYOUTS.get(values.layout, "")),
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


def title_of(row: Receipt, *, many: bool) -> str:
    """Return the heading of a call; `many`: the turn has several."""
    if row.purpose == "title":
        return gettext("The chat's title")
    if row.purpose == "preferences":
        return gettext("Inferred preferences")
    if row.purpose == "warm_up":
        title = gettext("Cache warm-up {call}: the next prompt without its question")
        return title.format(call=row.call)
    if not many:
        return gettext("The call")
    if row.purpose == "reply":
        title = gettext("Call {call}, step {step}, attempt {attempt}")
    else:
        title = gettext("Call for the state, step {step}, attempt {attempt}")
    return title.format(call=row.call, step=row.step, attempt=row.attempt)


def figures_of(row: Receipt) -> list[ReceiptFigure]:
    """Return the numbers of the budget with their sources."""
    budget = row.budget
    left = sum(last - first + 1 for first, last, _ in row.left_out)
    note = gettext("{budget:,} budget − {reserve:,} reply").format(
        budget=budget["token_budget"], reserve=budget["reserve"]
    )
    size, limit = f"≈ {grouped(row.prompt_tokens)}", grouped(budget["prompt_limit"])
    reasons = gettext("messages, reasons below") if left else gettext("none")
    figures = [
        ReceiptFigure(gettext("Sent"), size, gettext("tokens, our count")),
        ReceiptFigure(gettext("Limit for the prompt"), limit, note),
        ReceiptFigure(gettext("Left out"), grouped(left), reasons),
    ]
    factor = budget.get("calibration", 1.0)
    if factor != 1:
        note = gettext("our count × {factor:.3f}, learned from this model's replies")
        estimate = f"≈ {grouped(round(row.prompt_tokens * factor))}"
        label = gettext("Estimated for the provider")
        figures.insert(1, ReceiptFigure(label, estimate, note.format(factor=factor)))
    if counted_there := row.usage.get("input"):
        note = cache_words(row.usage.get("cached", 0), row.usage.get("written", 0))
        label = gettext("Counted by the provider")
        figures.insert(-2, ReceiptFigure(label, grouped(counted_there), note))
    return figures


def cache_words(cached: int, written: int) -> str:
    """Return a note about tokens the provider read from and wrote to its cache."""
    if cached and written:
        words = gettext(
            "{cached:,} of them from its cache, {written:,} of them written to its cache"
        )
    elif cached:
        words = gettext("{cached:,} of them from its cache")
    elif written:
        words = gettext("{written:,} of them written to its cache")
    else:
        words = gettext("none of them cached")
    return words.format(cached=cached, written=written)


def segment_view(
    number: int,
    segment: Sequence[object],
    *,
    place: str,
    sources: SegmentSources,
    values: PolicyValues,
    whole: int,
) -> SegmentView:
    """Return one segment with text, size and source. Hidden or deleted texts are replaced."""
    origin, label, seq, tokens, _, digest, _ = segment
    size = int(str(tokens))
    message = sources.messages.get(str(label))
    if message is not None:
        text, cuts = text_sent(message, segment, values=values, view=sources.view)
    else:
        text, cuts = sources.texts.get(str(digest or label), ""), ()
    origin_words = str(ORIGINS.get(str(origin), origin))
    if sources.view is not None and origin == "question":
        # Written by another agent or the user.
        origin_words = gettext("Newest message")
    # Users always see the system text they wrote for their own chat.
    if values.hide_system_text and origin == "system" and label != "chat":
        text = ngettext(
            "The policy hides this text. {n:,} character, stored as {digest}",
            "The policy hides this text. {n:,} characters, stored as {digest}",
            len(text),
        ).format(n=len(text), digest=digest)
    return SegmentView(
        number=number,
        origin=origin_words,
        colour=COLOURS.get(str(origin), "history"),
        where=gettext("Message {seq}").format(seq=seq) if seq else str(PARTS.get(str(label), "")),
        place=place,
        text=text or gettext("This text is no longer stored."),
        cuts=cuts,
        tokens=token_count(size),
        width=f"{min(100 * size / max(whole, 1), 100):.1f}%",
    )


def range_words(first: int, last: int) -> str:
    """Return the label of a range of messages."""
    if first == last:
        return gettext("Message {seq}").format(seq=first)
    return gettext("Messages {first} to {last}").format(first=first, last=last)
