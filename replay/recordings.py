"""Reads recorded conversations, one message per line, and groups them into turns.

A line is `{"id", "role", "name", "content", "created_at", "tool_calls"?, "tool_call_id"?}` with the
roles and tool calls of the OpenAI chat format. A call id is unique only until it is answered.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NO_REPLY = "(No reply was recorded.)"


class NotARecording(ValueError):
    """A file is not a valid recording. The message names the file, the line and the fault."""


@dataclass(slots=True)
class RecordedCall:
    """One tool call and its result, if any."""

    call_id: str
    name: str
    arguments: str
    result: str | None = None


@dataclass(slots=True)
class RecordedStep:
    """One recorded reply of the model: its text and its tool calls."""

    text: str
    calls: list[RecordedCall] = field(default_factory=list)


@dataclass(slots=True)
class RecordedTurn:
    """One user message and its replies; the last of them has no tool calls."""

    text: str
    steps: list[RecordedStep] = field(default_factory=list)

    def ended(self) -> "RecordedTurn":
        """Add a final reply if the recording was cut off in this turn, and return the turn."""
        if not self.steps or self.steps[-1].calls:
            self.steps.append(RecordedStep(text=NO_REPLY))
        return self


def load_recording(path: Path) -> list[RecordedTurn]:
    """Read the turns of a recording, each with at least one step. Raises `NotARecording`."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NotARecording(f"{path} cannot be read: {error}.") from error
    messages = [
        parse_recorded_message(line, where=f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    try:
        turns = group_recorded_turns(messages)
    except (KeyError, TypeError) as error:
        raise NotARecording(
            f"{path} has a tool call without an id, or without a function's name and arguments."
        ) from error
    if not turns:
        raise NotARecording(f"{path} has no user message.")
    return turns


def parse_recorded_message(line: str, *, where: str) -> dict[str, Any]:
    """Parse the message of one line. Raises `NotARecording`."""
    try:
        message = json.loads(line)
    except ValueError as error:
        raise NotARecording(f"{where} is not JSON: {error}.") from error
    is_message = isinstance(message, dict) and isinstance(message.get("role"), str)
    if not is_message or not isinstance(message.get("content") or "", str):
        raise NotARecording(
            f'{where} is not a message: each line needs a "role", and a text as its "content".'
        )
    found: dict[str, Any] = message
    return found


def group_recorded_turns(messages: Iterable[dict[str, Any]]) -> list[RecordedTurn]:
    """Group messages into turns, in order.

    Messages before the first user message are left out.
    """
    turns: list[RecordedTurn] = []
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role == "user" and content.strip():
            turns.append(RecordedTurn(text=content.replace("\x00", "")))
        elif role == "assistant" and turns:
            step = RecordedStep(text=content, calls=parse_recorded_calls(message))
            if content.strip() or step.calls:
                turns[-1].steps.append(step)
        elif role == "tool" and turns:
            add_call_result(turns[-1], call_id=message.get("tool_call_id", ""), result=content)
    return [turn.ended() for turn in turns]


def parse_recorded_calls(message: dict[str, Any]) -> list[RecordedCall]:
    return [
        RecordedCall(
            call_id=call["id"],
            name=call["function"]["name"],
            arguments=call["function"]["arguments"],
        )
        for call in message.get("tool_calls") or []
    ]


def add_call_result(turn: RecordedTurn, *, call_id: str, result: str) -> None:
    """Add a result to the newest unanswered call with its id; a second result is dropped."""
    for step in reversed(turn.steps):
        for call in step.calls:
            if call.call_id == call_id and call.result is None:
                call.result = result
                return
