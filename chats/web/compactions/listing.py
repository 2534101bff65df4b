"""List of a chat's compactions: outcomes, pauses, and reasons none was created."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext, ngettext
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
from chats.web.compactions.view import (
    CompactionFigure,
    balance_figures,
    state_words,
)
from chats.web.drawing import drawing_time
from chats.web.reasons import WINDOW_REASONS, not_used_words
from chats.web.thread.compaction_request import notice_beside
from chats.web.thread.composer import meter_view
from chats.web.thread.rows import BranchUnderPolicy, Coverage, compactions_of, ground_of
from chats.web.thread.updates import seq_from
from chats.web.words import grouped

PAGE = 25
# Newest replies for which the page shows the compaction decision.
NEWEST_TURNS = 8
FAILED = Q(status__in=[Compaction.Status.REJECTED, Compaction.Status.FAILED])


@dataclass(frozen=True, slots=True)
class CompactionLine:
    """A compaction in the list: state, cause and numbers as text.

    `by` is empty for this server. `is_elsewhere`: it covers messages outside the chat's active
    branch.
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
    """Return the list rows, as seen from the chat's active branch."""
    path = segments(ground.branch)
    return [line_of(row, path=path, cover=ground.cover, user=user) for row in rows]


def line_of(
    row: Compaction, *, path: Sequence[PathSegment], cover: Coverage, user: User
) -> CompactionLine:
    """Return one list row."""
    kind, state = state_words(row, cover=cover)
    is_window = row.kind == Compaction.Kind.WINDOW
    reason = str(WINDOW_REASONS.get(row.reason, "")) if is_window else not_used_words(row.reason)
    after = grouped(row.tokens_after) if row.tokens_after else gettext("unknown")
    return CompactionLine(
        row=row,
        kind=kind,
        state=state,
        reason=reason,
        began=str(skip_reasons.TRIGGERS.get(row.trigger, row.trigger)),
        by=by_words(row.asked_by, user=user),
        tokens=f"≈ {grouped(row.tokens_before)} → {after}" if row.tokens_before else "",
        cost=balances.words(balances.cost_of(row)),
        is_elsewhere=not any(
            part.branch_id == row.branch_id and row.to_seq <= part.to for part in path
        ),
    )


def by_words(name: str, *, user: User) -> str:
    """Return which user started it; empty for this server."""
    if name == f"user:{user.pk}":
        return gettext("by you")
    return gettext("by another user") if name.startswith("user:") else ""


def figures_of(chat: Chat, *, cover: Coverage) -> list[CompactionFigure]:
    """Return the number of compactions, the covered range, and the total balance."""
    found = compactions_of(chat).aggregate(count=Count("pk"), failed=Count("pk", filter=FAILED))
    note = gettext("all succeeded")
    if failed := found["failed"]:
        note = ngettext("{n:,} attempt failed", "{n:,} attempts failed", failed).format(n=failed)
    figures = [CompactionFigure(gettext("Compactions"), grouped(found["count"]), note)]
    if cover.summary is not None:
        first, last = cover.summary.from_seq, cover.summary.to_seq
        covered = gettext("{first} to {last}").format(first=first, last=last)
        kept = gettext("the originals stay readable")
        figures.append(CompactionFigure(gettext("Messages summarised"), covered, kept))
    return [*figures, *balance_figures(balances.of_chat(chat))]


def decisions_on(branch: Branch) -> list[tuple[Turn, CompactionOutcome]]:
    """Return the newest finished turns of a branch with their compaction decisions."""
    over = branch.turns.filter(finished_at__isnull=False).exclude(status=Turn.Status.ABSORBED)
    return [
        (turn, skip_reasons.why_not(turn)) for turn in over.order_by("-accepted")[:NEWEST_TURNS]
    ]


def rests_of(chat: Chat) -> Rests | None:
    """Return pauses in the chat with their ends; None if its policy is unusable."""
    try:
        return skip_reasons.rests(chat=chat, now=timezone.now())
    except Refusal:
        return None
