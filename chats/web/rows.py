"""The rows behind one page of a thread, in a bounded number of queries."""

from dataclasses import dataclass

from django.db.models import Q

from chats.history import on_path
from chats.models import Branch, Chat, Compaction, Message, Receipt, Turn
from chats.turns.start import UNFINISHED

PAGE = 60
# States of a compaction that people are told about although it is not in force.
TOLD = [
    Compaction.Status.PREPARING,
    Compaction.Status.PREPARED,
    Compaction.Status.UNDONE,
    Compaction.Status.REJECTED,
    Compaction.Status.FAILED,
]
# What a prompt leaves out for want of room; the other reasons stand in the message's own row.
FOR_ROOM = {"window", "budget", "turn_split"}


@dataclass(frozen=True, slots=True)
class Cover:
    """What of the path the compaction in force stands for."""

    active: Compaction | None
    summary: Compaction | None
    to_seq: int
    window_to: int
    exceptions: frozenset[int]


@dataclass(slots=True)
class Rows:
    """The rows of one page; `left_out` as (from seq, to seq, reason)."""

    messages: list[Message]
    waiting: list[Message]
    turns: list[Turn]
    last_turn: Turn | None
    told: list[Compaction]
    left_out: list[tuple[int, int, str]]
    has_earlier: bool

    @property
    def running(self) -> Turn | None:
        """The turn that is being worked on, else the one that is next."""
        unfinished = [turn for turn in self.turns if not turn.is_over]
        running = [turn for turn in unfinished if turn.status == Turn.Status.RUNNING]
        return next(iter(running or unfinished), None)


def branch_of(chat: Chat) -> Branch:
    """The chat's active branch with the compaction in force."""
    if chat.active_branch_id is None:
        raise ValueError(f"chat {chat.pk} has no branch")
    rows = Branch.objects.select_related("parent", "active_compaction__base")
    return rows.get(pk=chat.active_branch_id)


def cover_of(branch: Branch) -> Cover:
    """The summary and the window in force on a branch."""
    active = branch.active_compaction
    is_window = active is not None and active.kind == Compaction.Kind.WINDOW
    summary = active.base if active and is_window else active
    return Cover(
        active=active,
        summary=summary,
        to_seq=summary.to_seq if summary else 0,
        window_to=active.to_seq if active and is_window else 0,
        exceptions=frozenset(summary.exceptions) if summary else frozenset(),
    )


def load(branch: Branch, *, cover: Cover, after: int, before: int | None) -> Rows:
    """The newest `PAGE` messages with `after` < seq < `before`, and what belongs to them."""
    end = branch.last_seq + 1 if before is None else before
    path = on_path(branch, after=after, before=end).select_related("turn").order_by("-seq")
    page = list(path[: PAGE + 1])
    has_earlier = len(page) > PAGE
    messages = page[:PAGE][::-1]
    if cover.exceptions and after == cover.to_seq and not has_earlier:
        messages = covered_pins(branch, cover=cover) + messages
    newest = before is None
    waiting = list(branch.messages.filter(seq=None).order_by("accepted")) if newest else []
    turns = Turn.objects.exclude(status=Turn.Status.ABSORBED).select_related("continues")
    ids = [message.pk for message in (*messages, *waiting)]
    caused = Q(trigger__in=ids) | Q(continues__reply__in=ids)
    unfinished = Q(branch=branch, status__in=UNFINISHED if newest else [])
    return Rows(
        messages=messages,
        waiting=waiting,
        turns=list(turns.filter(caused | unfinished).order_by("accepted")),
        last_turn=turns.filter(branch=branch)
        .select_related("reply", "continues__reply")
        .order_by("-accepted")
        .first(),
        told=told_compactions(branch),
        left_out=left_out_for_room(branch),
        has_earlier=has_earlier,
    )


def covered_pins(branch: Branch, *, cover: Cover) -> list[Message]:
    """The pinned messages within the summary's range: they are sent, so they stay in sight."""
    rows = on_path(branch, after=0, before=cover.to_seq + 1).select_related("turn")
    return list(rows.filter(seq__in=cover.exceptions, pinned_at__isnull=False).order_by("seq"))


def told_compactions(branch: Branch) -> list[Compaction]:
    """The newest compaction that is not in force, if it is newer than the one that is."""
    rows = branch.compactions.filter(status__in=TOLD)
    active = branch.active_compaction
    if active is not None and active.published_at:
        rows = rows.filter(created_at__gt=active.published_at)
    return list(rows.order_by("-created_at")[:1])


def left_out_for_room(branch: Branch) -> list[tuple[int, int, str]]:
    """The ranges that the newest prompt had no room for, if the same compaction is in force."""
    row = Receipt.objects.filter(turn__branch=branch).order_by("-created_at").first()
    if row is None or row.compaction_id != branch.active_compaction_id:
        return []
    return [(first, last, reason) for first, last, reason in row.left_out if reason in FOR_ROOM]
