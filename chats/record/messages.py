"""The only writer of messages besides `message_erasure`: check, accept, assign, append, mark."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, cast

from django.db.models import F

from chats.models import Branch, Chat, Message, MessageFile, Turn
from chats.record import statements
from chats.record.images import Bytes, iter_part_hashes, store_message_images
from chats.record.message_commitments import Sealed, has_changed_content, seal_again, seal_message
from contextpolicy import ledger
from contextpolicy.engine.messages.messages import Part, Role, parse_parts, serialize_parts
from contextpolicy.engine.messages.tokens import TokenCounter, count_uncut_tokens
from contextpolicy.engine.team.team import TeamMessage, serialize_speaker
from speed import prepared

# The columns that `add_results` changes.
RESULT_COLUMNS = ("parts", "contains_files", "token_count", "counter_version", "salt", "commitment")


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file attached to a new message: its id, its part, and an image's bytes for models.

    The id is None if no file is stored, for example for an image from an API client.
    """

    file_id: uuid.UUID | None
    part: Mapping[str, str]
    image: Bytes | None = None


class Counted(NamedTuple):
    """A token count, and the version of the counter."""

    tokens: int
    version: str


def build_question_parts(
    text: str, *, files: Sequence[Mapping[str, str]]
) -> list[Mapping[str, str]]:
    """Return the parts of a user message: its files, then its text unless it has only files."""
    if files and not text.strip():
        return list(files)
    return [*files, {"type": "text", "text": text}]


def increment_accepted_count(*, chat: Chat) -> int:
    """Increment a chat's number of accepted messages in memory, and return it.

    The caller has locked the chat, and saves `accepted_count` afterwards.
    """
    chat.accepted_count += 1
    return chat.accepted_count


def store_waiting_message(
    *,
    chat: Chat,
    branch: Branch,
    text: str,
    now: datetime,
    addressees: Sequence[str] = (),
    speaker: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    files: Sequence[AttachedFile] = (),
) -> Message:
    """Store a waiting user message. It gets its seq when a turn starts to reply to it.

    `speaker` is the human team member in whose name it is written. `metadata` is stored unchanged.
    The caller has locked the `files`.
    """
    message = Message(
        branch=branch,
        accepted=increment_accepted_count(chat=chat),
        role=Message.Role.USER,
        parts=build_question_parts(text, files=[file.part for file in files]),
        speaker=speaker,
        addressees=list(addressees),
        metadata=dict(metadata or {}),
        created_at=now,
    )
    prepared.insert_row(seal_message(message))
    for file in files:
        store_message_file(message, file=file)
    return message


def store_message_file(message: Message, *, file: AttachedFile) -> None:
    """Store the link between a new message and a file, and an image's bytes for prompts."""
    if file.file_id is not None:
        MessageFile.objects.create(message=message, file_id=file.file_id)
    if file.image is not None:
        sha256 = next(iter(iter_part_hashes([file.part])))
        store_message_images([message], found={sha256: file.image})


def list_waiting_messages(*, branch_id: uuid.UUID) -> Sequence[Message]:
    return statements.WAITING_MESSAGES.rows(branch=branch_id)


def has_waiting_messages(*, branch_id: uuid.UUID) -> bool:
    return bool(statements.FIRST_WAITING.tuples(branch=branch_id))


def take_up(*, turn: Turn, counter: TokenCounter, now: datetime) -> list[Message]:
    """Assign a seq to each waiting message of the turn's branch, and end their turns as absorbed.

    Runs in the caller's transaction, which holds the turn's lease. Returns the messages in order.
    """
    # Only the branch's running turn moves its end, and the caller holds that turn.
    branch = turn.branch
    taken = list(list_waiting_messages(branch_id=branch.pk))
    for message in taken:
        place_waiting_message(message, branch=branch, turn=turn, counter=counter)
    if taken:
        prepared.save_row_fields(branch, "last_seq")
        absorb_queued_turns(turn=turn, taken=taken, chat_id=branch.chat_id, now=now)
    return taken


