"""The "Prompt receipt" page: every model call of a turn."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext, ngettext
from django.views.decorators.http import require_GET

from chats.compaction.report.skip_reasons import explain_skipped_compaction
from chats.files.sent_excerpts import list_sent_excerpts
from chats.memory.search import references
from chats.models import Receipt, Turn
from chats.prompt.agents import PROMPT_FORM, load_agent_view
from chats.prompt.sent_texts import SegmentSources, load_receipt_sources
from chats.record import access
from chats.web.auth import PersonRequest, signed_in
from chats.web.reasons import describe_omission_reason
from chats.web.receipt_labels import CALL_OUTCOMES, LAYOUTS, ORIGINS, PARTS
from chats.web.receipts.texts import get_segment_text
from chats.web.receipts.wording import describe_adjusted_values, describe_segment_places, note_words
from chats.web.words import format_number, format_token_count
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.resolution import load_policy_values

# CSS colour by origin. Other origins have the colour of history.
COLOURS = {"system": "system", "tools": "system", "summary": "summary", "pin": "pins"}


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A prompt segment for display."""

    number: int
    origin: str
    colour: str
    where: str
    place: str
    text: str
    is_lost: bool
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
    receipt: Receipt
    title: str
    outcome: tuple[str, str]
    figures: Sequence[ReceiptFigure]
    layout: str
    layout_code: str
    segments: Sequence[SegmentView]
    left_out: Sequence[tuple[str, str, str]]
    notes: Sequence[str]


@require_GET
@signed_in
def receipt(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Show every model call of a turn: segments, omissions with reasons, and budget."""
    turn = access.get_turn(user=request.user, chat_id=chat_id, turn_id=turn_id)
    context = {
        "chat": turn.branch.chat,
        "turn": turn,
        "calls": build_receipt_views(turn),
        "outcome": explain_skipped_compaction(turn) if turn.is_over else None,
        "tool_calls": turn.tool_calls.defer("content").order_by("step", "place"),
        "file_excerpts": list_sent_excerpts(turn),
        "references": references.load_turn_references(turn.pk, owner_id=turn.branch.chat.owner_id),
    }
    return render(request, "chats/receipt.html", context)


def build_receipt_views(turn: Turn) -> list[ReceiptView]:
    """Return the turn's receipts for display. Loads all texts in two more queries."""
    rows = list(
        turn.receipts.select_related("effective_policy", "compaction").order_by(
            "attempt", "step", "call"
        )
    )
    rows.sort(key=lambda row: row.step == Receipt.AFTERWARDS)
    sources = replace(load_receipt_sources(rows), view=load_agent_view(turn))
    many = sum(row.step != Receipt.AFTERWARDS for row in rows) > 1
    return [build_receipt_view(row, sources=sources, many=many) for row in rows]


def build_receipt_view(row: Receipt, *, sources: SegmentSources, many: bool) -> ReceiptView:
    values, sources = load_policy_values(row.effective_policy), sources.with_notes(row.notes)
    has_form = any(note.startswith(f"{PROMPT_FORM}:") for note in row.notes)
    # A text form is one block of text including the question, like layout A.
    layout = "A" if has_form else values.layout
    kind, outcome = CALL_OUTCOMES[Receipt.Outcome(row.outcome)]
    placed = describe_segment_places([str(segment[0]) for segment in row.segments], layout=layout)
    return ReceiptView(
        receipt=row,
        title=format_receipt_title(row, many=many),
        outcome=(kind, str(outcome)),
        figures=build_receipt_figures(row),
        layout="" if has_form else str(LAYOUTS.get(values.layout, "")),
        layout_code=values.layout,
        segments=[
            build_segment_view(
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
            (format_message_range(first, last), describe_omission_reason(reason), reason)
            for first, last, reason in row.left_out
        ],
        notes=[*describe_adjusted_values(row.effective_policy.adjusted), *note_words(row.notes)],
    )


def format_receipt_title(row: Receipt, *, many: bool) -> str:
    """Return the heading of a call. `many` is True if the turn has several calls."""
    if row.purpose == "title":
        return gettext("The chat’s title")
    if row.purpose == "preferences":
        return gettext("Inferred preferences")
    if row.purpose == "warm_up":
        title = gettext("Cache warm-up {call}: the next prompt without a question")
        return title.format(call=row.call)
    if not many:
        return gettext("Model call")
    if row.purpose == "reply":
        title = gettext("Call {call}, step {step}, attempt {attempt}")
    else:
        title = gettext("State extraction, step {step}, attempt {attempt}")
    return title.format(call=row.call, step=row.step, attempt=row.attempt)


def build_receipt_figures(row: Receipt) -> list[ReceiptFigure]:
    """Return the numbers of the token budget with their sources."""
    budget = row.budget
    left = sum(last - first + 1 for first, last, _ in row.left_out)
    note = gettext("{budget:,} budget − {reserve:,} reply").format(
        budget=budget["token_budget"], reserve=budget["reserve"]
    )
    size, limit = f"≈ {format_number(row.prompt_tokens)}", format_number(budget["prompt_limit"])
    reasons = (
        ngettext("message (reason below)", "messages (reasons below)", left)
        if left
        else gettext("none")
    )
    figures = [
        ReceiptFigure(gettext("Sent"), size, gettext("tokens, counted by the local tokenizer")),
        ReceiptFigure(gettext("Prompt limit"), limit, note),
        ReceiptFigure(gettext("Left out"), format_number(left), reasons),
    ]
    factor = budget.get("calibration", 1.0)
    if factor != 1:
        note = gettext("local count × {factor:.3f}, learned from this model’s replies")
        estimate = f"≈ {format_number(round(row.prompt_tokens * factor))}"
        label = gettext("Estimated provider count")
        figures.insert(1, ReceiptFigure(label, estimate, note.format(factor=factor)))
    if counted_there := row.usage.get("input"):
        note = describe_cache_tokens(row.usage.get("cached", 0), row.usage.get("written", 0))
        label = gettext("Counted by the provider")
        figures.insert(-2, ReceiptFigure(label, format_number(counted_there), note))
    return figures


def describe_cache_tokens(cached: int, written: int) -> str:
    """Return a note about the tokens that the provider read from and wrote to its cache."""
    if cached and written:
        words = gettext("{cached:,} read from the cache, {written:,} written to the cache")
    elif cached:
        words = gettext("{cached:,} read from the cache")
    elif written:
        words = gettext("{written:,} written to the cache")
    else:
        words = gettext("none read from the cache")
    return words.format(cached=cached, written=written)


def build_segment_view(
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
        text, cuts = get_segment_text(message, segment, values=values, sources=sources)
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
        is_lost=not text,
        cuts=cuts,
        tokens=format_token_count(size),
        width=f"{min(100 * size / max(whole, 1), 100):.1f}%",
    )


def format_message_range(first: int, last: int) -> str:
    """Return the localized label of a range of messages: “Message 5” or “Messages 5 to 9”."""
    if first == last:
        return gettext("Message {seq}").format(seq=first)
    return gettext("Messages {first} to {last}").format(first=first, last=last)
