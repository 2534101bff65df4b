"""The list of a chat's compactions: the outcome of each, what rests now, why there were none."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from chats.compaction.cursor import cursor_of
from chats.compaction.report import skip_reasons
from chats.compaction.report.skip_reasons import CompactionOutcome, Rests
from chats.counts import balances
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Compaction, Turn
from chats.record import access
from chats.record.history import PathSegment, segments
from chats.web.auth import PersonRequest, signed_in
from chats.web.compactions.view import CompactionFigure, balance_figures, person, state_words
from chats.web.drawing import drawing_time
from chats.web.reasons import WINDOW_REASONS, not_used_words
from chats.web.thread.compaction_request import notice_beside
from chats.web.thread.composer import meter_view
from chats.web.thread.rows import BranchUnderPolicy, Coverage, compactions_of, ground_of
from chats.web.thread.updates import seq_from
from chats.web.words import counted, grouped

PAGE = 25
# The newest replies for which the page says why no compaction followed.
NEWEST_TURNS = 8
FAILED = Q(status__in=[Compaction.Status.REJECTED, Compaction.Status.FAILED])


@dataclass(frozen=True, slots=True)
class CompactionLine:
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
    """Show the compactions of a chat, newest first."""
    return list_response(request, chat_id)


def list_response(
    request: PersonRequest, chat_id: uuid.UUID, *, notice: Refusal | None = None
) -> HttpResponse:
    """Render the page; `notice` is the refusal of an action on it."""
    drawn_at = drawing_time()
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
        "cursor": cursor_of(ground.branch),
        "decisions": decisions_on(ground.branch),
        "rests": rests_of(chat),
        "meter": meter_view(chat=chat),
        "locks": ground.locks,
        "answer": notice_beside(ground.branch),
        "drawn_at": drawn_at,
        "notice": notice,
    }
    status = notice.status if notice else 200
    return render(request, "chats/compactions.html", context, status=status)


def lines_of(
    rows: Sequence[Compaction], *, ground: BranchUnderPolicy, user: User
) -> list[CompactionLine]:
    """Return the rows in words, as seen from the chat's active branch."""
    path = segments(ground.branch)
    return [line_of(row, path=path, cover=ground.cover, user=user) for row in rows]


def line_of(
    row: Compaction, *, path: Sequence[PathSegment], cover: Coverage, user: User
) -> CompactionLine:
    """Return one row in words."""
    kind, state = state_words(row, cover=cover)
    is_window = row.kind == Compaction.Kind.WINDOW
    reason = WINDOW_REASONS.get(row.reason, "") if is_window else not_used_words(row.reason)
    after = grouped(row.tokens_after) if row.tokens_after else "unknown"
    return CompactionLine(
        row=row,
        kind=kind,
        state=state,
        reason=reason,
        began=skip_reasons.TRIGGERS.get(row.trigger, row.trigger),
        by=person(row.asked_by, user=user),
        tokens=f"≈ {grouped(row.tokens_before)} → {after}" if row.tokens_before else "",
        cost=balances.words(balances.cost_of(row)),
        is_elsewhere=not any(
            part.branch_id == row.branch_id and row.to_seq <= part.to for part in path
        ),
    )


def figures_of(chat: Chat, *, cover: Coverage) -> list[CompactionFigure]:
    """Return how many there are, what is summarised now, and what all of them brought."""
    found = compactions_of(chat).aggregate(count=Count("pk"), failed=Count("pk", filter=FAILED))
    failed = counted(found["failed"], "attempt") + " came to nothing" if found["failed"] else ""
    figures = [
        CompactionFigure("Compactions", grouped(found["count"]), failed or "all of them succeeded")
    ]
    if cover.summary is not None:
        stands = f"{cover.summary.from_seq} to {cover.summary.to_seq}"
        figures.append(
            CompactionFigure("Messages summarised now", stands, "the originals stay readable")
        )
    return [*figures, *balance_figures(balances.of_chat(chat))]


def decisions_on(branch: Branch) -> list[tuple[Turn, CompactionOutcome]]:
    """Return the newest finished turns of a branch, each with what was decided after it."""
    over = branch.turns.filter(finished_at__isnull=False).exclude(status=Turn.Status.ABSORBED)
    return [
        (turn, skip_reasons.why_not(turn)) for turn in over.order_by("-accepted")[:NEWEST_TURNS]
    ]


def rests_of(chat: Chat) -> Rests | None:
    """Return what rests in the chat, and until when; None if its policy cannot be used."""
    try:
        return skip_reasons.rests(chat=chat, now=timezone.now())
    except Refusal:
        return None
