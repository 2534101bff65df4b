"""Counts and flags of a branch in one statement, so that a page can skip unneeded queries.

Each part is an index lookup. The total database cost is the same, but the page waits for one round
trip instead of ten.
"""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, Q, QuerySet, Subquery, Sum, Value

from chats.compaction.coverage import IN_THE_MAKING, get_active_summary
from chats.compaction.pauses import list_counted_attempts
from chats.models import Branch, Compaction, Message, Turn
from chats.models.turns import UNFINISHED
from chats.record.history import select_path_messages

# Statuses of compactions that are shown although they are not active.
INACTIVE_STATUSES = [
    Compaction.Status.PREPARING,
    Compaction.Status.PREPARED,
    Compaction.Status.UNDONE,
    Compaction.Status.REJECTED,
    Compaction.Status.FAILED,
]
# Maximum number of covered messages whose tokens a page adds up.
MOST_SUMMED = 2000


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """Counts and flags of a branch.

    `branches` and `compactions`: totals of the chat. `making`: status of the summary in progress or
    pending. `attempt`: status of the newest finished attempt. `covered_tokens`: tokens of the
    messages that the active summary covers; None if there is no summary, or if it covers too many
    messages to add up.
    """

    last_seq: int
    branches: int
    compactions: int
    has_inactive: bool
    has_waiting: bool
    making: str | None
    attempt: str | None
    pinned_tokens: int
    covered_tokens: int | None


def load_branch_facts(branch: Branch) -> BranchFacts:
    """Return the facts of a branch whose active compaction is loaded."""
    making = branch.compactions.filter(status__in=IN_THE_MAKING).order_by("pk")
    pinned = select_path_messages(branch, after=0, before=branch.last_seq + 1).filter(
        pinned_at__isnull=False
    )
    found = Branch.objects.filter(pk=branch.pk).values_list(
        "last_seq",
        build_count_subquery(Branch.objects.filter(chat=branch.chat_id)),
        build_count_subquery(Compaction.objects.filter(branch__chat=branch.chat_id)),
        Exists(select_inactive_compactions(branch)),
        Exists(branch.messages.filter(seq=None)),
        Subquery(making.values("status")[:1]),
        Subquery(list_counted_attempts(branch).values("status")[:1]),
        build_token_subquery(pinned),
        build_token_subquery(
            select_covered_messages(branch, row=get_active_summary(branch.active_compaction))
        ),
    )
    last, branches, compactions, inactive, waiting, making_now, attempt, pins, summed = found.get()
    return BranchFacts(
        last_seq=last,
        branches=branches or 0,
        compactions=compactions or 0,
        has_inactive=inactive,
        has_waiting=waiting,
        making=making_now,
        attempt=attempt,
        pinned_tokens=pins or 0,
        covered_tokens=summed,
    )


def build_count_subquery(rows: QuerySet[Any]) -> Subquery:
    one = rows.order_by().annotate(all=Value(1)).values("all")
    return Subquery(one.annotate(number=Count("pk")).values("number"))


def build_token_subquery(rows: QuerySet[Message]) -> Subquery:
    one = rows.order_by().annotate(all=Value(1)).values("all")
    return Subquery(one.annotate(tokens=Sum("token_count")).values("tokens"))


def sum_covered_tokens(branch: Branch, *, row: Compaction | None) -> int | None:
    """Return the token count of the messages that a summary covers.

    None if there is no summary or it covers too many messages.
    """
    total: int | None = select_covered_messages(branch, row=row).aggregate(
        total=Sum("token_count")
    )["total"]
    return total


def select_covered_messages(branch: Branch, *, row: Compaction | None) -> QuerySet[Message]:
    """Return the messages that a summary covers; empty if there are too many to add up."""
    if row is None or row.to_seq - row.from_seq >= MOST_SUMMED:
        return Message.objects.none()
    rows = select_path_messages(branch, after=row.from_seq - 1, before=row.to_seq + 1)
    return rows.exclude(seq__in=row.exceptions)


def select_inactive_compactions(branch: Branch) -> QuerySet[Compaction]:
    """Return inactive compactions that are newer than the active one."""
    rows = branch.compactions.filter(status__in=INACTIVE_STATUSES)
    active = branch.active_compaction
    if active is not None and active.published_at:
        rows = rows.filter(created_at__gt=active.published_at)
    return rows


def load_newest_turns(branch: Branch) -> list[Turn]:
    """Return a branch's unfinished turns, its newest turn and its newest finished turn.

    The newest turn comes first. One statement reads all turns, so a turn that ends at the
    same time appears once.
    """
    own = Turn.objects.filter(branch=branch).exclude(status=Turn.Status.ABSORBED)
    own = own.order_by("-accepted")
    last, finished = own.values("pk")[:1], own.filter(finished_at__isnull=False).values("pk")[:1]
    rows = own.filter(Q(status__in=UNFINISHED) | Q(pk__in=last) | Q(pk__in=finished))
    return list(rows.select_related("reply", "continues__reply", "effective_policy"))
