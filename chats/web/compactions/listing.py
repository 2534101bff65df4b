"""The list of a chat's compactions: outcomes, pauses, and why turns started none."""

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

from chats.compaction.cursor import get_summary_cursor
from chats.compaction.report import skip_reasons
from chats.compaction.report.skip_reasons import CompactionOutcome, CompactionPauses
from chats.counts import balances
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Compaction, Turn
from chats.record import access
from chats.record.history import PathSegment, list_path_segments
from chats.web.auth import PersonRequest, signed_in
from chats.web.compactions.view import (
    CompactionFigure,
    build_balance_figures,
    describe_compaction_state,
)
from chats.web.drawing import get_render_time_ms
from chats.web.reasons import WINDOW_REASONS, describe_unused_reason
from chats.web.thread.compaction_request import load_request_notice
from chats.web.thread.composer import build_meter_view
from chats.web.thread.rows import (
    BranchUnderPolicy,
    Coverage,
    load_branch_under_policy,
    select_chat_compactions,
)
from chats.web.thread.updates import parse_seq
from chats.web.words import format_number

PAGE = 25
# Newest replies for which the page shows the compaction decision.
NEWEST_TURNS = 8
FAILED = Q(status__in=[Compaction.Status.REJECTED, Compaction.Status.FAILED])


@dataclass(frozen=True, slots=True)
class CompactionLine:
    """A compaction in the list: state, cause and numbers as text.

    `by` names the user who started the compaction; it is empty if this server did.
    `is_elsewhere`: the compaction covers messages outside the chat's active branch.
    """

    row: Compaction
    kind: str
    status: str
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
    drawn_at = get_render_time_ms()
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    ground = load_branch_under_policy(chat=chat, user=request.user)
    page = max(parse_seq(request, "page") or 1, 1)
    rows = select_chat_compactions(chat)
    start = (page - 1) * PAGE
    found = list(
        rows.select_related("branch").order_by("-created_at", "-attempt")[start:][: PAGE + 1]
    )
    context = {
        "chat": chat,
        "lines": build_compaction_lines(found[:PAGE], ground=ground, user=request.user),
        "page": page,
        "newer": page - 1 if page > 1 else None,
        "older": page + 1 if len(found) > PAGE else None,
        "figures": build_overview_figures(chat, cover=ground.cover),
        "cursor": get_summary_cursor(ground.branch),
        "decisions": load_compaction_decisions(ground.branch),
        "rests": find_compaction_pauses(chat),
        "meter": build_meter_view(chat=chat),
        "locks": ground.locks,
        "answer": load_request_notice(ground.branch),
        "drawn_at": drawn_at,
        "notice": notice,
    }
    status = notice.status if notice else 200
    return render(request, "chats/compactions.html", context, status=status)


def build_compaction_lines(
    rows: Sequence[Compaction], *, ground: BranchUnderPolicy, user: User
) -> list[CompactionLine]:
    """Return the rows of the list, as seen from the chat's active branch."""
    path = list_path_segments(ground.branch)
    return [build_compaction_line(row, path=path, cover=ground.cover, user=user) for row in rows]


def build_compaction_line(
    row: Compaction, *, path: Sequence[PathSegment], cover: Coverage, user: User
) -> CompactionLine:
    kind, status, state = describe_compaction_state(row, cover=cover)
    is_window = row.kind == Compaction.Kind.WINDOW
    reason = (
        str(WINDOW_REASONS.get(row.reason, "")) if is_window else describe_unused_reason(row.reason)
    )
    after = format_number(row.tokens_after) if row.tokens_after else gettext("unknown")
    return CompactionLine(
        row=row,
        kind=kind,
        status=status,
        state=state,
        reason=reason,
        began=str(skip_reasons.TRIGGERS.get(row.trigger, row.trigger)),
        by=describe_starter(row.asked_by, user=user),
        tokens=f"≈ {format_number(row.tokens_before)} → {after}" if row.tokens_before else "",
        cost=balances.format_money(balances.calculate_compaction_cost(row)),
        is_elsewhere=not any(
            part.branch_id == row.branch_id and row.to_seq <= part.to for part in path
        ),
    )


def describe_starter(name: str, *, user: User) -> str:
    """Return “by you” or “by another user” for an actor of the ledger.

    Empty if this server started the compaction.
    """
    if name == f"user:{user.pk}":
        return gettext("by you")
    return gettext("by another user") if name.startswith("user:") else ""


def build_overview_figures(chat: Chat, *, cover: Coverage) -> list[CompactionFigure]:
    """Return the number of compactions, the covered range, and the total balance."""
    found = select_chat_compactions(chat).aggregate(
        count=Count("pk"), failed=Count("pk", filter=FAILED)
    )
    note = gettext("all succeeded")
    if failed := found["failed"]:
        note = ngettext("{n:,} attempt failed", "{n:,} attempts failed", failed).format(n=failed)
    figures = [CompactionFigure(gettext("Compactions"), format_number(found["count"]), note)]
    if cover.summary is not None:
        first, last = cover.summary.from_seq, cover.summary.to_seq
        covered = gettext("{first} to {last}").format(first=first, last=last)
        kept = gettext("the originals stay readable")
        figures.append(CompactionFigure(gettext("Messages summarised"), covered, kept))
    return [*figures, *build_balance_figures(balances.load_chat_balance(chat))]


def load_compaction_decisions(branch: Branch) -> list[tuple[Turn, CompactionOutcome]]:
    """Return the newest finished turns of a branch with their compaction decisions."""
    over = branch.turns.filter(finished_at__isnull=False).exclude(status=Turn.Status.ABSORBED)
    return [
        (turn, skip_reasons.explain_skipped_compaction(turn))
        for turn in over.order_by("-accepted")[:NEWEST_TURNS]
    ]


def find_compaction_pauses(chat: Chat) -> CompactionPauses | None:
    """Return the active compaction pauses of the chat with their end times.

    None if the chat's policy is unusable.
    """
    try:
        return skip_reasons.get_active_pauses(chat=chat, now=timezone.now())
    except Refusal:
        return None
