"""The tool calls of a running step in a UI message stream, from live frames.

A record for each call contains the chunks that the client has. The stored step then adds only the
rest, so that lost frames delay a call but never repeat or lose it.

If any tool of the chat requires consent, a call of another tool is shown only when all calls run: a
step that waits must contain requests only, because clients send the answers once each call of the
step has one.
"""

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext

from chats.exchange.ui_approvals import mark_denied_calls
from chats.ground.live import Frame
from chats.models import ToolCall, Turn
from chats.prompt.model_choice import PolicyRefused, resolve_effective_policy
from chats.turns.tool_steps import find_tool_step, list_asking_tools
from contextpolicy.engine.messages.messages import (
    Part,
    ToolCallPart,
    ToolResultPart,
    parse_parts,
)
from contextpolicy.engine.messages.ui_messages import UIMessage, serialize_ui_message
from contextpolicy.resolution import load_policy_values

Chunk = Mapping[str, object]


@dataclass(slots=True)
class SentCall:
    """One call of the running step, and its chunks that the client has."""

    call_id: str
    name: str
    # Shown once all calls run.
    is_held: bool = False
    pieces: list[str] = field(default_factory=list)
    # The length of the received arguments.
    length: int = 0
    has_start: bool = False
    has_input: bool = False
    has_output: bool = False

    def build_parts(self, content: str | None = None) -> list[Part]:
        """Return the call as message parts, with its result if given."""
        call = ToolCallPart(self.call_id, self.name, "".join(self.pieces))
        result = ToolResultPart(self.call_id, self.name, content or "")
        return [call] if content is None else [call, result]


class LiveCalls:
    """The tool calls of the running step that one client has, by their place in the step."""

    def __init__(self, turn_id: uuid.UUID) -> None:
        self.turn_id = turn_id
        self.calls: dict[int, SentCall] = {}
        # Names of the tools whose calls wait for consent. None: not read in this step.
        self.asking: Collection[str] | None = None

    async def hear(
        self, frame: Frame, *, known: Collection[str], read: Callable[..., Any]
    ) -> list[Chunk]:
        """Return the chunks of a frame, without those that the client has.

        `known`: the ids of calls whose input the client has from an earlier stream. `read`: runs a
        database function in a thread.
        """
        if frame.kind == "call":
            return await self.begin(frame, known=known, read=read)
        if frame.kind == "calls":
            return self.release(json.loads(frame.text))
        call = self.calls.get(frame.place)
        if call is None:
            return []
        if frame.kind == "arguments":
            return self.add_arguments(call, frame)
        return await self.end(call, frame, read=read)

    async def begin(
        self, frame: Frame, *, known: Collection[str], read: Callable[..., Any]
    ) -> list[Chunk]:
        """Begin a call. A second call with the same id comes with the stored step."""
        call_id, name = json.loads(frame.text)
        if frame.place in self.calls or call_id in {each.call_id for each in self.calls.values()}:
            return []
        if self.asking is None:
            self.asking = await read(load_asking_tools, self.turn_id)
        call = SentCall(call_id, name, is_held=bool(self.asking) and name not in self.asking)
        self.calls[frame.place] = call
        call.has_start = call.has_input = call_id in known
        if call.has_start or call.is_held:
            return []
        call.has_start = True
        return [{"type": "tool-input-start", "toolCallId": call_id, "toolName": name}]

    def add_arguments(self, call: SentCall, frame: Frame) -> list[Chunk]:
        """Return more of the arguments. After a gap, the rest comes with the stored step."""
        piece = frame.text[call.length - frame.offset :] if frame.offset <= call.length else ""
        if not piece:
            return []
        call.pieces.append(piece)
        call.length += len(piece)
        if not call.has_start or call.has_input:
            return []
        return [{"type": "tool-input-delta", "toolCallId": call.call_id, "inputTextDelta": piece}]

    def release(self, lengths: Sequence[Sequence[int]]) -> list[Chunk]:
        """Return the input of each call, now that all of them are complete and run."""
        chunks: list[Chunk] = []
        for place, length in lengths:
            call = self.calls.get(place)
            if call is not None and call.length == length and not call.has_input:
                call.has_start = call.has_input = True
                (part,) = serialize_step(call.build_parts())
                chunks += build_tool_chunks(part)
        return chunks

    async def end(self, call: SentCall, frame: Frame, *, read: Callable[..., Any]) -> list[Chunk]:
        """Return the result of a call. Empty if the client has no input of it."""
        if call.has_output or not call.has_input:
            return []
        content = frame.text
        if len(content) != frame.offset:
            content = await read(load_result, self.turn_id, step=frame.step, place=frame.place)
        if not content:
            return []
        call.has_output = True
        (part,) = serialize_step(call.build_parts(content))
        return build_tool_chunks(part, has_call=True)

    def take(self, call_id: str) -> SentCall | None:
        """Remove and return the record of a call. None if the client has no chunk of it."""
        for place, call in self.calls.items():
            if call.call_id == call_id:
                return self.calls.pop(place)
        return None

    def discard(self, kept: Collection[str] = ()) -> list[Chunk]:
        """Forget all calls except those with the ids `kept`. The client gets an error for each.

        A kept call gets its result again, which can differ from that of the earlier attempt.
        """
        for call in self.calls.values():
            call.has_output = False
        gone = [place for place, call in self.calls.items() if call.call_id not in kept]
        calls = [self.calls.pop(place) for place in gone]
        return [build_discarded_chunk(call.call_id) for call in calls if call.has_start]

    def doubt(self) -> None:
        """Send the calls again with their results, because another attempt may have made them."""
        for call in self.calls.values():
            call.has_input = call.has_output = False


