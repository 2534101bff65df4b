"""The layouts A, B and C: the chat as one block of text in a user message.

They write roles as text, for models that handle this format better. In layouts A and C, the block
and the question are one user message; in layout B, they are two. Between compactions the prefix up
to the last recent entry is append-only, as long as neither preferences nor state change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from contextpolicy.engine.compose.layouts import JOINT_BYTES, Images, Maker, shift_images
from contextpolicy.engine.history.entries import Entry
from contextpolicy.engine.history.tool_rules import Stubbed
from contextpolicy.engine.messages.messages import (
    FilePart,
    Message,
    Summary,
    WireMessage,
    extract_message_text,
    find_result_images,
    parse_result_image,
)
from contextpolicy.engine.messages.segments import (
    Block,
    Parts,
    Scale,
    Segment,
    build_message_block,
    count_wire_bytes,
)
from contextpolicy.engine.messages.tokens import MESSAGE_OVERHEAD, TokenCounter
from contextpolicy.engine.messages.transcript import (
    PINNED_TITLE,
    PREFIXES,
    RECENT_TITLE,
    SECTION_JOINT,
    SUMMARY_TITLE,
    Background,
    TextEntry,
    TranscriptWriter,
)
from contextpolicy.engine.policy.policy import PolicyValues

# The tokens that a line end may take at a joint, if the counter is not additive.
JOINT_TOKENS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TextContext:
    """The parts of a chat as text; each may be empty."""

    system: str = ""
    summary: str = ""
    pinned: tuple[TextEntry, ...] = ()
    recent: tuple[TextEntry, ...] = ()
    background: Background = field(default_factory=Background)


def format_context_text(context: TextContext, *, include_system: bool = False) -> str:
    """Format the chat as text: sections in a fixed order, separated by blank lines.

    Empty sections are omitted. If all parts are empty, so is the text. The text never ends with a
    line break.
    """
    writer = TranscriptWriter()
    told = dict(writer.background(context.background))
    system = writer.inline(PREFIXES["system"], context.system) if context.system else ""
    sections = [
        system if include_system else "",
        told["preferences"],
        told["profile"],
        writer.section(SUMMARY_TITLE, context.summary) if context.summary else "",
        writer.listed(PINNED_TITLE, context.pinned),
        told["state"],
        writer.listed(RECENT_TITLE, context.recent),
        told["recent"],
        told["references"],
        told["date"],
    ]
    return SECTION_JOINT.join(section for section in sections if section)


def build_context_messages(
    context: TextContext, *, question: str, include_system: bool = False
) -> list[WireMessage]:
    """Return the chat as messages: optional system, summary, pins, recent messages, tail.

    The question is a separate last message without a prefix. Without context it is the only
    message. Entries of role `system` are never sent.
    """
    writer = TranscriptWriter()
    found = [WireMessage("system", context.system)] if include_system and context.system else []
    if context.summary:
        found.append(WireMessage("user", writer.section(SUMMARY_TITLE, context.summary)))
    if pinned := writer.listed(PINNED_TITLE, context.pinned):
        found.append(WireMessage("user", pinned))
    found += [WireMessage(item.role, item.text) for item in context.recent if item.role != "system"]
    tail = SECTION_JOINT.join(text for _, text in writer.background(context.background) if text)
    if tail:
        found.append(WireMessage("user", tail))
    return [*found, WireMessage("user", question)]


class TextMaker(Maker):
    """Builds each part of a prompt as text, and joins the parts into one user message.

    Each part is a block, whose message contains the text; `arranged` joins them. Steps of the
    running turn keep their roles, because tools need them.
    """

    has_days = False

    def __init__(
        self, *, values: PolicyValues, counter: TokenCounter, scale: Scale, stubbed: Stubbed
    ) -> None:
        super().__init__(values=values, counter=counter, scale=scale, stubbed=stubbed)
        titles = (SUMMARY_TITLE, PINNED_TITLE, RECENT_TITLE, values.question_prefix)
        self.frame = MESSAGE_OVERHEAD + sum(counter.count(title) + JOINT_TOKENS for title in titles)
        self.frame_bytes = len(SECTION_JOINT.join(titles).encode("utf-8", "surrogatepass"))

    def summary(self, summary: Summary) -> Block:
        return self._piece(
            Segment("summary", summary.id, 0, "user", 0), self.writer.guarded(summary.text)
        )

    def tail(self, background: Background, text: str) -> tuple[Block, ...]:
        """Return one block for each non-empty part before the question."""
        sections = [*self.writer.background(background), ("tail", text)]
        return tuple(
            self._piece(Segment("tail", name, 0, "user", 0), told)
            for name, told in sections
            if told
        )

    def pin(self, message: Message) -> Block:
        """Build the block of a pinned message: an uncut text entry."""
        line = self.writer.entry(message.role, extract_message_text(message))
        return self._piece(Segment("pin", message.id, message.seq, "user", 0), line, note=False)

    def history(self, message: Message) -> Entry:
        """Build the text entry of a history message, cut by the policy."""
        return self._line(super().history(message))

    def continued(self, message: Message) -> Entry:
        """Build the uncut text entry of the truncated reply that is continued."""
        return self._line(super().continued(message))

    def shows(self, message: Message) -> bool:
        """Return True if a message has text, or an image that is not part of a tool result.

        Calls and results are omitted.
        """
        if extract_message_text(message):
            return True
        of_results = find_result_images(message.parts)
        return any(
            isinstance(part, FilePart)
            and part.image is not None
            and parse_result_image(part)[0] not in of_results
            for part in message.parts
        )

    def arranged(self, parts: Parts) -> tuple[Block, ...]:
        """Return the blocks in wire order.

        These are system and tools, then the text with the question (separate in B), then the steps.
        """
        text, segments = self._block(parts)
        wires = [wire for b in parts.question for wire in b.wires]
        asked = SECTION_JOINT.join(wire.content for wire in wires)
        # The images of the question are sent; those of the history become lines of text.
        images = wires[0].images if wires else ()
        question = [segment for b in parts.question for segment in b.segments]
        together = self.values.layout != "B"
        if text and together:
            head = f"{text}{SECTION_JOINT}{self.values.question_prefix}" if wires else text
            asked, images = f"{head}{asked}", shift_images(images, by=len(head))
            question = [*segments, *question]
        blocks = [*parts.system, *parts.tools]
        if text and not together:
            blocks.append(self._build_block(segments, text))
        if asked or wires:
            blocks.append(self._build_block(question, asked, images))
        elif question:
            blocks.append(Block(tuple(question)))
        return (*blocks, *parts.steps)

    def _block(self, parts: Parts) -> tuple[str, list[Segment]]:
        """Join the sections in order: retrieved context and later sections come after history."""
        tail = {b.segments[0].message_id: [b] for b in parts.tail}
        sections = [
            *(("", tail.get(name, [])) for name in ("preferences", "profile")),
            (SUMMARY_TITLE, parts.summary),
            (PINNED_TITLE, parts.pins),
            ("", tail.get("state", [])),
            (RECENT_TITLE, parts.history),
            *(("", tail.get(name, [])) for name in ("recent", "references", "date", "tail")),
        ]
        texts = []
        segments: list[Segment] = []
        for title, pieces in sections:
            lines = [piece.wires[0].content for piece in pieces]
            if lines:
                texts.append("\n".join([title, *lines] if title else lines))
            segments += [segment for piece in pieces for segment in piece.segments]
        return SECTION_JOINT.join(texts), segments

    def _build_block(self, segments: Sequence[Segment], text: str, images: Images = ()) -> Block:
        block = build_message_block(
            segments, WireMessage("user", text, images=images), self.counter
        )
        return self.weighed(block.segments, block.wires)

    def _piece(self, segment: Segment, text: str, *, note: bool = True) -> Block:
        ref = self.store_text(text) if note else ""
        tokens = self.counter.count(text) + JOINT_TOKENS
        made = segment._replace(tokens=tokens, text_ref=ref)
        return self.weighed((made,), (WireMessage("user", text),))

    def _line(self, made: Entry) -> Entry:
        texts = [wire.shown() for wire in made.wires if wire.role != "tool" and wire.shown()]
        return self._as_line(made, self.writer.entry(made.message.role, SECTION_JOINT.join(texts)))

    def _as_line(self, made: Entry, line: str) -> Entry:
        message = made.message
        has_tools = any(wire.role == "tool" or wire.tool_calls for wire in made.wires)
        notes = (f"{message.seq}:tool_parts_left_out",) if has_tools else ()
        tokens = self.counter.count(line) + JOINT_TOKENS
        wires = (WireMessage("user", line),)
        return made._replace(
            wires=wires,
            tokens=tokens,
            result_limit=None,
            notes=notes,
            weight=self.scale.weight(tokens, count_wire_bytes(wires) + JOINT_BYTES),
        )
