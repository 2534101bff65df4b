"""Snapshots of a team's chat: written, read back, and the chat cleared.

A snapshot is {messages, teamTask, timestamp, version}. Reading one and clearing never delete: both
open a branch without messages, and what was said stays on the branch before, for its reader and
the audit.
"""

from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction

from chats.actions.branching import open_empty_branch
from chats.compaction import cap
from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Message
from chats.record import history, messages
from chats.record.locking import chat_to_write_in
from chats.teams import conversation
from chats.turns.start import ChatFull, open_branch
from contextpolicy import ledger
from contextpolicy.engine import names, team_state
from contextpolicy.engine.team import TeamMessage, byte_count
from contextpolicy.engine.tokens import TokenCounter

# Rows that are read or written at once.
PAGE = 500
# What a snapshot takes, so that it can be read again whatever its words turn into as JSON.
MOST_MESSAGES = 40_000
MOST_BYTES = 5 * 1024 * 1024
# An id of a message as another program called it, in characters.
LONGEST_ID = 100


class SnapshotTooLarge(Refusal):
    """The chat has more words, or messages, than a snapshot takes."""

    code = "snapshot_too_large"
    status = 409
    sentence = (
        "A snapshot takes {messages:,} messages and {bytes:,} bytes of words; this chat has more."
        " Read its messages page by page."
    )

    def __init__(self) -> None:
        super().__init__(messages=MOST_MESSAGES, bytes=MOST_BYTES)


class SnapshotRefused(Refusal):
    """The snapshot is of another version, or a part of it is malformed; nothing was changed."""

    code = "invalid_snapshot"
    status = 422
    sentence = "Invalid snapshot format"
    param = "snapshot"


def export(*, chat: Chat, now: datetime) -> dict[str, object]:
    """Return the chat's messages and task as a snapshot; of an erased message the words are empty.

    Messages that wait for their turn are not in it. Raises `SnapshotTooLarge`.
    """
    branch = open_branch(chat)
    if branch.last_seq > MOST_MESSAGES:
        raise SnapshotTooLarge
    rows = history.on_path(branch, after=0, before=branch.last_seq + 1).order_by("seq")
    told: list[dict[str, object]] = []
    size = 0
    for row in rows.iterator(chunk_size=PAGE):
        seen = conversation.seen(row, branch=branch, chat=chat)
        size += byte_count(seen.content)
        if size > MOST_BYTES:
            raise SnapshotTooLarge
        told.append(team_state.message_json(seen))
    return {
        "messages": told,
        "teamTask": chat.team_task,
        "timestamp": int(now.timestamp() * 1000),
        "version": team_state.SNAPSHOT_VERSION,
    }


def read(*, chat: Chat, snapshot: object, counter: TokenCounter, actor: str, now: datetime) -> Chat:
    """Replace what the team sees by a snapshot; the next id follows its highest `msg-N`.

    Tells of the task, not of each message. Raises `SnapshotRefused`, `ChatFull`,
    `TooManyBranches`, `PolicyRefused`, and what `conversation.check_words` raises.
    """
    try:
        said, task = team_state.read_snapshot(snapshot)
    except team_state.InvalidSnapshot as error:
        raise SnapshotRefused from error
    if not all(len(message.id) <= LONGEST_ID and names.is_sound(message.id) for message in said):
        raise SnapshotRefused
    if len(said) > settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)
    limit = conversation.longest_message(chat)
    for message in said:
        conversation.check_words(message, limit=limit)
    conversation.check_task(task or "")
    rows = written(said, counter=counter, now=now)
    with transaction.atomic():
        chat = chat_to_write_in(chat.pk)
        branch = open_empty_branch(
            chat,
            cause="snapshot",
            actor=actor,
            now=now,
            team_id_offset=team_state.next_number(said) - 1 - len(said),
        )
        store(rows, chat=chat, branch=branch, now=now)
        if cap.is_over(branch, cap=cap.cap_of(chat)):
            queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
        ledger.record(
            "team.imported",
            actor=actor,
            now=now,
            chat_id=chat.pk,
            data={"branch": str(branch.pk), "messages": len(said)},
        )
        return conversation.change_task(chat=chat, task=task, actor=actor, now=now)


def written(said: Sequence[TeamMessage], *, counter: TokenCounter, now: datetime) -> list[Message]:
    """Return rows for messages, not stored yet and without a place, counted before any lock."""
    rows = []
    for message in said:
        row = messages.spoken(message)
        row.metadata = {"team_id": message.id}
        row.created_at = now
        messages.set_token_count(row, counter=counter)
        rows.append(row)
    return rows


def store(rows: Sequence[Message], *, chat: Chat, branch: Branch, now: datetime) -> None:
    """Store the rows as the first messages of an empty branch; the caller has locked the chat."""
    for seq, row in enumerate(rows, start=1):
        row.branch, row.seq, row.accepted = branch, seq, messages.next_accepted(chat=chat)
    Message.objects.bulk_create(rows, batch_size=PAGE)
    branch.last_seq = len(rows)
    branch.save(update_fields=["last_seq"])
    chat.updated_at = now
    chat.save(update_fields=["accepted_count", "updated_at"])


@transaction.atomic
def clear(*, chat: Chat, actor: str, now: datetime) -> Chat:
    """Begin again at `msg-1`, without messages and task; always tells of the task.

    Raises `TooManyBranches`.
    """
    chat = chat_to_write_in(chat.pk)
    branch = open_empty_branch(chat, cause="cleared", actor=actor, now=now)
    ledger.record(
        "team.cleared", actor=actor, now=now, chat_id=chat.pk, data={"branch": str(branch.pk)}
    )
    return conversation.change_task(chat=chat, task=None, actor=actor, now=now)
