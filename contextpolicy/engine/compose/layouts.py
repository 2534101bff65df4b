"""Turns the chosen parts of a prompt into wire messages: the layout `multi_turn`.

The order keeps the prefix stable from call to call: parts that rarely change come first, the tail
and the question last. The steps of the running turn follow the question.
"""

from collections.abc import Iterator, Sequence

from contextpolicy.engine.history.entries import Entry, build_prompt_entry
from contextpolicy.engine.history.tool_rules import Stubbed
from contextpolicy.engine.messages.messages import (
    FilePart,
    Message,
    Summary,
    ToolSpec,
    WireMessage,
    WireRole,
)
from contextpolicy.engine.messages.segments import (
    Block,
    Origin,
    Parts,
    Scale,
    Segment,
    build_message_block,
    compute_text_ref,
    count_tool_bytes,
    format_tools_text,
)
from contextpolicy.engine.messages.tokens import (
    MESSAGE_OVERHEAD,
    TokenCounter,
    count_tool_tokens,
    count_wire_tokens,
)
from contextpolicy.engine.messages.transcript import (
    SECTION_JOINT,
    Background,
    TranscriptWriter,
    format_day_line,
)
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.prompts import build_pin_wire, build_summary_wire

Images = tuple[tuple[int, FilePart], ...]
# Precedes a reply that comes first, for providers that require a user message first.
OPENING = "[The chat begins with the assistant's message.]"
# Bytes of the separator between pieces that are joined into one message.
JOINT_BYTES = len(SECTION_JOINT)


class Maker:
    """Builds the blocks of one prompt, each message in its own role.

    `texts` maps SHA-256 to texts that are not stored messages. `stubbed` lists the tool results
    that the policy's rules omit.
    """

    # Messages get day lines. Other layouts have a fixed text without days.
    has_days = True

    def __init__(
        self,
        *,
        values: PolicyValues,
        counter: TokenCounter,
        scale: Scale,
        stubbed: Stubbed,
    ) -> None:
        self.values = values
        self.counter = counter
        self.scale = scale
        self.stubbed = stubbed
        self.texts: dict[str, str] = {}
        self.writer = TranscriptWriter(question_prefix=values.question_prefix)
        # The tokens and bytes that the layout adds around the pieces.
        self.frame = 0
        self.frame_bytes = 0

    def system(self, parts: Sequence[tuple[str, str]]) -> Block:
        """Build one system message from ordered (origin, text) parts, separated by blank lines."""
        return self.message("system", "system", [(name, text) for name, text in parts if text])

    def tools(self, tools: Sequence[ToolSpec]) -> Block:
        """Build the block of tool definitions.

        The block is not a message, but counts as part of the prompt.
        """
        if not tools:
            return Block(())
        tokens = count_tool_tokens(tools, self.counter)
        segment = Segment(
            "tools", "", 0, "system", tokens, text_ref=self.store_text(format_tools_text(tools))
        )
        return Block((segment,), weight=self.scale.weight(tokens, count_tool_bytes(tools)))

    def summary(self, summary: Summary) -> Block:
        """Build the block of the active summary, as labelled data."""
        return self.data("summary", build_summary_wire(summary), label=summary.id)

    def tail(self, background: Background, text: str) -> tuple[Block, ...]:
        """Build one user message with the background and `text`.

        Returns no block if both are empty.
        """
        sections = [*self.writer.background(background), ("tail", text)]
        block = self.message("tail", "user", [(name, told) for name, told in sections if told])
        return (block,) if block.segments else ()

    def data(self, origin: Origin, wire: WireMessage, *, label: str = "") -> Block:
        """Build a labelled message whose text is not a stored message, such as a summary."""
        ref = self.store_text(wire.content)
        tokens = count_wire_tokens(wire, self.counter)
        return self.weighed((Segment(origin, label, 0, wire.role, tokens, text_ref=ref),), (wire,))

    def pin(self, message: Message) -> Block:
        """Build the block of a pinned message outside the window: labelled data with its day."""
        wire = build_pin_wire(message, values=self.values)
        tokens = count_wire_tokens(wire, self.counter)
        segment = Segment("pin", message.id, message.seq, "user", tokens)
        made = self.weighed((segment,), (wire,))
        return self.dated(made, message) if message.day else made

    def question(self, message: Message) -> Block:
        """Build the block of the question, uncut. Empty text still becomes a message.

        A question without parts represents a client's system text and becomes no message.
        """
        made = self.whole(message)
        if not made.wires and message.parts:
            made = made._replace(wires=(WireMessage("user", ""),), tokens=MESSAGE_OVERHEAD)
        return build_entry_block("question", made)

    def history(self, message: Message) -> Entry:
        """Build the entry of a history message, cut by the policy."""
        made = build_prompt_entry(
            message, values=self.values, counter=self.counter, stubbed=self.stubbed
        )
        return self._weigh_entry(made)

    def continued(self, message: Message) -> Entry:
        """Build the uncut entry of a truncated reply that is continued."""
        return self.whole(message)

    def whole(self, message: Message, result_limit: int | None = None) -> Entry:
        """Build the entry for a message in the running turn: text uncut, tool results cut."""
        made = build_prompt_entry(
            message,
            values=self.values,
            counter=self.counter,
            whole=True,
            result_limit=result_limit,
        )
        return self._weigh_entry(made)

    def day_cost(self, message: Message) -> int:
        """Return the maximum number of tokens of a message's day line; 0 if it has no day line."""
        if not (self.has_days and message.day):
            return 0
        line = f"{format_day_line(message.day)}\n"
        return self.scale.weight(self.counter.count(line) + MESSAGE_OVERHEAD, len(line))

    def dated(self, block: Block, message: Message) -> Block:
        """Return the block of a message, with a separate segment for the day line before it."""
        if not block.wires:
            return block
        line = format_day_line(message.day)
        first, *others = block.wires
        if first.role == "user":
            images = shift_images(first.images, by=len(line) + 1)
            begun = first._replace(content=f"{line}\n{first.content}", images=images)
            tokens = count_wire_tokens(begun, self.counter) - count_wire_tokens(first, self.counter)
            wires = (begun, *others)
        else:
            begun = WireMessage("user", line)
            tokens = count_wire_tokens(begun, self.counter)
            wires = (begun, *block.wires)
        day = Segment("day", message.day, 0, "user", tokens, text_ref=self.store_text(line))
        return self.weighed((day, *block.segments), wires)

    def shows(self, message: Message) -> bool:
        """Return True if the layout can represent a message in the history."""
        return True

    def arranged(self, parts: Parts) -> tuple[Block, ...]:
        return tuple(order_multi_turn_blocks(parts))

    def message(self, origin: Origin, role: WireRole, parts: Sequence[tuple[str, str]]) -> Block:
        """Build one message from (label, text) parts; each part gets a segment."""
        if not parts:
            return Block(())
        wire = WireMessage(role, SECTION_JOINT.join(text for _, text in parts))
        # The first segment includes all tokens that the other segments do not account for.
        counts = (0, *(self.counter.count(text) for _, text in parts[1:]))
        segments = [
            Segment(origin, label, 0, role, tokens, text_ref=self.store_text(text))
            for (label, text), tokens in zip(parts, counts, strict=True)
        ]
        block = build_message_block(segments, wire, self.counter)
        return self.weighed(block.segments, (wire,))

    def weighed(self, segments: tuple[Segment, ...], wires: tuple[WireMessage, ...]) -> Block:
        tokens = sum(segment.tokens for segment in segments)
        size = self.scale.measure(wires) + JOINT_BYTES
        return Block(segments, wires, self.scale.weight(tokens, size))

    def store_text(self, text: str) -> str:
        """Store text that is not a stored message, and return its SHA-256 as the reference."""
        ref = compute_text_ref(text)
        self.texts[ref] = text
        return ref

    def _weigh_entry(self, made: Entry) -> Entry:
        if self.scale.max_bytes is None:
            return made
        size = self.scale.measure(made.wires) + JOINT_BYTES
        return made._replace(weight=self.scale.weight(made.tokens, size))


