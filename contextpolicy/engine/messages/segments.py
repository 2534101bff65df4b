"""The pieces of a prompt: wire messages, with a record of each piece's origin."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from contextpolicy.engine.messages.messages import ToolSpec, WireMessage, WireRole
from contextpolicy.engine.messages.tokens import TokenCounter, count_wire_tokens

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
    "prefill",
]


# One is created for every message of every prompt. A named tuple takes a third of the time of a
# frozen dataclass.
class Segment(NamedTuple):
    """A record of one piece of a prompt, in prompt order.

    Pieces that are messages have `message_id` and `seq`; system parts and parts of the tail have
    their name in `message_id`. `text_ref` is the SHA-256 of a piece's text if that is not a
    stored message, else "". `cut_to` and `result_limit` are the limits in characters that cut its
    texts and its tool results.
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
    """Wire messages that are never separated, with their segments.

    The block of the tool definitions has no message. `weight`: tokens of the prompt limit that it
    uses, if bytes are limited too (see `Scale`); None: `tokens` applies.
    """

    segments: tuple[Segment, ...]
    wires: tuple[WireMessage, ...] = ()
    weight: int | None = None

    @property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    @property
    def cost(self) -> int:
        """Number of tokens of the prompt limit that the block uses."""
        return self.tokens if self.weight is None else self.weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a prompt that were chosen, before they are ordered by the layout."""

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
    """Converts bytes to tokens if a prompt is limited in both.

    The weight of a block is its tokens, or its bytes converted to tokens, whichever is larger.
    Blocks whose weights fit `limit` therefore fit both limits.
    """

    limit: int
    max_bytes: int | None
    # The limit of texts and images together, in bytes. None: images have no limit in bytes.
    image_limit: int | None = None

    def measure(self, wires: Sequence[WireMessage]) -> int:
        """Return the size of wire messages in bytes of `max_bytes`.

        It is the size of their texts, or their share of `image_limit`, whichever is larger.
        """
        size = count_wire_bytes(wires)
        if self.max_bytes is None or self.image_limit is None:
            return size
        whole = size + count_image_bytes(wires)
        return max(size, -(-whole * self.max_bytes // self.image_limit))

    def weight(self, tokens: int, size: int) -> int:
        """Return the weight of a piece of `tokens` tokens and `size` bytes."""
        if self.max_bytes is None:
            return tokens
        return max(tokens, -(-size * self.limit // self.max_bytes))


def count_block_tokens(blocks: Iterable[Block]) -> int:
    return sum(segment.tokens for block in blocks for segment in block.segments)


def sum_block_costs(blocks: Iterable[Block]) -> int:
    """Return the number of tokens of the prompt limit that several blocks use."""
    return sum(block.cost for block in blocks)


def build_message_block(
    segments: Sequence[Segment], wire: WireMessage, counter: TokenCounter
) -> Block:
    """Build a block of one message. Its first segment includes the message's overhead.

    The segments therefore add up to the tokens of the message.
    """
    first, *others = segments
    tokens = count_wire_tokens(wire, counter) - sum(segment.tokens for segment in others)
    return Block((first._replace(tokens=tokens), *others), (wire,))


def count_wire_bytes(wires: Iterable[WireMessage]) -> int:
    """Count the UTF-8 bytes of the texts and calls of wire messages."""
    return sum(
        _size(wire.content)
        + sum(_size(call.name) + _size(call.arguments) for call in wire.tool_calls)
        for wire in wires
    )


def count_image_bytes(wires: Iterable[WireMessage]) -> int:
    """Count the bytes of the images of wire messages: of their base64 text, or of their URLs."""
    images = (part.image for wire in wires for _, part in wire.images)
    return sum(-(-image.size // 3) * 4 + len(image.url) for image in images if image)


def count_tool_bytes(tools: Sequence[ToolSpec]) -> int:
    """Count the bytes of the tool definitions; 0 if there are none."""
    return len(format_tools_json(tools)) if tools else 0


def _images(wire: WireMessage) -> list[list[object]]:
    return [[place, part.media_type, part.reference] for place, part in wire.images]


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def compute_text_ref(text: str) -> str:
    """Return the key of a text that is not a stored message: its SHA-256 in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def format_tools_json(tools: Sequence[ToolSpec]) -> str:
    """Return the canonical JSON of tool definitions, in the given order."""
    return json.dumps(_write_tools(tools), sort_keys=True, separators=(",", ":"))


def format_tools_text(tools: Sequence[ToolSpec]) -> str:
    """Return tool definitions as JSON. Parameters keep the key order of the tool's owner."""
    return json.dumps(_write_tools(tools), separators=(",", ":"))


def _write_tools(tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
    return [_write_tool(tool) for tool in tools]


def _write_tool(tool: ToolSpec) -> dict[str, object]:
    written: dict[str, object] = {
        "description": tool.description,
        "name": tool.name,
        "parameters": tool.parameters,
    }
    if tool.strict is not None:
        written["strict"] = tool.strict
    if tool.hosted:
        written["hosted"] = True
    return written


def format_prompt_json(messages: Sequence[WireMessage], tools: Sequence[ToolSpec]) -> str:
    """Return the canonical JSON of a prompt: sorted keys, no spaces, ASCII only.

    It does not contain reasoning, nor the `extra` of tool calls.
    """
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
    return f'{{"messages":{listed},"tools":{format_tools_json(tools)}}}'
