"""The thread of a chat as its page shows it.

Covered messages are behind their compaction marker, not in the thread. The *tail* is the part that
may still change, from the first unfinished turn (or the last one) to the end. A page replaces it as
a whole.
"""

from dataclasses import dataclass, replace

from django.contrib.auth.models import User

from chats.actions.locks import Locks
from chats.models import Branch, Chat, Message, Turn
from chats.record.history import on_path
from chats.web.drawing import drawing_time
from chats.web.thread.arrangement import (
    arrange,
    borders_of,
    continues,
    day_of,
    seq_of,
    split,
    tail_start,
    with_days,
)
from chats.web.thread.compaction_request import RequestNotice, notice_of
from chats.web.thread.entries import Entry, Live, MessageEntry
from chats.web.thread.round_state import RoundState, round_state
from chats.web.thread.rows import (
    PAGE,
    BranchUnderPolicy,
    branch_of,
    ground_of,
    load,
    path_of,
    turn_state,
)
from contextpolicy.models import ModelSpec

# A page with more messages than this drops the oldest ones when markers change.
MOST_STANDING = 2000


class Stale(Exception):
    """The page is too far behind for an update and needs a full reload."""


@dataclass(frozen=True, slots=True)
class ShownState:
    """The state an open page was rendered from, and the seq of its first message."""

    state: str
    top: int


@dataclass(frozen=True, slots=True)
class ThreadAbove:
    """The thread above the updated part, for a page that already shows most of it.

    `earlier` as in `ThreadPage`.
    """

    entries: list[Entry]
    earlier: int | None


@dataclass(frozen=True)
class ThreadPage:
    """The parts of a thread on one page."""

    entries: list[Entry]
    tail: list[Entry]
    # First seq of the tail. The page sends it back, so that the update starts there.
    tail_from: int
    # The previous page ends below this seq. None: there is no previous page.
    earlier: int | None
    turn: Turn | None
    # State from which markers and rails were rendered; see `rows.state_of`.
    state: str
    # Time in ms since 1970, before the rows were read.
    drawn_at: int
    # Notice about a requested compaction.
    answer: RequestNotice | None
    locks: Locks
    # The branch under its policy, also used by the meter.
    ground: BranchUnderPolicy
    last_finished: Turn | None
    # A team's round, read before the rows, so a growing reply never appears after its end.
    round: RoundState | None
    # Update of the messages above, if the page was rendered from another state.
    standing: ThreadAbove | None = None

    @property
    def top(self) -> int:
        """Seq of the first message on the page that no summary covers."""
        found = (
            entry.message.seq or 0 for entry in self.entries if isinstance(entry, MessageEntry)
        )
        return next((seq for seq in found if seq > self.ground.cover.to_seq), self.tail_from)

    @property
    def turn_state(self) -> str:
        """State of the last turn, by which an open page detects changes."""
        return turn_state(self.turn, self.round)

    @property
    def is_replying(self) -> bool:
        """True while a reply is being written or queued."""
        return any(isinstance(entry, Live) for entry in self.tail)

    @property
    def is_empty(self) -> bool:
        """True if the thread is empty."""
        return not self.entries and not self.tail


def thread_of(
    *,
    chat: Chat,
    user: User,
    before: int | None = None,
    branch: Branch | None = None,
    default: ModelSpec | None = None,
) -> ThreadPage:
    """Return the newest page of the chat's thread, or the page before a seq, without tail.

    `branch` and `default` as in `ground_of`.
    """
    drawn_at = drawing_time()
    # The newest page has all markers, because earlier pages are added above it.
    newest = before is None
    team_round = round_state(chat) if newest else None
    ground = ground_of(chat=chat, user=user, branch=branch, default=default)
    branch, cover = ground.branch, ground.cover
    rows = load(ground, after=cover.to_seq, before=before)
    borders = borders_of(rows, cover=cover) if newest else []
    arranged = arrange(
        rows, ground=ground, top=not rows.has_earlier, borders=borders, newest=newest
    )
    entries = with_days(arranged, previous=None)
    tail_from = before or tail_start(rows, cover=cover, end=branch.last_seq + 1)
    still, tail = split(entries, at=tail_from)
    return ThreadPage(
        entries=still,
        tail=tail,
        tail_from=tail_from,
        earlier=rows.messages[0].seq if rows.has_earlier else None,
        turn=rows.last_turn,
        state=rows.state,
        drawn_at=drawn_at,
        answer=notice_of(rows.answer),
        locks=ground.locks,
        ground=ground,
        last_finished=rows.last_finished,
        round=team_round,
    )