def build_discarded_chunk(call_id: str) -> Chunk:
    """Return the end of a call that is not part of the reply."""
    sentence = gettext("This call was discarded because the reply was started again.")
    return {"type": "tool-output-error", "toolCallId": call_id, "errorText": sentence}


def build_tool_chunks(
    part: Mapping[str, Any], *, has_call: bool = False, has_output: bool = False
) -> list[Chunk]:
    """Return the chunks of a tool call and its result, without those that the client has."""
    call = {"toolCallId": part["toolCallId"]}
    name = part["type"].removeprefix("tool-")
    chunks: list[Chunk] = []
    if not has_call:
        made = {"type": "tool-input-available", **call, "toolName": name, "input": part["input"]}
        chunks.append(made)
    if has_output:
        return chunks
    if part["state"] == "output-denied":
        chunks.append({"type": "tool-output-denied", **call})
    elif "output" in part:
        chunks.append({"type": "tool-output-available", **call, "output": part["output"]})
    return chunks


def serialize_step(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the parts of one step as UI message parts, without step marks."""
    message = UIMessage("step", "assistant", parts, {})
    made: Any = serialize_ui_message(message)["parts"]
    return mark_denied_calls([part for part in made if part["type"] != "step-start"])


def load_asking_tools(turn_id: uuid.UUID) -> frozenset[str]:
    """Return the names of the tools whose calls wait for consent in the chat of a turn."""
    rows = Turn.objects.select_related("branch__chat", "model", "agent__policy__current")
    turn = rows.filter(pk=turn_id).first()
    if turn is None:
        return frozenset()
    chat = turn.branch.chat
    try:
        effective = resolve_effective_policy(chat=chat, model=turn.model, agent=turn.agent)
    except PolicyRefused:
        # The turn fails. Its calls are not run.
        return frozenset()
    return list_asking_tools(chat.pk, allowed=load_policy_values(effective).tools)


def load_result(turn_id: uuid.UUID, *, step: int, place: int) -> str:
    """Return the result of a call while its step runs. Empty afterwards."""
    rows = ToolCall.objects.filter(turn=turn_id, step=step, place=place)
    return rows.values_list("content", flat=True).first() or ""


def load_kept_calls(turn: Turn) -> frozenset[str]:
    """Return the ids of the calls that the next attempt continues, because they are stored."""
    stored = find_tool_step(turn)
    parts = parse_parts(stored.parts) if stored else ()
    return frozenset(part.call_id for part in parts if isinstance(part, ToolCallPart))
