"""The thread of a chat as its page shows it.

Covered messages stand under their seam, not in the thread. The *tail* is the part that may still
change, from the first unfinished turn (or the last one) to the end; a page replaces it as one
piece.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from django.contrib.auth.models import User
from django.utils import timezone
from django.utils.safestring import SafeString

from chats.compaction.locks import Locks
from chats.compaction.undo import can_be_redone
from chats.history import on_path
from chats.models import Branch, Chat, Compaction, Message, Turn
from chats.rendering.fragments import live_html
from chats.rendering.store import html_for_many
from chats.web.answer_view import AnswerView, view_of_answer
from chats.web.entries import (
    DayMark,
    Entry,
    Live,
    MessageEntry,
    Outcome,
    Queue,
    sent_as,
)
from chats.web.rows import Cover, Ground, Rows, branch_of, ground_of, is_preparing, load
from chats.web.seams import Seam, sections_of, summary_texts
from chats.web.sent_now import sent_now
from chats.web.words import day_name
from contextpolicy.models import ModelSpec


class Stale(Exception):
    """The page is so far behind that only a whole new one helps."""


@dataclass(frozen=True, slots=True)
class Thread:
    """The parts of a thread on one page."""

    entries: list[Entry]
    tail: list[Entry]
    # The tail's first seq; a page sends it back so that the answer begins where its tail did.
    tail_from: int
    # The page before this one ends below this seq; None when nothing is before it.
    earlier: int | None
    turn: Turn | None
    # What seams and rails were drawn from; see `rows.state_of`.
    state: str
    is_preparing: bool
    # What became of the compaction that a person asked for.
    answer: AnswerView | None
    locks: Locks
    # What the meter beside the thread is drawn from.
    ground: Ground
    last_finished: Turn | None

    @property
    def is_replying(self) -> bool:
        """Whether a reply is being written or waited for."""
        return any(isinstance(entry, Live) for entry in self.tail)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return not self.entries and not self.tail


def thread_of(
    *,
    chat: Chat,
    user: User,
    before: int | None = None,
    branch: Branch | None = None,
    default: ModelSpec | None = None,
) -> Thread:
    """The newest page of the chat's thread, or the page that ends before a seq, without tail.

    `branch` and `default`: what `ground_of` takes.
    """
    ground = ground_of(chat=chat, user=user, branch=branch, default=default)
    branch, cover = ground.branch, ground.cover
    rows = load(ground, after=cover.to_seq, before=before)
    # The newest page has all of them: an earlier one is put above it.
    borders = borders_of(rows, cover=cover) if before is None else []
    arranged = arrange(rows, ground=ground, top=not rows.has_earlier, borders=borders)
    entries = with_days(arranged, previous=None)
    tail_from = before or tail_start(rows, cover=cover, end=branch.last_seq + 1)
    still, tail = split(entries, at=tail_from)
    return Thread(
        entries=still,
        tail=tail,
        tail_from=tail_from,
        earlier=rows.messages[0].seq if rows.has_earlier else None,
        turn=rows.last_turn,
        state=rows.state,
        is_preparing=rows.is_asked or is_preparing(rows.told),
        answer=view_of_answer(rows.answer),
        locks=ground.locks,
        ground=ground,
        last_finished=rows.last_finished,
    )


def thread_from(*, chat: Chat, user: User, start: int) -> Thread:
    """What stands from a seq on: the part that has become still, and the tail now.

    Raises `Stale` when more than a page has been said since.
    """
    ground = ground_of(chat=chat, user=user)
    branch, cover = ground.branch, ground.cover
    rows = load(ground, after=max(cover.to_seq, start - 1), before=None)
    if rows.has_earlier:
        raise Stale
    seen = on_path(branch, after=0, before=start).order_by("-seq").first()
    borders = [row for row in borders_of(rows, cover=cover) if row.to_seq >= start]
    entries = arrange(rows, ground=ground, top=False, borders=borders)
    entries = with_days([e for e in entries if seq_of(e) >= start], previous=day_of(seen))
    tail_from = max(tail_start(rows, cover=cover, end=branch.last_seq + 1), start)
    still, tail = split(entries, at=tail_from)
    return Thread(
        entries=still,
        tail=tail,
        tail_from=tail_from,
        earlier=None,
        turn=rows.last_turn,
        state=rows.state,
        is_preparing=rows.is_asked or is_preparing(rows.told),
        answer=view_of_answer(rows.answer),
        locks=ground.locks,
        ground=ground,
        last_finished=rows.last_finished,
    )


def entry_of(*, chat: Chat, user: User, message: Message) -> tuple[MessageEntry | None, str]:
    """One message of the thread, and the state of seams and rails; None when it stands elsewhere.

    Read with the page that ends with it: what is left out of a prompt depends on its neighbours.
    """
    last_seq = branch_of(chat).last_seq
    thread = thread_of(chat=chat, user=user, before=(message.seq or last_seq) + 1)
    for entry in (*thread.entries, *thread.tail):
        if isinstance(entry, MessageEntry) and entry.message.pk == message.pk:
            is_last = message.seq == last_seq
            can_continue = is_last and continues(entry, thread.turn)
            return replace(entry, is_last=is_last, can_continue=can_continue), thread.state
    return None, thread.state


def tail_start(rows: Rows, *, cover: Cover, end: int) -> int:
    """The seq at which the part begins that may still change; `end` when all of it waits."""
    unfinished = [turn for turn in rows.turns if not turn.is_over]
    anchors = unfinished or [turn for turn in [rows.last_turn] if turn]
    causes = {cause_of(turn) for turn in anchors}
    starts = [row.seq for row in rows.messages if row.seq and row.pk in causes]
    return max(min(starts, default=end), cover.to_seq + 1)


def cause_of(turn: Turn) -> uuid.UUID | None:
    """The message that a turn answers or continues."""
    return turn.trigger_id or (turn.continues.reply_id if turn.continues else None)


def arrange(rows: Rows, *, ground: Ground, top: bool, borders: Sequence[Compaction]) -> list[Entry]:
    """The page's entries in order; with `top` the seam of the summary in force stands first.

    `borders`: the compactions whose seams stand on this page at the end of their range, ascending.
    """
    cover, borders = ground.cover, list(borders)
    summaries = [text for row in (cover.summary, *borders) if row for text in summary_texts(row)]
    html = html_for_many([*summaries, *(row.text for row in (*rows.messages, *rows.waiting))])
    outcomes = outcomes_of(rows)
    entries: list[Entry] = []
    if cover.summary is not None and top:
        entries.append(seam(cover.summary, html, rows=rows, ground=ground))
    for message in rows.messages:
        while borders and (message.seq or 0) > borders[0].to_seq:
            entries.append(seam(borders.pop(0), html, rows=rows, ground=ground))
        sent, reason, cuts = sent_as(message, outlook=ground.outlook)
        versions = rows.versions.get(message.pk)
        entries.append(
            MessageEntry(
                message,
                html[message.text],
                sent=sent,
                reason=reason,
                cuts=cuts,
                versions=versions,
                pin_lock=ground.locks.pin(message),
            )
        )
        entries += outcomes.pop(message.pk, [])
    entries += [seam(row, html, rows=rows, ground=ground) for row in borders]
    for entry in unfinished_entries(rows, html):
        entries.append(entry)
        if isinstance(entry, MessageEntry):
            entries += outcomes.pop(entry.message.pk, [])
    return mark_last(entries, turn=rows.last_turn)


def unfinished_entries(rows: Rows, html: dict[str, SafeString]) -> Iterator[Entry]:
    """The live reply and the waiting messages: behind it, unless it is they that it answers."""
    turn = rows.running
    is_queued = turn is not None and turn.status == Turn.Status.QUEUED
    reason = "queued" if is_queued else "waiting"
    waiting = [MessageEntry(m, html[m.text], sent="pending", reason=reason) for m in rows.waiting]
    if turn is None:
        yield from waiting
        return
    live = Live(turn, live_html(turn.partial_text), queue=queue_of(turn) if is_queued else None)
    if is_queued:
        yield from waiting
        yield live
    else:
        yield live
        yield from waiting


def queue_of(turn: Turn) -> Queue:
    """How a queued turn stands in the line of this installation."""
    now = timezone.now()
    unfinished = Turn.objects.exclude(pk=turn.pk)
    ahead = unfinished.filter(status=Turn.Status.QUEUED, queued_at__lt=turn.queued_at)
    served = unfinished.filter(status=Turn.Status.RUNNING, lease_until__gt=now)
    return Queue(
        seconds=int((now - turn.queued_at).total_seconds()),
        before=ahead.count(),
        is_served=served.exists(),
    )


def borders_of(rows: Rows, *, cover: Cover) -> list[Compaction]:
    """The compactions that stand at the end of their range: a window, and what is not sent."""
    window = [cover.active] if cover.active and cover.window_to else []
    return sorted([*window, *cover.unused, *rows.told], key=lambda row: row.to_seq)


def seam(row: Compaction, html: dict[str, SafeString], *, rows: Rows, ground: Ground) -> Seam:
    """The seam of a compaction: a summary in force before all, any other at its range's end."""
    is_undone = row.status == Compaction.Status.UNDONE
    return Seam(
        row,
        html[row.text],
        folded_tokens=rows.folded_tokens if row == ground.cover.summary else None,
        sections=sections_of(row, chat_id=rows.chat_id, html=html),
        is_paused=rows.is_paused,
        is_unused=row in ground.cover.unused,
        can_redo=is_undone and can_be_redone(row, branch=ground.branch),
        locks=ground.locks,
        policy_label=ground.policy_label,
        sent=sent_now(row, outlook=ground.outlook, branch=ground.branch),
    )


