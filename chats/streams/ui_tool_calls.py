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
    """One call of the running step, and its chunks that the client has.

    `place` and `beginning` identify the reply that the pieces belong to: a new attempt of the step
    can use the same id for another call.
    """

    call_id: str
    name: str
    place: int
    # As in `Frame.beginning`.
    beginning: tuple[int, int, int]
    # Shown once all calls run.
    is_held: bool = False
    # The client has the input from an earlier stream.
    is_known: bool = False
    pieces: list[str] = field(default_factory=list)
    # The length of the received arguments.
    length: int = 0
    has_start: bool = False
    # The last complete input and the last result that the client has.
    input: Chunk | None = None
    output: Chunk | None = None
    # All calls of the reply of `beginning` are complete, and the client has this one's input.
    is_running: bool = False

    def build_part(self, content: str | None = None) -> Mapping[str, Any]:
        """Return the call as a UI message part, with its result if given."""
        call = ToolCallPart(self.call_id, self.name, "".join(self.pieces))
        result = ToolResultPart(self.call_id, self.name, content or "")
        (part,) = serialize_step([call] if content is None else [call, result])
        return part

    def begin_again(self, frame: Frame, *, name: str, is_held: bool) -> None:
        """Forget the pieces of an earlier attempt: another reply has a call with this id."""
        self.name, self.place, self.beginning = name, frame.place, frame.beginning
        self.is_held, self.is_running = is_held, self.is_known
        self.pieces, self.length = [], 0

    def add_missing(self, part: Mapping[str, Any]) -> list[Chunk]:
        """Return the chunks of a complete call, without the input and result that are known.

        An input that differs from that of an earlier attempt is sent again, with its result.
        """
        made = build_tool_chunks(part, has_call=self.is_known)
        given = None if self.is_known else made.pop(0)
        chunks: list[Chunk] = []
        if given is not None and given != self.input:
            self.has_start, self.input, self.output = True, given, None
            chunks.append(given)
        if made and made != [self.output]:
            (self.output,) = made
            chunks += made
        return chunks


class LiveCalls:
    """The tool calls of the running step that one client has, by their ids."""

    def __init__(self, turn_id: uuid.UUID) -> None:
        self.turn_id = turn_id
        self.calls: dict[str, SentCall] = {}
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
            return self.release(frame)
        call = self.find(frame, place=frame.place)
        if call is None:
            return []
        if frame.kind == "arguments":
            return self.add_arguments(call, frame)
        return await self.end(call, frame, read=read)

    def find(self, frame: Frame, *, place: int) -> SentCall | None:
        """Return the call at a place in the reply of a frame. None if its first frame was lost."""
        wanted = (frame.beginning, place)
        calls = (each for each in self.calls.values() if (each.beginning, each.place) == wanted)
        return next(calls, None)

    async def begin(
        self, frame: Frame, *, known: Collection[str], read: Callable[..., Any]
    ) -> list[Chunk]:
        """Begin a call. A second call with the same id is sent with the stored step."""
        call_id, name = json.loads(frame.text)
        call = self.calls.get(call_id)
        if self.find(frame, place=frame.place) or (call and call.beginning >= frame.beginning):
            return []
        if self.asking is None:
            self.asking = await read(load_asking_tools, self.turn_id)
        is_held = bool(self.asking) and name not in self.asking
        if call is None:
            call = SentCall(call_id, name, frame.place, frame.beginning, is_held=is_held)
            call.is_known = call.is_running = call.has_start = call_id in known
            self.calls[call_id] = call
        else:
            call.begin_again(frame, name=name, is_held=is_held)
        if call.is_known or call.is_held or call.input is not None:
            return []
        # This also removes the pieces of an earlier attempt from the client's part.
        call.has_start = True
        return [{"type": "tool-input-start", "toolCallId": call_id, "toolName": name}]

    def add_arguments(self, call: SentCall, frame: Frame) -> list[Chunk]:
        """Return more of the arguments. After a gap, the rest is sent with the stored step."""
        piece = frame.text[call.length - frame.offset :] if frame.offset <= call.length else ""
        if not piece:
            return []
        call.pieces.append(piece)
        call.length += len(piece)
        if call.is_held or call.is_known or call.is_running or call.input is not None:
            return []
        return [{"type": "tool-input-delta", "toolCallId": call.call_id, "inputTextDelta": piece}]

    def release(self, frame: Frame) -> list[Chunk]:
        """Return the input of each call, now that all of them are complete and run."""
        chunks: list[Chunk] = []
        for place, length in json.loads(frame.text):
            call = self.find(frame, place=place)
            if call is not None and call.length == length and not call.is_running:
                call.is_running = True
                chunks += call.add_missing(call.build_part())
        return chunks

    async def end(self, call: SentCall, frame: Frame, *, read: Callable[..., Any]) -> list[Chunk]:
        """Return the result of a call. Empty if the client does not have its input."""
        if not call.is_running:
            return []
        content = frame.text
        if len(content) != frame.offset:
            content = await read(load_result, self.turn_id, step=frame.step, place=frame.place)
        return call.add_missing(call.build_part(content)) if content else []

    def take(self, call_id: str) -> SentCall | None:
        """Remove and return the record of a call. None if the client has no chunk of it."""
        return self.calls.pop(call_id, None)

    def discard(self, kept: Collection[str] = ()) -> list[Chunk]:
        """Forget all calls except those with the ids `kept`. The client gets an error for each."""
        gone = [call_id for call_id in self.calls if call_id not in kept]
        calls = [self.calls.pop(call_id) for call_id in gone]
        return [build_discarded_chunk(call.call_id) for call in calls if call.has_start]


def build_discarded_chunk(call_id: str) -> Chunk:
    """Return the end of a call that is not part of the reply."""
    sentence = gettext("This call was discarded because the reply was started again.")
    return {"type": "tool-output-error", "toolCallId": call_id, "errorText": sentence}


def build_tool_chunks(part: Mapping[str, Any], *, has_call: bool = False) -> list[Chunk]:
    """Return the chunks of a tool call and its result, without the call if the client has it."""
    call = {"toolCallId": part["toolCallId"]}
    name = part["type"].removeprefix("tool-")
    chunks: list[Chunk] = []
    if not has_call:
        made = {"type": "tool-input-available", **call, "toolName": name, "input": part["input"]}
        chunks.append(made)
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
        # A viewer stores nothing, so a database that is locked for writing delays no stream.
        effective = resolve_effective_policy(
            chat=chat, model=turn.model, agent=turn.agent, stores=False
        )
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