def place_waiting_message(
    message: Message, *, branch: Branch, turn: Turn | None, counter: TokenCounter
) -> None:
    """Assign the next seq of the branch to a waiting message. The caller saves the branch.

    `turn`: the turn that answers the message. None: no turn answers it yet.
    """
    branch.last_seq += 1
    message.seq, message.turn = branch.last_seq, turn
    set_token_count(message, counter=counter)
    prepared.save_row_fields(message, "seq", "turn", "token_count", "counter_version")


def append_unanswered(message: Message, *, branch: Branch, counter: TokenCounter) -> None:
    """Add a waiting message to the end of its branch without a turn that answers it.

    The caller has locked the chat and the branch, which has no unfinished turn.
    """
    branch.refresh_from_db(fields=["last_seq"])
    place_waiting_message(message, branch=branch, turn=None, counter=counter)
    prepared.save_row_fields(branch, "last_seq")


def absorb_queued_turns(
    *, turn: Turn, taken: Sequence[Message], chat_id: uuid.UUID, now: datetime
) -> None:
    """End the queued turns whose messages this turn answers."""
    if all(message.pk == turn.trigger_id for message in taken):
        return
    others = Turn.objects.filter(trigger__in=taken, status=Turn.Status.QUEUED).exclude(pk=turn.pk)
    if turn.lane:
        # Other lanes of its round answer the same message.
        others = others.exclude(round=turn.round_id, lane__gt=0)
    # Locked before the check: a user may stop one of them now.
    ended = list(others.select_for_update(no_key=True).order_by("accepted"))
    end_absorbed(ended, by=turn, chat_id=chat_id, now=now)


def end_absorbed(
    ended: Sequence[Turn], *, by: Turn | None, chat_id: uuid.UUID, now: datetime
) -> None:
    """End queued turns that another turn replaces. The caller has locked them.

    `by`: the turn that answers their messages. None: no turn answers them yet.
    """
    for other in ended:
        other.status = Turn.Status.ABSORBED
        other.absorbed_by = by
        other.finished_at = now
        other.save(update_fields=["status", "absorbed_by", "finished_at"])
    # The ledger's head is locked last, as everywhere. Stopping one of these turns also locks the
    # turn first.
    for other in ended:
        ledger.record_event(
            "turn.absorbed",
            actor="worker",
            now=now,
            chat_id=chat_id,
            turn_id=other.pk,
            data={"by": str(by.pk) if by is not None else None},
        )


def append_step(
    *,
    turn: Turn,
    chat: Chat,
    parts: Sequence[Mapping[str, Any]],
    finish: str,
    counted: Counted,
    now: datetime,
    kept: bool = False,
    speaker: Mapping[str, str] | None = None,
    addressees: Sequence[str] = (),
) -> Message:
    """Store one assistant message at the end of the branch, in the caller's transaction.

    `kept`: later prompts contain it although it is incomplete. `speaker` and `addressees` are set
    for a team's agents. The caller holds the turn's lease, has locked the chat, and saves its
    `accepted_count` afterwards.
    """
    branch = turn.branch
    branch.last_seq += 1
    prepared.save_row_fields(branch, "last_seq")
    message = Message(
        branch=branch,
        seq=branch.last_seq,
        accepted=increment_accepted_count(chat=chat),
        role=Message.Role.ASSISTANT,
        parts=list(parts),
        speaker=speaker,
        addressees=list(addressees),
        turn=turn,
        model_name=turn.model_name,
        finish=finish,
        kept=kept,
        created_at=now,
    )
    message.token_count, message.counter_version = counted
    prepared.insert_row(seal_message(message))
    return message


