"""The context of a team: messages with speakers and addressees, and the part one agent is shown.

Values and pure functions; `team_state` keeps a team's messages and task. Markers are removed on
the prompt's view only.
"""

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.markers import strip_markers
from contextpolicy.engine.truncation import border_before

logger = logging.getLogger(__name__)

WINDOW_SIZE = 5
MAX_BYTES = 768 * 1024
TEAM_TASK_BYTES = 5 * 1024

SpeakerType = Literal["human", "ai"]


@dataclass(frozen=True, slots=True)
class Speaker:
    """The one who says something: an id of their own, and a name that others may have too."""

    role_id: str
    role_name: str
    type: SpeakerType


def speaker_json(speaker: Speaker) -> dict[str, str]:
    """Return a speaker in the form that is stored and that integrators read."""
    return {"roleId": speaker.role_id, "roleName": speaker.role_name, "type": speaker.type}


@dataclass(frozen=True, slots=True)
class TeamMessage:
    """A message of a team's chat; `addressees` are the resolved names, none for everybody."""

    id: str
    content: str
    speaker: Speaker
    addressees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """An earlier message as an agent is shown it: without an id and without markers."""

    sender: str
    to: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """The part of a chat that one agent is shown; `agentformats.assemble_prompt` makes its prompt.

    `left_out` names (message id, reason) of the earlier messages that are not among
    `context_messages`: `window`, `duplicate_of_current`, `markers_only`. For all messages before
    the window the newest of them is named, as `window`.
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
        """Return the agent's input in the form that integrators read."""
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
    """A team message lacks something; `code` is stable, the text is the integrators' contract."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class NegativeWindow(ValueError):
    """A window of less than no message was asked for."""

    code = "negative_window"


def team_message(data: object, *, id: str) -> TeamMessage:  # noqa: A002 - the field's name
    """Read a message from its JSON form {content, speaker {roleId, roleName, type}, routing}.

    An id in `data` is ignored. Without a name the speaker is called by the role id; a type that is
    not `ai` counts as human. Fields beyond these are not kept. Raises InvalidTeamMessage.
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


def addressed(names: Sequence[str]) -> str:
    """Say to whom a message goes: `all`, a name, or names with commas between."""
    return ", ".join(names) if names else "all"


def cut_team_task(task: str) -> str:
    """Cut the task to 5,120 bytes of UTF-8, at a border between characters.

    The one text that is cut instead of refused: it is a heading that agents repeat, and the cut is
    logged with both sizes.
    """
    size = byte_count(task)
    if size <= TEAM_TASK_BYTES:
        return task
    # Each character takes a byte at least, so only that many have to be looked at.
    lengths = range(TEAM_TASK_BYTES + 1)
    fitting = bisect_right(lengths, TEAM_TASK_BYTES, key=lambda n: byte_count(task[:n])) - 1
    kept = task[: border_before(task, fitting)]
    logger.warning(
        "[ContextManager] TeamTask exceeded 5KB limit (%d bytes), truncated to %d bytes",
        size,
        byte_count(kept),
    )
    return kept


def byte_count(text: str) -> int:
    """Count the bytes of the text as UTF-8; half of a surrogate pair counts as three."""
    return len(text.encode("utf-8", "surrogatepass"))


def context_for_agent(
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
    """Choose what an agent is shown of a team's chat, whoever a message is addressed to.

    The newest message stands apart; of those before it the newest `window_size` go along, except
    one that repeats it and those that are nothing but markers. The cost follows the window. Raises
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
            ContextMessage(message.speaker.role_name, addressed(message.addressees), text)
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
    """Tell whether the last earlier message is the current one again.

    Only an agent's message counts as repeated, never a person's.
    """
    if current.speaker.type != "ai":
        return False
    is_same_speaker = last.speaker.role_id == current.speaker.role_id
    return last.id == current.id or (
        is_same_speaker and last_text == strip_markers(current.content)
    )
