"""What there is around a branch, in one statement, so that a page looks for nothing that is not.

Each part is a lookup in an index; together they cost the database as much as apart, and a page one
way there and back instead of ten.
"""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, Q, QuerySet, Subquery, Sum, Value

from chats.compaction.answers import READ
from chats.compaction.force import IN_THE_MAKING, summary_of
from chats.compaction.pauses import attempts_on
from chats.history import on_path
from chats.models import Branch, Compaction, Message, Turn
from chats.turns.start import UNFINISHED
from contextpolicy.models import AuditEvent

# States of a compaction that people are told about although it is not in force.
TOLD = [
    Compaction.Status.PREPARING,
    Compaction.Status.PREPARED,
    Compaction.Status.UNDONE,
    Compaction.Status.REJECTED,
    Compaction.Status.FAILED,
]
# A page adds up the tokens of at most so many folded messages.
MOST_SUMMED = 2000


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is around a branch.

    `branches` and `compactions`: how many the whole chat has. `making`: the state of the summary
    that is being written or waits, `attempt`: that of the newest finished attempt. `event`: the
    newest one that says something of a compaction that was asked for. `folded_tokens`: those of
    the messages that the summary in force stands for; None when they are too many to add.
    """

    last_seq: int
    branches: int
    compactions: int
    has_told: bool
    has_waiting: bool
    making: str | None
    attempt: str | None
    event: str | None
    pinned_tokens: int
    folded_tokens: int | None

    @property
    def may_have_answer(self) -> bool:
        """Whether something came of a compaction that was asked for, and no message since."""
        return self.event not in {None, "turn.started"}


def facts_on(branch: Branch) -> Facts:
    """The facts of a branch, its compaction in force already read."""
    making = branch.compactions.filter(status__in=IN_THE_MAKING).order_by("pk")
    events = AuditEvent.objects.filter(scope=f"chat:{branch.chat_id}", type__in=READ)
    pinned = on_path(branch, after=0, before=branch.last_seq + 1).filter(pinned_at__isnull=False)
    found = Branch.objects.filter(pk=branch.pk).values_list(
        "last_seq",
        number_of(Branch.objects.filter(chat=branch.chat_id)),
        number_of(Compaction.objects.filter(branch__chat=branch.chat_id)),
        Exists(told_rows(branch)),
        Exists(branch.messages.filter(seq=None)),
        Subquery(making.values("status")[:1]),
        Subquery(attempts_on(branch).values("status")[:1]),
        Subquery(events.order_by("-seq").values("type")[:1]),
        tokens_of(pinned),
        tokens_of(folded(branch, row=summary_of(branch.active_compaction))),
    )
    last, branches, compactions, told, waiting, *states, pins, summed = found.get()
    making_now, attempt, event = states
    return Facts(
        last_seq=last,
        branches=branches or 0,
        compactions=compactions or 0,
        has_told=told,
        has_waiting=waiting,
        making=making_now,
        attempt=attempt,
        event=event,
        pinned_tokens=pins or 0,
        folded_tokens=summed,
    )


def number_of(rows: QuerySet[Any]) -> Subquery:
    """How many rows, as part of another statement."""
    one = rows.order_by().annotate(all=Value(1)).values("all")
    return Subquery(one.annotate(number=Count("pk")).values("number"))


def tokens_of(rows: QuerySet[Message]) -> Subquery:
    """The tokens of messages, as part of another statement."""
    one = rows.order_by().annotate(all=Value(1)).values("all")
    return Subquery(one.annotate(tokens=Sum("token_count")).values("tokens"))


def folded_tokens(branch: Branch, *, row: Compaction | None) -> int | None:
    """The tokens of the messages that a summary stands for; None when they are too many to add."""
    total: int | None = folded(branch, row=row).aggregate(total=Sum("token_count"))["total"]
    return total


def folded(branch: Branch, *, row: Compaction | None) -> QuerySet[Message]:
    """The messages that a summary stands for; none when they are too many to add."""
    if row is None or row.to_seq - row.from_seq >= MOST_SUMMED:
        return Message.objects.none()
    rows = on_path(branch, after=row.from_seq - 1, before=row.to_seq + 1)
    return rows.exclude(seq__in=row.exceptions)


def told_rows(branch: Branch) -> QuerySet[Compaction]:
    """The compactions that are not in force and newer than the one that is."""
    rows = branch.compactions.filter(status__in=TOLD)
    active = branch.active_compaction
    if active is not None and active.published_at:
        rows = rows.filter(created_at__gt=active.published_at)
    return rows


def newest_turns(branch: Branch) -> list[Turn]:
    """A branch's unfinished turns, its last one and its last finished one, newest first.

    In one statement, so that a turn that ends meanwhile is either of them.
    """
    own = Turn.objects.filter(branch=branch).exclude(status=Turn.Status.ABSORBED)
    own = own.order_by("-accepted")
    last, finished = own.values("pk")[:1], own.filter(finished_at__isnull=False).values("pk")[:1]
    rows = own.filter(Q(status__in=UNFINISHED) | Q(pk__in=last) | Q(pk__in=finished))
    return list(rows.select_related("reply", "continues__reply", "effective_policy"))
