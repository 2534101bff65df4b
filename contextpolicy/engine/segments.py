"""The pieces of a prompt: the messages on the wire, and a record of where each piece came from."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from contextpolicy.engine.messages import ToolSpec, WireMessage, WireRole
from contextpolicy.engine.tokens import TokenCounter, wire_tokens

Origin = Literal[
    "system",
    "tools",
    "opening",
    "summary",
    "pin",
    "day",
    "history",
    "tail",
    "question",
    "continue",
    "step",
]


# One of each is made for every message of every prompt: a named tuple takes a third of the time
# that a frozen dataclass takes.
class Segment(NamedTuple):
    """A record of one piece of a prompt, in prompt order.

    Pieces that are messages bear `message_id` and `seq`; system parts and parts of the tail bear
    their name in `message_id`. `text_ref` is the SHA-256 of a piece's text that is no stored
    message, else "". `cut_to` and `result_limit` are the limits in characters that cut its texts
    and its tool results.
    """

    origin: Origin
    message_id: str
    seq: int
    role: WireRole
    tokens: int
    cut_to: int | None = None
    text_ref: str = ""
    result_limit: int | None = None


class Block(NamedTuple):
    """Wire messages that stay together, with their segments; tools have no message.

    `weight` is what the block takes of the prompt limit where bytes are limited too (see `Scale`);
    None: its tokens.
    """

    segments: tuple[Segment, ...]
    wires: tuple[WireMessage, ...] = ()
    weight: int | None = None

    @property
    def tokens(self) -> int:
        """Tokens of the block, in our count."""
        return sum(segment.tokens for segment in self.segments)

    @property
    def cost(self) -> int:
        """The part of the prompt limit that the block takes."""
        return self.tokens if self.weight is None else self.weight


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


@dataclass(frozen=True, slots=True)
class Scale:
    """Weighs pieces where a prompt is limited in tokens and in bytes.

    A piece weighs its tokens or its share of the bytes, whichever is more, so that pieces whose
    weights fit `limit` fit both limits.
    """

    limit: int
    max_bytes: int | None

    def weight(self, tokens: int, size: int) -> int:
        """Return the weight of `tokens` tokens that are `size` bytes."""
        if self.max_bytes is None:
            return tokens
        return max(tokens, -(-size * self.limit // self.max_bytes))


def tokens_of(blocks: Iterable[Block]) -> int:
    """Count the tokens of several blocks, in our count."""
    return sum(segment.tokens for block in blocks for segment in block.segments)


def cost_of(blocks: Iterable[Block]) -> int:
    """Return the part of the prompt limit that several blocks take."""
    return sum(block.cost for block in blocks)


def settled(segments: Sequence[Segment], wire: WireMessage, counter: TokenCounter) -> Block:
    """Make a block of one message in which the first segment carries the frame and the joints.

    So the segments add up to the message, whatever the counter does at the joints.
    """
    first, *others = segments
    tokens = wire_tokens(wire, counter) - sum(segment.tokens for segment in others)
    return Block((first._replace(tokens=tokens), *others), (wire,))


def wire_bytes(wires: Iterable[WireMessage]) -> int:
    """Count the bytes of UTF-8 that the texts and calls of wire messages take."""
    return sum(
        _size(wire.content)
        + sum(_size(call.name) + _size(call.arguments) for call in wire.tool_calls)
        for wire in wires
    )


def tools_bytes(tools: Sequence[ToolSpec]) -> int:
    """Count the bytes of the tool definitions; 0 without tools."""
    return len(tools_json(tools)) if tools else 0


def _images(wire: WireMessage) -> list[list[object]]:
    return [[place, part.media_type, part.reference] for place, part in wire.images]


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def text_ref(text: str) -> str:
    """Return the content hash under which a text that is no message is stored: SHA-256 in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tools_json(tools: Sequence[ToolSpec]) -> str:
    """Write the canonical JSON of tool definitions, in their order."""
    return json.dumps(_written(tools), sort_keys=True, separators=(",", ":"))


def tools_text(tools: Sequence[ToolSpec]) -> str:
    """Write tool definitions with their keys in their owner's order, as they are sent."""
    return json.dumps(_written(tools), separators=(",", ":"))


def _written(tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
    return [
        {"description": t.description, "name": t.name, "parameters": t.parameters}
        | ({} if t.strict is None else {"strict": t.strict})
        for t in tools
    ]


def prompt_json(messages: Sequence[WireMessage], tools: Sequence[ToolSpec]) -> str:
    """Write the canonical JSON of a prompt: sorted keys, no spaces, ASCII only."""
    written = [
        {
            "content": wire.content,
            "role": wire.role,
            "tool_call_id": wire.tool_call_id,
            "tool_calls": [[call.call_id, call.name, call.arguments] for call in wire.tool_calls],
            **({"images": _images(wire)} if wire.images else {}),
        }
        for wire in messages
    ]
    listed = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return f'{{"messages":{listed},"tools":{tools_json(tools)}}}'
