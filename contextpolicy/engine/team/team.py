"""The context of a team: messages with speakers and recipients, and the part for one agent.

Value types and pure functions; `team_state` keeps a team's messages and task. Markers are removed
only from prompts.
"""

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.history.truncation import find_border_before
from contextpolicy.engine.team.markers import strip_markers

logger = logging.getLogger(__name__)

WINDOW_SIZE = 5
MAX_BYTES = 768 * 1024
TEAM_TASK_BYTES = 5 * 1024

SpeakerType = Literal["human", "ai"]


@dataclass(frozen=True, slots=True)
class Speaker:
    """The author of a message: a unique id, and a name that may be shared."""

    role_id: str
    role_name: str
    type: SpeakerType


def serialize_speaker(speaker: Speaker) -> dict[str, str]:
    """Return the JSON form of a speaker, for storage and the API."""
    return {"roleId": speaker.role_id, "roleName": speaker.role_name, "type": speaker.type}


@dataclass(frozen=True, slots=True)
class TeamMessage:
    """A message of a team's chat; `addressees`: names of the recipients, empty for all members."""

    id: str
    content: str
    speaker: Speaker
    addressees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """An earlier message as sent to an agent: without id and markers."""

    sender: str
    to: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """The part of a chat that one agent gets.

    `agent_formats.assemble_prompt` turns it into a prompt. `left_out` contains (message id, reason)
    for the earlier messages that are not among `context_messages`: `window`,
    `duplicate_of_current`, `markers_only`. The newest message outside the window represents all
    messages that the window leaves out.
    """

    agent_id: str
    agent_type: str
    context_messages: tuple[ContextMessage, ...]
    current_message: str
    team_task: str | None
    system_instruction: str | None
    instruction_file_text: str | None
    max_bytes: int = MAX_BYTES
    left_out: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the agent's input in its JSON form for the API."""
        return {
            "contextMessages": [
                {"from": item.sender, "to": item.to, "content": item.content}
                for item in self.context_messages
            ],
            "currentMessage": self.current_message,
            "teamTask": self.team_task,
            "systemInstruction": self.system_instruction,
            "instructionFileText": self.instruction_file_text,
            "maxBytes": self.max_bytes,
        }


class InvalidTeamMessage(TypeError):
    """A team message lacks a field. `code` and the text are part of the API contract."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class NegativeWindow(ValueError):
    """The requested window size is negative."""

    code = "negative_window"


def read_team_message(data: object, *, id: str) -> TeamMessage:  # noqa: A002 - the field's name
    """Parse a message from its JSON form {content, speaker {roleId, roleName, type}, routing}.

    An id in `data` is ignored. A speaker without a name gets the role id as its name; a type that
    is not `ai` counts as human. Other fields are dropped. Raises InvalidTeamMessage.
    """
    if data is None:
        raise InvalidTeamMessage("message_required", "Message cannot be null or undefined")
    fields = data if isinstance(data, Mapping) else {}
    content = fields.get("content")
    if not isinstance(content, str):
        raise InvalidTeamMessage("content_not_text", "Message content must be a string")
    speaker = fields.get("speaker")
    if not speaker and not isinstance(speaker, Mapping):
        raise InvalidTeamMessage("speaker_required", "Message speaker is required")
    return TeamMessage(id, content, _speaker(speaker), _addressees(fields.get("routing")))


def _speaker(data: object) -> Speaker:
    fields = data if isinstance(data, Mapping) else {}
    role_id, name = fields.get("roleId"), fields.get("roleName")
    if not isinstance(role_id, str) or not role_id:
        raise InvalidTeamMessage("role_id_required", "Message speaker.roleId is required")
    is_named = isinstance(name, str) and name
    return Speaker(
        role_id, str(name) if is_named else role_id, "ai" if fields.get("type") == "ai" else "human"
    )


def _addressees(routing: object) -> tuple[str, ...]:
    names = routing.get("resolvedAddressees") if isinstance(routing, Mapping) else None
    if not isinstance(names, list | tuple):
        return ()
    return tuple(name for name in names if isinstance(name, str))


def format_recipients(names: Sequence[str]) -> str:
    """Format the recipients of a message: `all`, a name, or names separated by commas."""
    return ", ".join(names) if names else "all"


def cut_team_task(task: str) -> str:
    """Cut the task to 5,120 bytes of UTF-8, between characters.

    It is the only text that is cut instead of rejected, because agents repeat it as a heading. The
    cut is logged with both sizes.
    """
    size = count_utf8_bytes(task)
    if size <= TEAM_TASK_BYTES:
        return task
    # Each character takes at least one byte, so only that many characters are checked.
    lengths = range(TEAM_TASK_BYTES + 1)
    fitting = bisect_right(lengths, TEAM_TASK_BYTES, key=lambda n: count_utf8_bytes(task[:n])) - 1
    kept = task[: find_border_before(task, fitting)]
    logger.warning(
        "[ContextManager] TeamTask exceeded 5KB limit (%d bytes), truncated to %d bytes",
        size,
        count_utf8_bytes(kept),
    )
    return kept


def count_utf8_bytes(text: str) -> int:
    """Return the UTF-8 length of a text in bytes; a lone surrogate counts as three."""
    return len(text.encode("utf-8", "surrogatepass"))


def select_agent_context(
    messages: Sequence[TeamMessage],
    *,
    agent_id: str,
    agent_type: str,
    team_task: str | None = None,
    window_size: int = WINDOW_SIZE,
    max_bytes: int = MAX_BYTES,
    system_instruction: str | None = None,
    instruction_file_text: str | None = None,
) -> AgentContext:
    """Select the part of a team's chat that an agent gets, regardless of recipients.

    The newest message is separate. The `window_size` messages before it are included, except
    messages that contain only markers. The last of them is also omitted if the newest message is an
    agent's and repeats it. The cost does not depend on the length of the chat. Raises
    NegativeWindow.
    """
    if window_size < 0:
        raise NegativeWindow(
            f"The window is {window_size}. Give 0 for no earlier messages, or a positive number."
        )
    current = messages[-1] if messages else None
    earlier = max(0, len(messages) - 1)
    start = max(0, earlier - window_size)
    shown = [(message, strip_markers(message.content)) for message in messages[start:earlier]]
    left = [(messages[start - 1].id, "window")] if start else []
    if current is not None and shown and _repeats(current, *shown[-1]):
        left.append((shown.pop()[0].id, "duplicate_of_current"))
        logger.debug("[ContextManager] Deduplicated context for AI→AI")
    left += [(message.id, "markers_only") for message, text in shown if not text]
    return AgentContext(
        agent_id=agent_id,
        agent_type=agent_type,
        context_messages=tuple(
            ContextMessage(message.speaker.role_name, format_recipients(message.addressees), text)
            for message, text in shown
            if text
        ),
        current_message=strip_markers(current.content) if current else "",
        team_task=team_task,
        system_instruction=system_instruction,
        instruction_file_text=instruction_file_text,
        max_bytes=max_bytes,
        left_out=tuple(left),
    )


def _repeats(current: TeamMessage, last: TeamMessage, last_text: str) -> bool:
    """Return True if the last earlier message equals the current one.

    Only an agent's message counts as repeated, never a user's.
    """
    if current.speaker.type != "ai":
        return False
    is_same_speaker = last.speaker.role_id == current.speaker.role_id
    return last.id == current.id or (
        is_same_speaker and last_text == strip_markers(current.content)
    )
