"""The thread of a chat, as shown on its page.

Covered messages are represented by their compaction marker. The *tail* is the part that may still
change, from the first unfinished turn (or the last one) to the end. A page replaces the whole tail
at once.
"""

from dataclasses import dataclass, replace

from django.contrib.auth.models import User

from chats.actions.permissions import Locks
from chats.models import Branch, Chat, Message, Turn
from chats.record.history import select_path_messages
from chats.web.drawing import get_render_time_ms
from chats.web.thread.arrangement import (
    arrange_entries,
    find_tail_start,
    get_entry_seq,
    get_message_day,
    insert_day_marks,
    is_truncated_reply,
    select_marked_compactions,
    split_entries,
)
from chats.web.thread.compaction_request import RequestNotice, build_request_notice
from chats.web.thread.entries import Entry, Live, MessageEntry
from chats.web.thread.round_state import RoundState, round_state
from chats.web.thread.rows import (
    PAGE,
    BranchUnderPolicy,
    format_turn_state,
    get_path_id,
    load_active_branch,
    load_branch_under_policy,
    load_thread_rows,
)
from contextpolicy.models import ModelSpec

# A page with more messages than this drops the oldest ones when markers change.
MOST_STANDING = 2000


class Stale(Exception):
    """The page is too far behind for an update and must be reloaded."""


@dataclass(frozen=True, slots=True)
class ShownState:
    """The state from which an open page was rendered, and the seq of its first message."""

    state: str
    top: int


@dataclass(frozen=True, slots=True)
class ThreadAbove:
    """The thread above the updated part, for a page that already shows most of it.

    `earlier` is described in `ThreadPage`.
    """

    entries: list[Entry]
    earlier: int | None


@dataclass(frozen=True)
class ThreadPage:
    entries: list[Entry]
    tail: list[Entry]
    # First seq of the tail. The page sends it back, so that the update starts there.
    tail_from: int
    # The previous page ends below this seq. None: there is no previous page.
    earlier: int | None
    turn: Turn | None
    # State from which markers and rails were rendered; see `rows.compute_thread_state`.
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
        return format_turn_state(self.turn, self.round)

    @property
    def is_replying(self) -> bool:
        """True while a reply is being written or queued."""
        return any(isinstance(entry, Live) for entry in self.tail)

    @property
    def is_empty(self) -> bool:
        return not self.entries and not self.tail


def load_thread_page(
    *,
    chat: Chat,
    user: User,
    before: int | None = None,
    branch: Branch | None = None,
    default: ModelSpec | None = None,
) -> ThreadPage:
    """Return the newest page of the chat's thread, or the page before a seq without its tail.

    `branch` and `default` are described in `load_branch_under_policy`.
    """
    drawn_at = get_render_time_ms()
    # The newest page has all markers, because earlier pages are added above it.
    newest = before is None
    team_round = round_state(chat) if newest else None
    ground = load_branch_under_policy(chat=chat, user=user, branch=branch, default=default)
    branch, cover = ground.branch, ground.cover
    rows = load_thread_rows(ground, after=cover.to_seq, before=before)
    borders = select_marked_compactions(rows, cover=cover) if newest else []
    arranged = arrange_entries(
        rows, ground=ground, top=not rows.has_earlier, borders=borders, newest=newest
    )
    entries = insert_day_marks(arranged, previous=None)
    tail_from = before or find_tail_start(rows, cover=cover, end=branch.last_seq + 1)
    still, tail = split_entries(entries, at=tail_from)
    return ThreadPage(
        entries=still,
        tail=tail,
        tail_from=tail_from,
        earlier=rows.messages[0].seq if rows.has_earlier else None,
        turn=rows.last_turn,
        state=rows.state,
        drawn_at=drawn_at,
        answer=build_request_notice(rows.answer),
        locks=ground.locks,
        ground=ground,
        last_finished=rows.last_finished,
        round=team_round,
    )


def load_thread_since(
    *, chat: Chat, user: User, start: int, shown: ShownState | None = None
) -> ThreadPage:
    """Return the thread from a seq on: messages that have become final, and the current tail.

    If the page is out of date, the part above is included. Raises `Stale` if more than a page of
    messages is new, or if the page shows another path.
    """
    drawn_at = get_render_time_ms()
    team_round = round_state(chat)
    ground = load_branch_under_policy(chat=chat, user=user)
    branch, cover = ground.branch, ground.cover
    if shown and shown.state.rpartition(".")[2] != get_path_id(branch):
        raise Stale
    rows = load_thread_rows(ground, after=max(cover.to_seq, start - 1), before=None)
    if rows.has_earlier:
        raise Stale
    standing = None
    if shown and shown.state != rows.state:
        standing = load_thread_above(ground, top=shown.top, start=start)
    seen = select_path_messages(branch, after=0, before=start).order_by("-seq").first()
    borders = [row for row in select_marked_compactions(rows, cover=cover) if row.to_seq >= start]
    entries = arrange_entries(rows, ground=ground, top=False, borders=borders, newest=True)
    entries = insert_day_marks(
        [e for e in entries if get_entry_seq(e) >= start], previous=get_message_day(seen)
    )
    tail_from = max(find_tail_start(rows, cover=cover, end=branch.last_seq + 1), start)
    still, tail = split_entries(entries, at=tail_from)
    return ThreadPage(
        entries=still,
        tail=tail,
        tail_from=tail_from,
        earlier=None,
        turn=rows.last_turn,
        state=rows.state,
        drawn_at=drawn_at,
        answer=build_request_notice(rows.answer),
        locks=ground.locks,
        ground=ground,
        last_finished=rows.last_finished,
        round=team_round,
        standing=standing,
    )


def load_thread_above(ground: BranchUnderPolicy, *, top: int, start: int) -> ThreadAbove:
    """Return the thread between the covered range and a seq, for a page that starts at `top`.

    Messages that the page already has are rendered without their text.
    """
    cover = ground.cover
    most = min(max(PAGE, start - top), MOST_STANDING)
    rows = load_thread_rows(ground, after=cover.to_seq, before=start, most=most)
    borders = [row for row in select_marked_compactions(rows, cover=cover) if row.to_seq < start]
    arranged = arrange_entries(
        rows,
        ground=ground,
        top=not rows.has_earlier,
        borders=borders,
        newest=start > ground.branch.last_seq,
        known=top,
    )
    entries = [
        entry for entry in arranged if get_entry_seq(entry) < start or not is_message_entry(entry)
    ]
    return ThreadAbove(
        entries=insert_day_marks(entries, previous=None),
        earlier=rows.messages[0].seq if rows.has_earlier else None,
    )


def is_message_entry(entry: Entry) -> bool:
    return isinstance(entry, MessageEntry)


def find_message_entry(
    *, chat: Chat, user: User, message: Message
) -> tuple[MessageEntry | None, str]:
    """Return one message of the thread, and the state of compaction markers and rails.

    The message is None if the thread does not show it. Loads the page that ends with the message,
    because omissions depend on neighbouring messages.
    """
    last_seq = load_active_branch(chat).last_seq
    thread = load_thread_page(chat=chat, user=user, before=(message.seq or last_seq) + 1)
    for entry in (*thread.entries, *thread.tail):
        if isinstance(entry, MessageEntry) and entry.message.pk == message.pk:
            is_last = message.seq == last_seq
            can_continue = is_last and is_truncated_reply(entry, thread.turn)
            return replace(entry, is_last=is_last, can_continue=can_continue), thread.state
    return None, thread.state
