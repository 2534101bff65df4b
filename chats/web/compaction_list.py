"""All compactions of a chat: what became of each, what rests now, and why there were none."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count, Q, Sum
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from chats import access
from chats.compaction import outcomes
from chats.compaction.outcomes import Outcome, Rests
from chats.history import Segment, segments
from chats.models import Branch, Chat, Compaction, Turn
from chats.refusals import Refusal
from chats.web.answer_view import answer_beside
from chats.web.compaction_view import Figure, person, state_words
from chats.web.composer import meter_view
from chats.web.doors import PersonRequest, signed_in
from chats.web.rows import Cover, Ground, compactions_of, ground_of
from chats.web.seams import WINDOW_REASONS, reason_words
from chats.web.tails import seq_from
from chats.web.words import counted, grouped
from contextpolicy.engine.budget import BudgetRefusal

PAGE = 25
# Replies that are looked at for why they were followed by no compaction.
NEWEST_TURNS = 8
FAILED = Q(status__in=[Compaction.Status.REJECTED, Compaction.Status.FAILED])


@dataclass(frozen=True, slots=True)
class Line:
    """One compaction: its state, its cause and its numbers, in words.

    `is_elsewhere`: it covers messages that do not stand on the chat's active branch.
    """

    row: Compaction
    kind: str
    state: str
    reason: str
    began: str
    by: str
    tokens: str
    cost: str
    is_elsewhere: bool


@require_GET
@signed_in
def compactions(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """The compactions of a chat, newest first."""
    return list_response(request, chat_id)


def list_response(
    request: PersonRequest, chat_id: uuid.UUID, *, notice: Refusal | None = None
) -> HttpResponse:
    """The page; `notice` is the refusal of what was asked on it."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    ground = ground_of(chat=chat, user=request.user)
    page = max(seq_from(request, "page") or 1, 1)
    rows = compactions_of(chat)
    start = (page - 1) * PAGE
    found = list(
        rows.select_related("branch").order_by("-created_at", "-attempt")[start:][: PAGE + 1]
    )
    context = {
        "chat": chat,
        "lines": lines_of(found[:PAGE], ground=ground, user=request.user),
        "page": page,
        "newer": page - 1 if page > 1 else None,
        "older": page + 1 if len(found) > PAGE else None,
        "figures": figures_of(chat, cover=ground.cover),
        "decisions": decisions_on(ground.branch),
        "rests": rests_of(chat),
        "meter": meter_view(chat=chat),
        "locks": ground.locks,
        "answer": answer_beside(ground.branch, number=(seq_from(request, "look") or 0) + 1),
        "notice": notice,
    }
    status = notice.status if notice else 200
    return render(request, "chats/compactions.html", context, status=status)


def lines_of(rows: Sequence[Compaction], *, ground: Ground, user: User) -> list[Line]:
    """The rows in words, as seen from the chat's active branch."""
    path = segments(ground.branch)
    return [line_of(row, path=path, cover=ground.cover, user=user) for row in rows]


def line_of(row: Compaction, *, path: Sequence[Segment], cover: Cover, user: User) -> Line:
    """One row in words."""
    kind, state = state_words(row, cover=cover)
    is_window = row.kind == Compaction.Kind.WINDOW
    reason = WINDOW_REASONS.get(row.reason, "") if is_window else reason_words(row.reason)
    after = grouped(row.tokens_after) if row.tokens_after else "unknown"
    return Line(
        row=row,
        kind=kind,
        state=state,
        reason=reason,
        began=outcomes.TRIGGERS.get(row.trigger, row.trigger),
        by=person(row.asked_by, user=user),
        tokens=f"≈ {grouped(row.tokens_before)} → {after}" if row.tokens_before else "",
        cost=f"{row.cost:.4f}" if row.cost is not None else "",
        is_elsewhere=not any(
            part.branch_id == row.branch_id and row.to_seq <= part.to for part in path
        ),
    )


def figures_of(chat: Chat, *, cover: Cover) -> list[Figure]:
    """How many there are, what is summed up now, and what all of them cost."""
    found = compactions_of(chat).aggregate(
        count=Count("pk"), cost=Sum("cost"), failed=Count("pk", filter=FAILED)
    )
    failed = counted(found["failed"], "attempt") + " came to nothing" if found["failed"] else ""
    figures = [Figure("Compactions", grouped(found["count"]), failed or "all of them succeeded")]
    if cover.summary is not None:
        stands = f"{cover.summary.from_seq} to {cover.summary.to_seq}"
        figures.append(Figure("Messages summarised now", stands, "the originals stay readable"))
    cost, note = "no price set", "so the cost is not known"
    if found["cost"] is not None:
        cost, note = f"{found['cost']:.4f}", "all attempts, apart from replies"
    return [*figures, Figure("Cost", cost, note)]


def decisions_on(branch: Branch) -> list[tuple[Turn, Outcome]]:
    """The newest finished turns of a branch, each with what was decided after it."""
    over = branch.turns.filter(finished_at__isnull=False).exclude(status=Turn.Status.ABSORBED)
    return [(turn, outcomes.why_not(turn)) for turn in over.order_by("-accepted")[:NEWEST_TURNS]]


def rests_of(chat: Chat) -> Rests | None:
    """What rests in the chat, and until when; None where its policy cannot be used."""
    try:
        return outcomes.rests(chat=chat, now=timezone.now())
    except (Refusal, BudgetRefusal):
        return None
