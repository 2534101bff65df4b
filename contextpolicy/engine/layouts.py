"""How the chosen parts of a prompt become wire messages: the layout `multi-turn`.

The order keeps the prompt's beginning the same from call to call: what changes seldom stands first,
the tail and the question last. The steps of the running turn follow the question.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from contextpolicy.engine.entries import Entry, entry
from contextpolicy.engine.messages import Message, ToolSpec, WireMessage, WireRole
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.prompts import pin_wire
from contextpolicy.engine.tokens import (
    MESSAGE_OVERHEAD,
    TokenCounter,
    tools_tokens,
    wire_tokens,
)

SYSTEM_JOINT = "\n\n"

Origin = Literal[
    "system", "tools", "summary", "pin", "history", "tail", "question", "continue", "step"
]


@dataclass(frozen=True, slots=True)
class Segment:
    """A record of one piece of a prompt, in prompt order.

    Pieces that are messages bear `message_id` and `seq`; system parts bear their origin's name in
    `message_id`. `text_ref` is the SHA-256 of a piece's text that is no stored message, else "".
    `cut_to` and `result_limit` are the limits in characters that cut its texts and its tool
    results.
    """

    origin: Origin
    message_id: str
    seq: int
    role: WireRole
    tokens: int
    cut_to: int | None = None
    text_ref: str = ""
    result_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Wire messages that stay together, with their segments; tools have no message."""

    segments: tuple[Segment, ...]
    wires: tuple[WireMessage, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of the block, in our count."""
        return sum(segment.tokens for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The chosen parts of a prompt."""

    system: tuple[Block, ...] = ()
    tools: tuple[Block, ...] = ()
    summary: tuple[Block, ...] = ()
    pins: tuple[Block, ...] = ()
    history: tuple[Block, ...] = ()
    tail: tuple[Block, ...] = ()
    question: tuple[Block, ...] = ()
    steps: tuple[Block, ...] = ()


def multi_turn(parts: Parts) -> Iterator[Block]:
    """The blocks in the order of the wire, each message in its own role."""
    yield from parts.system
    yield from parts.tools
    yield from parts.summary
    yield from parts.pins
    yield from parts.history
    yield from parts.tail
    yield from parts.question
    yield from parts.steps


def tokens_of(blocks: Iterable[Block]) -> int:
    """Tokens of several blocks, in our count."""
    return sum(block.tokens for block in blocks)


def text_ref(text: str) -> str:
    """The content hash under which a text that is no message is stored: SHA-256 in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tools_json(tools: Sequence[ToolSpec]) -> str:
    """The canonical JSON of tool definitions, in their order."""
    return json.dumps(
        [{"description": t.description, "name": t.name, "parameters": t.parameters} for t in tools],
        sort_keys=True,
        separators=(",", ":"),
    )


def prompt_json(messages: Sequence[WireMessage], tools: Sequence[ToolSpec]) -> str:
    """The canonical JSON of a prompt: sorted keys, no spaces, ASCII only."""
    written = [
        {
            "content": wire.content,
            "role": wire.role,
            "tool_call_id": wire.tool_call_id,
            "tool_calls": [[call.call_id, call.name, call.arguments] for call in wire.tool_calls],
        }
        for wire in messages
    ]
    listed = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return f'{{"messages":{listed},"tools":{tools_json(tools)}}}'


class Maker:
    """Makes the blocks of one prompt; `texts` collects by hash what is no message."""

    def __init__(self, *, values: PolicyValues, counter: TokenCounter) -> None:
        self.values = values
        self.counter = counter
        self.texts: dict[str, str] = {}

    def system(self, parts: Sequence[tuple[str, str]]) -> Block:
        """One system message of ordered (origin, text) parts, a blank line between."""
        filled = [(origin, text) for origin, text in parts if text]
        if not filled:
            return Block(())
        wire = WireMessage("system", SYSTEM_JOINT.join(text for _, text in filled))
        counts = [self.counter.count(text) for _, text in filled[1:]]
        # The first part carries the frame and the joints: the segments add up to the message.
        counts.insert(0, wire_tokens(wire, self.counter) - sum(counts))
        segments = tuple(
            Segment("system", origin, 0, "system", tokens, text_ref=self._noted(text))
            for (origin, text), tokens in zip(filled, counts, strict=True)
        )
        return Block(segments, (wire,))

    def tools(self, tools: Sequence[ToolSpec]) -> Block:
        """The tool definitions: no message, but part of the prompt."""
        if not tools:
            return Block(())
        ref = self._noted(tools_json(tools))
        tokens = tools_tokens(tools, self.counter)
        return Block((Segment("tools", "", 0, "system", tokens, text_ref=ref),))

    def data(self, origin: Origin, wire: WireMessage, *, label: str = "") -> Block:
        """One message whose text is no stored message: summary, tail, instruction."""
        tokens = wire_tokens(wire, self.counter)
        ref = self._noted(wire.content)
        return Block((Segment(origin, label, 0, wire.role, tokens, text_ref=ref),), (wire,))

    def pin(self, message: Message) -> Block:
        """A pinned message outside the window, as labelled data."""
        wire = pin_wire(message, values=self.values)
        tokens = wire_tokens(wire, self.counter)
        return Block((Segment("pin", message.id, message.seq, "user", tokens),), (wire,))

    def question(self, message: Message) -> Block:
        """The question whole; sent even if it is empty, since somebody waits for an answer."""
        made = self.whole(message)
        if not made.wires:
            made = replace(made, wires=(WireMessage("user", ""),), tokens=MESSAGE_OVERHEAD)
        return entry_block("question", made)

    def cut(self, message: Message) -> Entry:
        """A history message as the policy cuts it."""
        return entry(message, values=self.values, counter=self.counter)

    def whole(self, message: Message, result_limit: int | None = None) -> Entry:
        """A message of the running turn: its texts whole, its tool results cut."""
        return entry(
            message,
            values=self.values,
            counter=self.counter,
            whole=True,
            result_limit=result_limit,
        )

    def _noted(self, text: str) -> str:
        ref = text_ref(text)
        self.texts[ref] = text
        return ref


def entry_block(origin: Origin, made: Entry) -> Block:
    """A stored message in its own role."""
    message = made.message
    segment = Segment(
        origin,
        message.id,
        message.seq,
        message.role,
        made.tokens,
        made.cut_to,
        "",
        made.result_limit,
    )
    return Block((segment,), made.wires)
