"""Messages of a team chat: add, read, and build an agent's context.

The messages are those of the chat's active branch, numbered `msg-1`, `msg-2` and so on for the
team. Each has a speaker: a role, or without a role the owner or the chat's model. The page, the
server's prompts and agents' contexts use the same rows.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext, gettext_noop

from chats.compaction import message_cap
from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, KeptText, Message, TeamVersion, Turn
from chats.models.turns import UNFINISHED
from chats.prompt import model_choice
from chats.record import history, kept_texts, messages
from chats.record.idempotency import IdempotentRequest
from chats.record.locking import lock_chat_for_writing
from chats.record.message_commitments import build_stored_data
from chats.record.message_text import MESSAGE_CEILING, MessageTooLong, check_characters
from chats.teams import signals
from chats.turns.derived_titles import derive_title
from chats.turns.roster import select_current_version
from chats.turns.start import ChatFull, get_active_branch
from contextpolicy import ledger, resolution
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.team import team
from contextpolicy.engine.team.agent_formats import (
    AgentPrompt,
    AgentPromptTooLarge,
    assemble_prompt,
    normalise_agent_type,
)
from contextpolicy.engine.team.team import Speaker, TeamMessage
from contextpolicy.engine.text import names
from speed import prepared

logger = logging.getLogger(__name__)

# Maximum earlier messages in an agent's context.
LARGEST_WINDOW = 100
# In characters: ids and names of roles, and agent types.
LONGEST_NAME = 200
MOST_ADDRESSEES = 50
# In characters: an instruction, and the text of an instruction file.
LONGEST_INSTRUCTION = 200_000


class TeamMessageRefused(Refusal):
    """A message lacks a required field. The error message names the field."""

    status = 422
    sentence = "{reason}"
    param = "message"

    def __init__(self, error: team.InvalidTeamMessage) -> None:
        super().__init__(reason=str(error))
        self.code = error.code


class InvalidSpeaker(Refusal):
    """Over 50 recipients, or a role id, role name or recipient without 1 to 200 characters."""

    code = "invalid_speaker"
    status = 422
    sentence = gettext_noop(
        "Role IDs, role names and recipients must have 1 to {limit} printable characters. A "
        "message can have up to {most} recipients."
    )
    param = "message"


class ReplyUnderWay(Refusal):
    """A reply is being written in the chat. Retry after the reply has ended."""

    code = "reply_under_way"
    status = 409
    sentence = gettext_noop(
        "A reply is being written in this chat. Add the message when the reply is finished."
    )
    retry_after = 2


class InvalidWindow(Refusal):
    """The window is not a number from 0 to 100."""

    code = "invalid_window"
    status = 422
    sentence = gettext_noop(
        "The window is {size}. Enter a number from 0 (no earlier messages) to {limit}."
    )
    param = "windowSizeOverride"


class InstructionTooLong(Refusal):
    """An instruction has more than 200,000 characters. Instructions are never truncated."""

    code = "too_long"
    status = 422
    sentence = gettext_noop(
        "The instruction has {length:,} characters. The limit is {limit:,}. Shorten the "
        "instruction."
    )

    def __init__(self, *, param: str, length: int) -> None:
        super().__init__(length=length, limit=LONGEST_INSTRUCTION)
        self.param = param


class PromptTooLarge(Refusal):
    """The newest message and the instructions exceed `maxBytes`."""

    code = "agent_prompt_too_large"
    status = 422
    sentence = "{reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedAgent:
    """An agent as requested: id, type, window and instructions."""

    agent_id: str
    agent_type: str = ""
    window_size: int = team.WINDOW_SIZE
    system_instruction: str | None = None
    instruction_file_text: str | None = None


@dataclass(frozen=True, slots=True)
class AddedMessage:
    """A stored message, and the team's view of it.

    `repeated`: its idempotency key was used before, so nothing new was stored.
    """

    row: Message
    message: TeamMessage
    repeated: bool = False


def add_message(
    *,
    user: AbstractBaseUser,
    chat: Chat,
    data: object,
    counter: TokenCounter,
    now: datetime,
    idempotency_key: str = "",
) -> AddedMessage:
    """Store a member's message at the end of the chat, without requesting a reply.

    If the chat then exceeds its team's message cap, the oldest messages leave prompts in the
    background.

    `data` is {content, speaker {roleId, roleName, type}, routing {resolvedAddressees}}; an id in it
    is ignored. Raises `TeamMessageRefused`, `InvalidSpeaker`, `InvalidCharacter`, `MessageTooLong`,
    `ReplyUnderWay`, `ChatFull`, `PolicyRefused`, and the errors of the idempotency key.
    """
    message = validate_team_message(chat, data)
    body = json.dumps(data, sort_keys=True)
    keyed = IdempotentRequest(user=user, route=f"team:{chat.pk}", key=idempotency_key, body=body)
    parts = [{"type": "text", "text": message.content}]
    role = Message.Role.ASSISTANT if message.speaker.type == "ai" else Message.Role.USER
    counted = messages.count_parts_tokens(parts, role=role, counter=counter)
    with transaction.atomic():
        chat = lock_chat_for_writing(chat.pk)
        if known := keyed.find(now=now):
            row = Message.objects.select_related("branch").get(pk=known["message"])
            return AddedMessage(
                row, build_visible_message(row, branch=row.branch, chat=chat), repeated=True
            )
        branch = get_active_branch(chat)
        check_can_append(branch)
        row = messages.append_spoken(
            chat=chat, branch=branch, said=message, counted=counted, now=now
        )
        if not chat.title and message.content.strip():
            chat.title = derive_title(message.content)
        chat.updated_at = now
        prepared.save_row_fields(chat, "title", "updated_at", "accepted_count")
        added = build_visible_message(row, branch=branch, chat=chat)
        ledger.record_event(
            "team.message_added",
            actor=f"user:{user.pk}",
            now=now,
            chat_id=chat.pk,
            data={
                "message": str(row.pk),
                "seq": row.seq,
                "characters": len(message.content),
                **build_stored_data([row]),
            },
        )
        keyed.remember(result={"message": str(row.pk)}, now=now)
        if message_cap.is_over_message_cap(branch, cap=message_cap.get_message_cap(chat)):
            queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
        signals.send_signal_on_commit(signals.message_added, chat_id=chat.pk, message=added)
    logger.debug("[ContextManager] Message added: %s", added.id)
    return AddedMessage(row, added)


def validate_team_message(chat: Chat, data: object) -> TeamMessage:
    """Return the message in `data` if it can be stored in the chat.

    Raises `TeamMessageRefused`, `InvalidSpeaker`, `InvalidCharacter`, `MessageTooLong` and
    `PolicyRefused`.
    """
    try:
        message = team.read_team_message(data, id="")
    except team.InvalidTeamMessage as error:
        raise TeamMessageRefused(error) from error
    check_words(message, limit=find_message_limit(chat))
    return message


def find_message_limit(chat: Chat) -> int:
    """Return the maximum characters of a message under the chat's policy.

    Raises `PolicyRefused`.
    """
    effective = model_choice.resolve_effective_policy(chat=chat, model=chat.model)
    return min(resolution.load_policy_values(effective).input_length_limit, MESSAGE_CEILING)


def check_words(said: TeamMessage, *, limit: int) -> None:
    """Check speaker and text. Raises `InvalidSpeaker`, `InvalidCharacter` or `MessageTooLong`.

    Empty text is valid.
    """
    names = (said.speaker.role_id, said.speaker.role_name, *said.addressees)
    if len(said.addressees) > MOST_ADDRESSEES or not all(map(is_speaker_name, names)):
        raise InvalidSpeaker(limit=LONGEST_NAME, most=MOST_ADDRESSEES)
    check_characters(said.content)
    if len(said.content) > limit:
        length = len(said.content)
        raise MessageTooLong(length=length, limit=limit, over=length - limit)


def is_speaker_name(text: str) -> bool:
    """Return True if the text is a valid speaker name."""
    return len(text) <= LONGEST_NAME and names.is_allowed_name(text)


def check_can_append(branch: Branch) -> None:
    """Raise `ChatFull` or `ReplyUnderWay` unless a message may be appended to the branch.

    The caller has locked the chat. During a turn, only its worker may append.
    """
    if branch.last_seq >= settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)
    if Turn.objects.filter(branch=branch.pk, status__in=UNFINISHED).exists():
        raise ReplyUnderWay


def find_newest_message(chat: Chat) -> Message | None:
    """Return the newest stored message; None in an empty chat."""
    branch = get_active_branch(chat)
    rows = history.select_path_messages(
        branch, after=branch.last_seq - 1, before=branch.last_seq + 1
    )
    return rows.first()


def build_visible_message(row: Message, *, branch: Branch, chat: Chat) -> TeamMessage:
    number = (row.seq or 0) + branch.team_id_offset
    return TeamMessage(
        id=str(row.metadata.get("team_id") or f"msg-{number}"),
        content=row.text,
        speaker=build_speaker(row, chat=chat),
        addressees=tuple(row.addressees),
    )


def build_speaker(row: Message, *, chat: Chat) -> Speaker:
    """Return the speaker of a message: its role, or without a role the owner or the model."""
    if row.speaker:
        named = row.speaker
        return Speaker(named["roleId"], named["roleName"], named["type"])
    if row.role == Message.Role.USER:
        return Speaker("user", chat.owner.get_username(), "human")
    return Speaker("assistant", row.model_name or "Assistant", "ai")


def assemble_agent_context(*, chat: Chat, agent: RequestedAgent) -> team.AgentContext:
    """Return an agent's context: the newest messages within its window.

    The window never exceeds the cap of the chat's team. Excluded, erased and incomplete messages
    are left out. Raises `InvalidWindow` and `InstructionTooLong`.
    """
    if not 0 <= agent.window_size <= LARGEST_WINDOW:
        raise InvalidWindow(size=agent.window_size, limit=LARGEST_WINDOW)
    given = {
        "systemInstruction": agent.system_instruction,
        "instructionFileText": agent.instruction_file_text,
    }
    for param, text in given.items():
        if text and len(text) > LONGEST_INSTRUCTION:
            raise InstructionTooLong(param=param, length=len(text))
    branch = get_active_branch(chat)
    # The newest message is separate, and one more shows whether there are earlier ones.
    window_size = min(agent.window_size, message_cap.get_message_cap(chat) or LARGEST_WINDOW)
    most = window_size + 2
    backwards = history.select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by(
        "-seq"
    )
    rows = list(islice(filter_sendable_messages(backwards.iterator(chunk_size=most)), most))
    return team.select_agent_context(
        [build_visible_message(row, branch=branch, chat=chat) for row in reversed(rows)],
        agent_id=agent.agent_id,
        agent_type=normalise_agent_type(agent.agent_type),
        team_task=chat.team_task,
        window_size=window_size,
        max_bytes=find_byte_limit(chat),
        system_instruction=agent.system_instruction,
        instruction_file_text=agent.instruction_file_text,
    )


def find_byte_limit(chat: Chat) -> int:
    """Return the maximum bytes of an agent's prompt: the team's limit, or the default."""
    rows = TeamVersion.objects.filter(pk__in=select_current_version(chat)).values_list(
        "max_bytes", flat=True
    )
    return rows.first() or team.MAX_BYTES


def filter_sendable_messages(rows: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages that an agent may see, without steps that only call tools."""
    for row in rows:
        is_spoken = any(part["type"] == "text" for part in row.parts)
        if is_spoken and not (row.excluded or row.erased_at or row.is_incomplete):
            yield row