def thread_from(
    *, chat: Chat, user: User, start: int, shown: ShownState | None = None
) -> ThreadPage:
    """Return the thread from a seq on: the now final part, and the current tail.

    Includes the part above if the page's state is out of date. Raises `Stale` if more than a page
    of messages is new, or if the page shows another path.
    """
    drawn_at = drawing_time()
    team_round = round_state(chat)
    ground = ground_of(chat=chat, user=user)
    branch, cover = ground.branch, ground.cover
    if shown and shown.state.rpartition(".")[2] != path_of(branch):
        raise Stale
    rows = load(ground, after=max(cover.to_seq, start - 1), before=None)
    if rows.has_earlier:
        raise Stale
    standing = None
    if shown and shown.state != rows.state:
        standing = standing_on(ground, top=shown.top, start=start)
    seen = on_path(branch, after=0, before=start).order_by("-seq").first()
    borders = [row for row in borders_of(rows, cover=cover) if row.to_seq >= start]
    entries = arrange(rows, ground=ground, top=False, borders=borders, newest=True)
    entries = with_days([e for e in entries if seq_of(e) >= start], previous=day_of(seen))
    tail_from = max(tail_start(rows, cover=cover, end=branch.last_seq + 1), start)
    still, tail = split(entries, at=tail_from)
    return ThreadPage(
        entries=still,
        tail=tail,
        tail_from=tail_from,
        earlier=None,
        turn=rows.last_turn,
        state=rows.state,
        drawn_at=drawn_at,
        answer=notice_of(rows.answer),
        locks=ground.locks,
        ground=ground,
        last_finished=rows.last_finished,
        round=team_round,
        standing=standing,
    )


def standing_on(ground: BranchUnderPolicy, *, top: int, start: int) -> ThreadAbove:
    """Return the thread between the covered range and a seq, for a page that starts at `top`.

    Messages the page already has are rendered without their text.
    """
    cover = ground.cover
    most = min(max(PAGE, start - top), MOST_STANDING)
    rows = load(ground, after=cover.to_seq, before=start, most=most)
    borders = [row for row in borders_of(rows, cover=cover) if row.to_seq < start]
    arranged = arrange(
        rows,
        ground=ground,
        top=not rows.has_earlier,
        borders=borders,
        newest=start > ground.branch.last_seq,
        known=top,
    )
    entries = [entry for entry in arranged if seq_of(entry) < start or not is_message(entry)]
    return ThreadAbove(
        entries=with_days(entries, previous=None),
        earlier=rows.messages[0].seq if rows.has_earlier else None,
    )


def is_message(entry: Entry) -> bool:
    """Return True if the entry is a message."""
    return isinstance(entry, MessageEntry)


def entry_of(*, chat: Chat, user: User, message: Message) -> tuple[MessageEntry | None, str]:
    """Return one message of the thread, and the state of compaction markers and rails.

    The message is None if the thread does not show it. The page that ends with it is loaded,
    because omissions depend on neighbouring messages.
    """
    last_seq = branch_of(chat).last_seq
    thread = thread_of(chat=chat, user=user, before=(message.seq or last_seq) + 1)
    for entry in (*thread.entries, *thread.tail):
        if isinstance(entry, MessageEntry) and entry.message.pk == message.pk:
            is_last = message.seq == last_seq
            can_continue = is_last and continues(entry, thread.turn)
            return replace(entry, is_last=is_last, can_continue=can_continue), thread.state
    return None, thread.state
