"""Arranges the rows of a chat into page entries, in order.

Markers follow the end of their range. Failed or stopped turns follow their message. A day mark
precedes the first message of each day. The tail, which may still change, is split off at a seq.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from django.utils import timezone
from django.utils.safestring import SafeString

from chats.compaction.people.undo import can_be_redone
from chats.models import Compaction, Message, Turn
from chats.rendering.fragments import render_live_html
from chats.rendering.spoken import SpokenSoFar, extract_displayed_text
from chats.rendering.store import get_message_html, render_texts
from chats.turns import statements
from chats.turns.consents import list_waiting_calls
from chats.web.thread.compaction_marker import (
    CompactionMarker,
    build_summary_sections,
    list_summary_texts,
)
from chats.web.thread.entries import (
    DayMark,
    Entry,
    Live,
    MessageEntry,
    Queue,
    TurnEnd,
    get_message_disposition,
)
from chats.web.thread.reply_preferences import find_preferences_by_reply
from chats.web.thread.rows import BranchUnderPolicy, Coverage, ThreadRows
from chats.web.thread.sent_now import count_sent_messages
from chats.web.words import format_day


def arrange_entries(
    rows: ThreadRows,
    *,
    ground: BranchUnderPolicy,
    top: bool,
    borders: Sequence[Compaction],
    newest: bool,
    known: int | None = None,
) -> list[Entry]:
    """Return the page's entries in order.

    `top`: begin with the active summary's entry. `borders`: compactions with a marker at the end of
    their range on this page, ascending. `newest`: the page ends with the newest message. `known`:
    the page already has the text of messages from this seq on.
    """
    cover, borders = ground.cover, list(borders)
    summaries = [
        text for row in (cover.summary, *borders) if row for text in list_summary_texts(row)
    ]
    has = set()
    if known is not None:
        has = {row.pk for row in rows.messages if (row.seq or 0) >= max(known, cover.to_seq + 1)}
    spoken = {
        row.pk: extract_displayed_text(row)
        for row in rows.messages
        if row.speaker and row.pk not in has
    }
    words = {row.pk: "" if row.pk in has else row.text for row in rows.messages}
    words |= {key: text.own for key, text in spoken.items()}
    said = [*words.values(), *(row.text for row in rows.waiting)]
    html = render_texts([*summaries, *said], seen=ground.branch)
    outcomes = group_turn_outcomes(rows)
    saved = find_preferences_by_reply(rows.messages, owner_id=ground.branch.chat.owner_id)
    entries: list[Entry] = []
    if cover.summary is not None and top:
        entries.append(build_compaction_marker(cover.summary, html, rows=rows, ground=ground))
    for message in rows.messages:
        while borders and (message.seq or 0) > borders[0].to_seq:
            entries.append(build_compaction_marker(borders.pop(0), html, rows=rows, ground=ground))
        sent, reason, cuts = get_message_disposition(message, outlook=ground.outlook)
        versions = rows.versions.get(message.pk)
        entries.append(
            MessageEntry(
                message,
                get_message_html(words[message.pk], html, key=message.pk),
                sent=sent,
                reason=reason,
                cuts=cuts,
                versions=versions,
                pin_lock=ground.locks.pin(message),
                is_known=message.pk in has,
                for_others=spoken[message.pk].for_others if message.pk in spoken else "",
                preferences=saved.get(message.pk, ()),
            )
        )
        entries += outcomes.pop(message.pk, [])
    entries += [build_compaction_marker(row, html, rows=rows, ground=ground) for row in borders]
    for entry in build_unfinished_entries(rows, html):
        entries.append(entry)
        if isinstance(entry, MessageEntry):
            entries += outcomes.pop(entry.message.pk, [])
    return mark_last(entries, turn=rows.last_turn) if newest else entries


def build_unfinished_entries(rows: ThreadRows, html: dict[str, SafeString]) -> Iterator[Entry]:
    """Yield the running replies (one per lane) and the waiting messages.

    Waiting messages come after the reply, unless the reply answers them.
    """
    turns = rows.running
    is_queued = all(turn.status == Turn.Status.QUEUED for turn in turns) and bool(turns)
    reason = "queued" if is_queued else "waiting"
    waiting = [
        MessageEntry(m, get_message_html(m.text, html, key=m.pk), sent="pending", reason=reason)
        for m in rows.waiting
    ]
    live = [build_live_entry(turn, is_last=turn is turns[-1]) for turn in turns]
    if is_queued:
        yield from waiting
    yield from live
    if not is_queued:
        yield from waiting


def build_live_entry(turn: Turn, *, is_last: bool) -> Live:
    """Return the entry of a reply that is being written or queued.

    The last of these entries has the stop button.
    """
    words = turn.partial_text
    if turn.agent is not None:
        words = SpokenSoFar(turn.agent.name).take(words)
    is_queued = turn.status == Turn.Status.QUEUED and not turn.awaits_consent
    queue = load_queue_position(turn) if is_queued else None
    return Live(
        turn,
        render_live_html(words),
        queue=queue,
        is_last=is_last,
        consents=list_waiting_calls(turn),
    )


def load_queue_position(turn: Turn) -> Queue:
    """Return the waiting time and the position of a turn among all queued turns."""
    now = timezone.now()
    ahead = statements.QUEUED_BEFORE.tuples(turn=turn.pk, queued_at=turn.queued_at)
    return Queue(
        seconds=int((now - turn.queued_at).total_seconds()),
        before=len(ahead),
        is_served=bool(statements.SERVED.tuples(turn=turn.pk)),
    )


def select_marked_compactions(rows: ThreadRows, *, cover: Coverage) -> list[Compaction]:
    """Return the compactions with a marker at the end of their range.

    These are the window and the compactions that are not sent.
    """
    window = [cover.active] if cover.active and cover.window_to else []
    return sorted([*window, *cover.unused, *rows.inactive], key=lambda row: row.to_seq)


def build_compaction_marker(
    row: Compaction, html: dict[str, SafeString], *, rows: ThreadRows, ground: BranchUnderPolicy
) -> CompactionMarker:
    """Return the marker of a compaction.

    The active summary's marker comes first, other markers at the end of their range.
    """
    is_undone = row.status == Compaction.Status.UNDONE
    return CompactionMarker(
        row,
        html[row.text],
        covered_tokens=rows.covered_tokens if row == ground.cover.summary else None,
        sections=build_summary_sections(row, chat_id=rows.chat_id, html=html),
        is_paused=rows.is_paused,
        is_unused=row in ground.cover.unused,
        can_redo=is_undone and can_be_redone(row, branch=ground.branch),
        locks=ground.locks,
        policy_label=ground.policy_label,
        sent=count_sent_messages(row, outlook=ground.outlook, branch=ground.branch),
    )


def group_turn_outcomes(rows: ThreadRows) -> dict[uuid.UUID, list[Entry]]:
    """Return failed turns, and stopped turns without text, by the message they follow.

    If there were several attempts at one message, only the last one is included.
    """
    latest = {(get_cause_message_id(turn), turn.round_id, turn.hop): turn for turn in rows.turns}
    last_of = {message.turn_id: message.pk for message in rows.messages if message.turn_id}
    found: dict[uuid.UUID, list[Entry]] = {}
    for (cause, _, _), turn in latest.items():
        stopped_empty = turn.status == Turn.Status.STOPPED and turn.reply_id is None
        if cause is not None and (turn.status == Turn.Status.FAILED or stopped_empty):
            place = last_of.get(turn.pk) or find_last_shown_message(turn, rows=rows) or cause
            retry = rows.last_turn is not None and turn.pk == rows.last_turn.pk
            found.setdefault(place, []).append(TurnEnd(turn, can_retry=retry))
    return found


def find_last_shown_message(turn: Turn, *, rows: ThreadRows) -> uuid.UUID | None:
    """Return the id of the last shown message that the agent of a failed turn could see.

    None if the turn has no agent, or if no such message is shown.
    """
    if turn.agent_id is None or turn.seen_to is None:
        return None
    shown_to = [row.pk for row in rows.messages if row.seq and row.seq <= turn.seen_to]
    return shown_to[-1] if shown_to else None


def mark_last(entries: list[Entry], *, turn: Turn | None) -> list[Entry]:
    """Mark the newest message as the last, and set whether its reply can be continued."""
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if isinstance(entry, MessageEntry):
            entries[index] = replace(
                entry, is_last=True, can_continue=is_truncated_reply(entry, turn)
            )
            break
    return entries


def is_truncated_reply(entry: MessageEntry, turn: Turn | None) -> bool:
    """Return True if the message is the truncated reply of the last turn."""
    return (
        turn is not None
        and turn.is_over
        and turn.reply_id == entry.message.pk
        and entry.message.finish != Message.Finish.STOP
    )


def insert_day_marks(entries: list[Entry], *, previous: date | None) -> list[Entry]:
    """Insert a day mark before the first message of each day in the reader's time zone."""
    today = timezone.localdate()
    marked: list[Entry] = []
    for entry in entries:
        day = get_message_day(entry.message) if isinstance(entry, MessageEntry) else None
        if day is not None and day != previous:
            marked.append(DayMark(day, format_day(day, today=today)))
            previous = day
        marked.append(entry)
    return marked