def build_agent_prompt(*, chat: Chat, agent: RequestedAgent) -> AgentPrompt:
    """Return the agent's prompt in the format of its type.

    Raises `PromptTooLarge` and the errors of `assemble_agent_context`.
    """
    context = assemble_agent_context(chat=chat, agent=agent)
    try:
        return assemble_prompt(agent.agent_type, context)
    except AgentPromptTooLarge as error:
        raise PromptTooLarge(reason=str(error)) from error


def set_task(*, chat: Chat, task: str, actor: str, now: datetime) -> Chat:
    """Set the team's task. A task over 5,120 bytes is truncated.

    A truncation is logged and recorded in the ledger. Raises `InvalidCharacter`.
    """
    check_characters(task)
    kept = team.cut_team_task(task)
    size = team.count_utf8_bytes(task)
    cut = {"cut_from": size} if size > team.count_utf8_bytes(kept) else {}
    return change_task(chat=chat, task=kept, actor=actor, now=now, **cut)


def cut_notice(task: str, *, kept: str) -> str:
    """Return a notice about a truncated task; empty if it is complete."""
    size, left = team.count_utf8_bytes(task), team.count_utf8_bytes(kept)
    if left >= size:
        return ""
    return gettext(
        "The task was longer than 5,120 bytes. The first {left:,} of {size:,} bytes were saved."
    ).format(left=left, size=size)


@transaction.atomic
def change_task(*, chat: Chat, task: str | None, actor: str, now: datetime, **numbers: int) -> Chat:
    """Store the task unchanged and send its signal. The ledger records `numbers`.

    Under a legal hold, the replaced task is kept (`kept_texts`). None removes the task.
    """
    before = lock_chat_for_writing(chat.pk).team_task or ""
    if before != (task or ""):
        kept_texts.keep_chat_text(KeptText.Kind.TEAM_TASK, before, chat=chat, actor=actor, now=now)
    chat.team_task = task
    chat.save(update_fields=["team_task"])
    ledger.record_event(
        "team.task_changed",
        actor=actor,
        now=now,
        chat_id=chat.pk,
        data={"bytes": team.count_utf8_bytes(task or ""), **numbers},
    )
    signals.send_signal_on_commit(signals.task_changed, chat_id=chat.pk, task=task)
    return chat
