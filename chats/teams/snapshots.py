"""Snapshots of a team's chat: export, import, and clearing the chat.

A snapshot is {messages, teamTask, timestamp, version}. Import and clearing delete nothing: both
open an empty branch, and earlier messages stay on the previous branch for readers and the audit.
"""

from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.actions.branching import open_empty_branch
from chats.compaction import message_cap
from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Message
from chats.record import history, messages
from chats.record.locking import lock_chat_for_writing
from chats.record.message_commitments import build_stored_data, seal_message
from chats.record.message_text import check_characters
from chats.teams import conversation
from chats.turns.start import ChatFull, get_active_branch
from contextpolicy import ledger
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.team import team_state
from contextpolicy.engine.team.team import TeamMessage, count_utf8_bytes
from contextpolicy.engine.text import names

# Rows per batch.
PAGE = 500
# Limits that allow every snapshot to be imported again, whatever its size as JSON.
MOST_MESSAGES = 40_000
MOST_BYTES = 5 * 1024 * 1024
# Maximum characters of a message id in a snapshot.
LONGEST_ID = 100


class SnapshotTooLarge(Refusal):
    """The chat has more than 40,000 messages or 5 MiB of text. Read its messages page by page."""

    code = "snapshot_too_large"
    status = 409
    sentence = gettext_noop(
        "A snapshot can have up to {messages:,} messages and {bytes:,} bytes of text. This chat has"
        " more. Read its messages page by page."
    )

    def __init__(self) -> None:
        super().__init__(messages=MOST_MESSAGES, bytes=MOST_BYTES)


class SnapshotRefused(Refusal):
    """The snapshot is not an export of version 1, or contains an invalid id."""

    code = "invalid_snapshot"
    status = 422
    sentence = gettext_noop("Invalid snapshot format")
    param = "snapshot"


def export_team_snapshot(*, chat: Chat, now: datetime) -> dict[str, object]:
    """Return the chat's messages and task as a snapshot; erased messages have empty text.

    Queued messages are not included. Raises `SnapshotTooLarge`.
    """
    branch = get_active_branch(chat)
    if branch.last_seq > MOST_MESSAGES:
        raise SnapshotTooLarge
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by("seq")
    told: list[dict[str, object]] = []
    size = 0
    for row in rows.iterator(chunk_size=PAGE):
        seen = conversation.build_visible_message(row, branch=branch, chat=chat)
        size += count_utf8_bytes(seen.content)
        if size > MOST_BYTES:
            raise SnapshotTooLarge
        told.append(team_state.dump_team_message(seen))
    return {
        "messages": told,
        "teamTask": chat.team_task,
        "timestamp": int(now.timestamp() * 1000),
        "version": team_state.SNAPSHOT_VERSION,
    }


def import_team_snapshot(
    *, chat: Chat, snapshot: object, counter: TokenCounter, actor: str, now: datetime
) -> Chat:
    """Replace the team's view with a snapshot; the next id follows its highest `msg-N`.

    Sends `task_changed` once, and no signal for the messages. Raises `SnapshotRefused`, `ChatFull`,
    `TooManyBranches`, `PolicyRefused`, and the errors of `conversation.check_words`.
    """
    try:
        said, task = team_state.read_snapshot(snapshot)
    except team_state.InvalidSnapshot as error:
        raise SnapshotRefused from error
    if not all(
        len(message.id) <= LONGEST_ID and names.is_allowed_name(message.id) for message in said
    ):
        raise SnapshotRefused
    if len(said) > settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)
    limit = conversation.find_message_limit(chat)
    for message in said:
        conversation.check_words(message, limit=limit)
    check_characters(task or "")
    rows = build_snapshot_rows(said, counter=counter, now=now)
    with transaction.atomic():
        chat = lock_chat_for_writing(chat.pk)
        branch = open_empty_branch(
            chat,
            cause="snapshot",
            actor=actor,
            now=now,
            team_id_offset=team_state.compute_next_number(said) - 1 - len(said),
        )
        store_snapshot_rows(rows, chat=chat, branch=branch, now=now)
        if message_cap.is_over_message_cap(branch, cap=message_cap.get_message_cap(chat)):
            queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
        ledger.record_event(
            "team.imported",
            actor=actor,
            now=now,
            chat_id=chat.pk,
            data={
                "branch": str(branch.pk),
                "messages": len(said),
                **build_stored_data(rows),
            },
        )
        return conversation.change_task(chat=chat, task=task, actor=actor, now=now)


def build_snapshot_rows(
    said: Sequence[TeamMessage], *, counter: TokenCounter, now: datetime
) -> list[Message]:
    """Return unsaved rows for messages, without a position. Tokens are counted before any lock."""
    rows = []
    for message in said:
        row = messages.build_unsaved_message(message)
        row.metadata = {"team_id": message.id}
        row.created_at = now
        messages.set_token_count(row, counter=counter)
        rows.append(row)
    return rows


def store_snapshot_rows(
    rows: Sequence[Message], *, chat: Chat, branch: Branch, now: datetime
) -> None:
    """Store the rows as the first messages of an empty branch. The caller has locked the chat."""
    for seq, row in enumerate(rows, start=1):
        row.branch, row.seq, row.accepted = (
            branch,
            seq,
            messages.increment_accepted_count(chat=chat),
        )
        seal_message(row)
    Message.objects.bulk_create(rows, batch_size=PAGE)
    branch.last_seq = len(rows)
    branch.save(update_fields=["last_seq"])
    chat.updated_at = now
    chat.save(update_fields=["accepted_count", "updated_at"])


@transaction.atomic
def clear_team_chat(*, chat: Chat, actor: str, now: datetime) -> Chat:
    """Clear messages and task; the next message is `msg-1`. Always sends the task's signal.

    Raises `TooManyBranches`.
    """
    chat = lock_chat_for_writing(chat.pk)
    branch = open_empty_branch(chat, cause="cleared", actor=actor, now=now)
    ledger.record_event(
        "team.cleared", actor=actor, now=now, chat_id=chat.pk, data={"branch": str(branch.pk)}
    )
    return conversation.change_task(chat=chat, task=None, actor=actor, now=now)