def order_multi_turn_blocks(parts: Parts) -> Iterator[Block]:
    """Yield the blocks in wire order, each message in its own role."""
    yield from parts.system
    yield from parts.tools
    yield from parts.summary
    yield from parts.pins
    yield from parts.history
    yield from parts.tail
    yield from parts.question
    yield from parts.steps


def build_entry_block(origin: Origin, made: Entry) -> Block:
    """Build the block of a stored message in its own role."""
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
    return Block((segment,), made.wires, made.weight)


def enforce_strict_roles(
    blocks: Sequence[Block], *, maker: Maker
) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """Return blocks with alternating roles, user first, and notes on the changes.

    Some providers require this. Adjacent messages of the same role are joined by a blank line. If a
    reply comes first, or if there is only system text, a short user message is added.
    """
    made: list[Block] = []
    notes: list[str] = []
    last: WireRole = "system"
    for block in blocks:
        if block.wires and last == "system" and block.wires[0].role == "assistant":
            made.append(maker.data("opening", WireMessage("user", OPENING)))
            notes.append("opening_added")
        if made and made[-1].wires and block.wires and _joins(made[-1].wires[-1], block.wires[0]):
            made[-1] = _join_blocks(made[-1], block, maker.counter)
            notes.append("messages_joined")
        else:
            made.append(block)
        last = block.wires[-1].role if block.wires else last
    if last == "system":
        made.append(maker.data("opening", WireMessage("user", OPENING)))
        notes.append("opening_added")
    return tuple(made), tuple(dict.fromkeys(notes))


def shift_images(images: Images, *, by: int) -> Images:
    """Shift the offsets of images, because text of length `by` was inserted before them."""
    return tuple((place + by, part) for place, part in images)


def _joins(first: WireMessage, second: WireMessage) -> bool:
    return first.role == second.role and first.role in ("user", "assistant")


def _join_blocks(first: Block, second: Block, counter: TokenCounter) -> Block:
    a, b = first.wires[-1], second.wires[0]
    content = SECTION_JOINT.join(filter(None, (a.content, b.content)))
    images = (*a.images, *shift_images(b.images, by=len(content) - len(b.content)))
    wire = b._replace(content=content, images=images)
    saved = (
        count_wire_tokens(a, counter)
        + count_wire_tokens(b, counter)
        - count_wire_tokens(wire, counter)
    )
    head, *others = second.segments
    segments = (*first.segments, head._replace(tokens=head.tokens - saved), *others)
    return Block(segments, (*first.wires[:-1], wire, *second.wires[1:]))
