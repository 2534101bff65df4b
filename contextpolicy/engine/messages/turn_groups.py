"""Finds units that must not be split: turns, and calls with their results."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from contextpolicy.engine.messages.messages import (
    FilePart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    WireMessage,
    convert_parts_to_wires,
)

NO_RESULT = "[no result was recorded]"
_TOOL_PARTS = (ToolCallPart, ToolResultPart)


def find_turn_starts(messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the indexes at which a turn begins, ascending. Cutting there does not split a turn.

    A turn is a question and all messages that it caused. In messages ascending by seq, it begins at
    a user message whose turn label differs from that of the previous message. If one of them has no
    label, it begins at a user message that follows a finished reply. Messages before the first such
    message form a separate turn.
    """
    return tuple(
        place
        for place, message in enumerate(messages)
        if place == 0 or _starts_turn(message, messages[place - 1])
    )


def _starts_turn(message: Message, before: Message) -> bool:
    if message.role != "user":
        return False
    if message.turn and before.turn:
        return message.turn != before.turn
    return before.role == "assistant" and not _is_step(before)


def split_open_turn(
    messages: Sequence[Message],
) -> tuple[Sequence[Message], Sequence[Message]]:
    """Return the messages of finished turns, then those of the last turn if it is unfinished.

    A turn is unfinished if a tool call of its newest reply has no result. Otherwise the second part
    is empty.
    """
    cuts = find_turn_starts(messages)
    last = messages[cuts[-1] :] if cuts else ()
    newest = next((message for message in reversed(last) if message.role == "assistant"), None)
    if newest is None or not _has_open_call(newest):
        return messages, ()
    return messages[: cuts[-1]], last


def _has_open_call(message: Message) -> bool:
    answered = {part.call_id for part in message.parts if isinstance(part, ToolResultPart)}
    return any(
        isinstance(part, ToolCallPart) and part.call_id not in answered for part in message.parts
    )


def _is_step(message: Message) -> bool:
    """Return True if the turn continues after the message: it ends with tool calls or results."""
    return bool(message.parts) and isinstance(message.parts[-1], _TOOL_PARTS)


def convert_message_to_wires(message: Message) -> tuple[list[WireMessage], tuple[str, ...]]:
    """Return the wire messages of a stored message, and notes on repairs.

    Nothing is cut here (see `entries.build_prompt_entry`), and stored data is unchanged.
    """
    if len(message.parts) == 1 and isinstance(message.parts[0], TextPart):
        text = message.parts[0].text
        return ([WireMessage(message.role, text)] if text else []), ()
    parts, notes = repair_tool_parts(message.parts, role=message.role)
    return convert_parts_to_wires(message.role, parts), notes


def has_content(message: Message) -> bool:
    """Return True if the message has content to send; reasoning alone is not sent."""
    sent = (FilePart, ToolCallPart) if message.role == "assistant" else (FilePart,)
    for part in message.parts:
        if part.text if isinstance(part, TextPart) else isinstance(part, sent):
            return True
    return False


def repair_tool_parts(
    parts: Sequence[Part], *, role: Role = "assistant"
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Pair each call with exactly one result after its run of calls; valid parts are unchanged.

    A user's message loses all tool parts. In other messages, a call without a result gets a
    placeholder result. A result without a call is dropped, and so is a second result of the same
    call. Call ids used twice in the message are made unique, in order. The notes list each repair.
    """
    if role == "user":
        kept = tuple(part for part in parts if not isinstance(part, _TOOL_PARTS))
        notes = ("tool_part_in_user_message",) if len(kept) < len(parts) else ()
        return kept, notes
    if not any(isinstance(part, _TOOL_PARTS) for part in parts):
        return tuple(parts), ()
    pairing = _Pairing(parts)
    repaired = pairing.walk(parts)
    return repaired, tuple(pairing.notes)


class _Pairing:
    """Puts the results of each run of calls directly after it."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.notes: list[str] = []
        self._results: dict[str, list[ToolResultPart]] = defaultdict(list)
        for part in parts:
            if isinstance(part, ToolResultPart):
                self._results[part.call_id].append(part)
        self._used = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
        self._seen: set[str] = set()
        self._open: list[ToolResultPart] = []

    def walk(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        repaired: list[Part] = []
        answered = False
        for part in parts:
            if isinstance(part, ToolResultPart):
                answered = True
                continue
            if answered:
                repaired += self._close()
                answered = False
            repaired.append(self._take(part) if isinstance(part, ToolCallPart) else part)
        repaired += self._close()
        self._note_strays(self._results.values())
        return tuple(repaired)

    def _take(self, call: ToolCallPart) -> ToolCallPart:
        waiting = self._results[call.call_id]
        content = NO_RESULT
        if waiting:
            content = waiting.pop(0).content
        else:
            self.notes.append(f"no_result:{call.call_id}")
        call_id = self._unique(call.call_id)
        self._open.append(ToolResultPart(call_id, call.name, content))
        return call if call_id == call.call_id else replace(call, call_id=call_id)

    def _unique(self, call_id: str) -> str:
        if call_id and call_id not in self._seen:
            self._seen.add(call_id)
            return call_id
        number = 2
        while f"{call_id or 'call'}-{number}" in self._used:
            number += 1
        unique = f"{call_id or 'call'}-{number}"
        self._used.add(unique)
        self.notes.append(f"call_id_renamed:{call_id}")
        return unique

    def _close(self) -> list[ToolResultPart]:
        closed, self._open = self._open, []
        return closed

    def _note_strays(self, left: Iterable[list[ToolResultPart]]) -> None:
        for results in left:
            self.notes += [f"stray_result:{result.call_id}" for result in results]