def outcomes_of(rows: Rows) -> dict[uuid.UUID, list[Entry]]:
    """Ends without a whole reply, by the message they stand behind.

    Of several tries at one message only the last counts.
    """
    latest = {cause_of(turn): turn for turn in rows.turns}
    last_of = {message.turn_id: message.pk for message in rows.messages if message.turn_id}
    found: dict[uuid.UUID, list[Entry]] = {}
    for cause, turn in latest.items():
        stopped_empty = turn.status == Turn.Status.STOPPED and turn.reply_id is None
        if cause is not None and (turn.status == Turn.Status.FAILED or stopped_empty):
            place = last_of.get(turn.pk, cause)
            retry = rows.last_turn is not None and turn.pk == rows.last_turn.pk
            found.setdefault(place, []).append(Outcome(turn, can_retry=retry))
    return found


def mark_last(entries: list[Entry], *, turn: Turn | None) -> list[Entry]:
    """The same entries; the newest message says that it is, and whether it may be continued."""
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if isinstance(entry, MessageEntry):
            entries[index] = replace(entry, is_last=True, can_continue=continues(entry, turn))
            break
    return entries


def continues(entry: MessageEntry, turn: Turn | None) -> bool:
    """Whether a message is the cut reply of the last turn."""
    return (
        turn is not None
        and turn.is_over
        and turn.reply_id == entry.message.pk
        and entry.message.finish != Message.Finish.STOP
    )


def with_days(entries: list[Entry], *, previous: date | None) -> list[Entry]:
    """The entries with a mark before the first message of each day, in the reader's zone."""
    today = timezone.localdate()
    marked: list[Entry] = []
    for entry in entries:
        day = day_of(entry.message) if isinstance(entry, MessageEntry) else None
        if day is not None and day != previous:
            marked.append(DayMark(day, day_name(day, today=today)))
            previous = day
        marked.append(entry)
    return marked


def day_of(message: Message | None) -> date | None:
    """The day of a message in the reader's zone."""
    return timezone.localtime(message.created_at).date() if message else None


def split(entries: list[Entry], *, at: int) -> tuple[list[Entry], list[Entry]]:
    """The entries before a seq, and those from it on with what waits."""
    for index, entry in enumerate(entries):
        if isinstance(entry, MessageEntry | Live) and seq_of(entry) >= at:
            start = index - 1 if index and isinstance(entries[index - 1], DayMark) else index
            return entries[:start], entries[start:]
    return entries, []


def seq_of(entry: Entry) -> float:
    """Where an entry stands: a message by its seq, anything else and what waits at the end."""
    seq = entry.message.seq if isinstance(entry, MessageEntry) else None
    return float("inf") if seq is None else seq