def get_message_day(message: Message | None) -> date | None:
    """Return the date of a message in the reader's time zone.

    None if there is no message or it has no date.
    """
    if message is None or message.undated:
        return None
    return timezone.localtime(message.created_at).date()


def split_entries(entries: list[Entry], *, at: int) -> tuple[list[Entry], list[Entry]]:
    """Split the entries at a seq. Waiting messages belong to the second part."""
    for index, entry in enumerate(entries):
        if isinstance(entry, MessageEntry | Live) and get_entry_seq(entry) >= at:
            start = index - 1 if index and isinstance(entries[index - 1], DayMark) else index
            return entries[:start], entries[start:]
    return entries, []


def get_entry_seq(entry: Entry) -> float:
    """Return the seq of a message entry; infinity for waiting messages and other entries."""
    seq = entry.message.seq if isinstance(entry, MessageEntry) else None
    return float("inf") if seq is None else seq


def find_tail_start(rows: ThreadRows, *, cover: Coverage, end: int) -> int:
    """Return the first seq of the part that may still change.

    Returns `end` if only waiting messages can change.
    """
    unfinished = [turn for turn in rows.turns if not turn.is_over]
    anchors = unfinished or [turn for turn in [rows.last_turn] if turn]
    causes = {get_cause_message_id(turn) for turn in anchors}
    starts = [row.seq for row in rows.messages if row.seq and row.pk in causes]
    return max(min(starts, default=end), cover.to_seq + 1)


def get_cause_message_id(turn: Turn) -> uuid.UUID | None:
    """Return the id of the message that a turn replies to or continues, or None."""
    return turn.trigger_id or (turn.continues.reply_id if turn.continues else None)