def append_spoken(
    *,
    chat: Chat,
    branch: Branch,
    said: TeamMessage,
    counted: Counted,
    now: datetime,
) -> Message:
    """Store a team member's message at the end of the branch, in the caller's transaction.

    The caller has locked the chat, which has no unfinished turn, and saves its `accepted_count`
    afterwards.
    """
    branch.last_seq += 1
    prepared.save_row_fields(branch, "last_seq")
    message = build_unsaved_message(said)
    message.branch, message.seq = branch, branch.last_seq
    message.accepted, message.created_at = increment_accepted_count(chat=chat), now
    message.token_count, message.counter_version = counted
    prepared.insert_row(seal_message(message))
    return message


def build_unsaved_message(said: TeamMessage) -> Message:
    """Return an unsaved row, without seq, of a team member's message."""
    is_ai = said.speaker.type == "ai"
    return Message(
        role=Message.Role.ASSISTANT if is_ai else Message.Role.USER,
        parts=[{"type": "text", "text": said.content}],
        speaker=serialize_speaker(said.speaker),
        addressees=list(said.addressees),
        finish=Message.Finish.STOP if is_ai else "",
    )


def append_sent(
    *,
    chat: Chat,
    branch: Branch,
    said: Sequence[tuple[Role, Sequence[Part]]],
    counter: TokenCounter,
    now: datetime,
) -> list[Message]:
    """Store messages from an API client at the end of the branch, in the caller's transaction.

    The caller has locked the chat, which has no unfinished turn on the branch, and saves its
    `accepted_count` afterwards.
    """
    rows = []
    for role, parts in said:
        branch.last_seq += 1
        row = Message(
            branch=branch,
            seq=branch.last_seq,
            accepted=increment_accepted_count(chat=chat),
            role=Message.Role.USER if role == "user" else Message.Role.ASSISTANT,
            parts=serialize_parts(parts),
            finish="" if role == "user" else Message.Finish.STOP,
            created_at=now,
        )
        set_token_count(row, counter=counter)
        rows.append(seal_message(row))
    if len(rows) == 1:
        prepared.insert_row(rows[0])
    else:
        Message.objects.bulk_create(rows, batch_size=200)
    prepared.save_row_fields(branch, "last_seq")
    return rows


def add_results(message: Message, *, results: Sequence[Part], counter: TokenCounter) -> Sealed:
    """Append the results of a client's tools, and their images, to the calls of a reply.

    Returns the new commitment. Runs in the caller's transaction, which has locked the chat and
    records the commitment.
    """
    has_changed = has_changed_content(message)
    message.parts = [*message.parts, *serialize_parts(results)]
    message.contains_files = message.has_files
    message.token_count = None
    set_token_count(message, counter=counter)
    sealed = seal_again(message, has_changed=has_changed)
    message.save(update_fields=RESULT_COLUMNS)
    return sealed


def set_token_count(message: Message, *, counter: TokenCounter) -> None:
    """Set the message's token count if it is missing or outdated. The caller saves the message."""
    if message.token_count is None or message.counter_version != counter.version:
        counted = count_parts_tokens(message.parts, role=message.role, counter=counter)
        message.token_count, message.counter_version = counted


def count_parts_tokens(
    parts: Sequence[Mapping[str, Any]], *, role: str, counter: TokenCounter
) -> Counted:
    """Return the token count of a message with these parts, and the counter's version."""
    read = parse_parts(parts)
    return Counted(count_uncut_tokens(read, cast(Role, role), counter), counter.version)


def mark_message(
    message: Message, *, actor: str, event: str, now: datetime, **values: Any
) -> Message:
    """Set marks of a message and record the event, in the caller's transaction.

    `values`: `pinned_at`, `excluded` or `kept`. `data` is only added to the event. All branches of
    the chat get a new `marks_revision`, because each may contain the message.
    """
    data = values.pop("data", {})
    for name, value in values.items():
        setattr(message, name, value)
    message.save(update_fields=list(values))
    branches = Branch.objects.filter(chat=message.branch.chat_id)
    branches.update(marks_revision=F("marks_revision") + 1)
    ledger.record_event(
        event,
        actor=actor,
        now=now,
        chat_id=message.branch.chat_id,
        data={"message": str(message.pk), "seq": message.seq, **data},
    )
    return message
