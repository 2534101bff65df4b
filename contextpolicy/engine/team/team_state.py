"""A team's messages and task as one state: add, read, clear, export, import.

Ids are `msg-N` from 1. Hooks run after the change is stored; a failing hook does not undo the
change.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from contextpolicy.engine.team.team import (
    MAX_BYTES,
    WINDOW_SIZE,
    AgentContext,
    InvalidTeamMessage,
    TeamMessage,
    cut_team_task,
    read_team_message,
    select_agent_context,
    serialize_speaker,
)

logger = logging.getLogger(__name__)

SNAPSHOT_VERSION = 1
# More digits than any counter reaches do not count as a number.
_OWN_ID = re.compile(r"msg-([0-9]{1,15})")

Value = TypeVar("Value")


class InvalidSnapshot(ValueError):
    """A team's snapshot is malformed or has another version; the state is unchanged."""

    code = "invalid_snapshot"


class TeamState:
    """The messages and the task of one team's chat, in memory.

    Adding and clearing cost O(1), the context of an agent O(window).
    """

    def __init__(
        self,
        *,
        window_size: int = WINDOW_SIZE,
        max_bytes: int = MAX_BYTES,
        on_message_added: Callable[[TeamMessage], None] | None = None,
        on_team_task_changed: Callable[[str | None], None] | None = None,
    ) -> None:
        self._window_size = window_size
        self._max_bytes = max_bytes
        self._on_message_added = on_message_added
        self._on_team_task_changed = on_team_task_changed
        self._messages: list[TeamMessage] = []
        self._team_task: str | None = None
        self._next_id = 1

    def add_message(self, data: object) -> TeamMessage:
        """Store a message (JSON form as in `team.read_team_message`) under the next id.

        Raises InvalidTeamMessage; a rejected message takes no id and calls no hook.
        """
        message = read_team_message(data, id=f"msg-{self._next_id}")
        self._next_id += 1
        self._messages.append(message)
        logger.debug("[ContextManager] Message added: %s", message.id)
        _tell(self._on_message_added, message)
        return message

    def messages(self) -> list[TeamMessage]:
        """Return a copy of the list of all messages, in order."""
        return list(self._messages)

    def find_latest_message(self) -> TeamMessage | None:
        """Return the newest message, or None in an empty chat."""
        return self._messages[-1] if self._messages else None

    @property
    def team_task(self) -> str | None:
        """The task of the team; None until it is set."""
        return self._team_task

    def set_team_task(self, task: str) -> None:
        """Set the task, cut to 5,120 bytes; the hook gets the stored task."""
        self._change_task(cut_team_task(task))

    def context_for_agent(
        self,
        agent_id: str,
        agent_type: str,
        *,
        window_size_override: int | None = None,
        system_instruction: str | None = None,
        instruction_file_text: str | None = None,
    ) -> AgentContext:
        """Select the part of the chat that an agent gets now. Raises NegativeWindow."""
        override = window_size_override
        return select_agent_context(
            self._messages,
            agent_id=agent_id,
            agent_type=agent_type,
            team_task=self._team_task,
            window_size=self._window_size if override is None else override,
            max_bytes=self._max_bytes,
            system_instruction=system_instruction,
            instruction_file_text=instruction_file_text,
        )

    def clear(self) -> None:
        """Remove messages and task and restart at `msg-1`; always calls the task's hook."""
        self._messages = []
        self._next_id = 1
        self._change_task(None)

    def export_snapshot(self, *, now_ms: int) -> dict[str, object]:
        """Return the state as a JSON-serialisable object.

        `now_ms`: the current time in milliseconds.
        """
        return {
            "messages": [dump_team_message(message) for message in self._messages],
            "teamTask": self._team_task,
            "timestamp": now_ms,
            "version": SNAPSHOT_VERSION,
        }

    def import_snapshot(self, snapshot: object) -> None:
        """Replace the state with an exported one; the next id follows the highest `msg-N`.

        Calls the hook of the task, but not the hook of messages. Raises InvalidSnapshot before
        any change.
        """
        messages, task = read_snapshot(snapshot)
        self._messages = messages
        self._next_id = compute_next_number(messages)
        self._change_task(task)

    def _change_task(self, task: str | None) -> None:
        self._team_task = task
        _tell(self._on_team_task_changed, task)


def dump_team_message(message: TeamMessage) -> dict[str, object]:
    """Return a message with its id, in the format that `team.read_team_message` parses."""
    return {
        "id": message.id,
        "content": message.content,
        "speaker": serialize_speaker(message.speaker),
        "routing": {"resolvedAddressees": list(message.addressees)},
    }


def _tell(hook: Callable[[Value], None] | None, value: Value) -> None:
    if hook is None:
        return
    try:
        hook(value)
    except Exception as error:  # noqa: BLE001 - a failing hook must not undo the stored change
        # The error's text may quote a message, so only its type is logged.
        logger.warning("[ContextManager] A hook failed: %s", type(error).__name__)


def read_snapshot(snapshot: object) -> tuple[list[TeamMessage], str | None]:
    """Return the messages and the task of an exported state; the task is cut to 5,120 bytes.

    Raises InvalidSnapshot.
    """
    fields = snapshot if isinstance(snapshot, Mapping) else {}
    version, listed, task = (fields.get(name) for name in ("version", "messages", "teamTask"))
    is_known = version == SNAPSHOT_VERSION and not isinstance(version, bool)
    if not is_known or not isinstance(listed, list) or not isinstance(task, str | None):
        raise InvalidSnapshot("Invalid snapshot format")
    messages = [_read_message(item) for item in listed]
    if len({message.id for message in messages}) < len(messages):
        raise InvalidSnapshot("Invalid snapshot format")
    return messages, task if task is None else cut_team_task(task)


def _read_message(item: object) -> TeamMessage:
    own_id = item.get("id") if isinstance(item, Mapping) else None
    if not isinstance(own_id, str) or not own_id:
        raise InvalidSnapshot("Invalid snapshot format")
    try:
        return read_team_message(item, id=own_id)
    except InvalidTeamMessage as error:
        raise InvalidSnapshot("Invalid snapshot format") from error


def compute_next_number(messages: Iterable[TeamMessage]) -> int:
    """Return the number that follows the highest `msg-N`; ids in another format count as 0."""
    return 1 + max((_number(message.id) for message in messages), default=0)


def _number(own_id: str) -> int:
    match = _OWN_ID.fullmatch(own_id)
    return int(match.group(1)) if match else 0
